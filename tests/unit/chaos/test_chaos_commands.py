"""Command line of failure injection: a mistake is refused in one line, before anything runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from clonos.cli import main
from clonos_chaos.project.chaos_suite import RUNS_FILE
from clonos_chaos.runs.runner import ScenarioRunOptions, Where, run_scenarios
from clonos_chaos.scenario.run_record import RunRecord
from clonos_chaos.scenario.scenario_file import find_scenario, read_scenarios

NOTHING_IS_PROVED_BY = (
    "run domain --simulated --repeat 0",
    "run domain --simulated --repeat -3",
    "run domain --simulated --keep kept",
    "soak --minutes 0",
    "soak --minutes -1",
    "soak --minutes inf",
    "soak --minutes nan",
    "soak --kill-every 0",
    "soak --server --job my:job",
    "soak --server --oracle my:oracle",
    "seeds --from 10 --to 5",
    "seeds --processes 0 --to 2",
    "seeds --minutes -1",
    "seeds --from 1 --to 1 --records 0",
    "rescales --changes 3",
    "rescales --folder made --changes 0",
    "rescales --folder made --minutes 0",
    "all --worlds -3",
    "all --processes 0",
)


@pytest.mark.parametrize("line", NOTHING_IS_PROVED_BY)
def test_a_command_that_selects_no_run_is_refused(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["chaos", *line.split()])
    assert ended.value.code == 2
    assert "error: " in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize("option", ["--json", "--html", "--png"])
def test_a_report_that_cannot_be_written_is_refused_before_anything_runs(
    option: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    assert main(["chaos", "run", "domain", "--simulated", option, str(tmp_path / "file" / "report")]) == 3
    reported = capsys.readouterr()
    assert reported.out == ""
    assert reported.err.endswith(f"({tmp_path / 'file'}). Nothing was run.\n")


def test_the_folder_of_a_report_is_made(tmp_path: Path) -> None:
    file = tmp_path / "new" / "folder" / "all.json"
    assert main(["chaos", "run", "recovery-in-recovery", "--simulated", "--json", str(file)]) == 0
    assert [found["verdict"] for found in json.loads(file.read_text("utf-8"))] == ["good"]


def test_a_matrix_case_that_cannot_be_simulated_is_refused_before_any_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scenario = tmp_path / "half.toml"
    scenario.write_text(
        'name = "half"\njob = "described"\n[matrix]\nkind = ["kill_worker", "clock_step"]\n'
        "[[faults]]\nat = { seconds = 1 }\n"
    )
    assert main(["chaos", "run", str(scenario), "--simulated"]) == 1
    reported = capsys.readouterr()
    assert reported.out == ""
    assert "half kind=clock_step: clock_step does not exist in the simulated world" in reported.err


@pytest.mark.slow
def test_runs_before_an_interrupted_one_are_in_the_report(tmp_path: Path) -> None:
    page = tmp_path / "stopped.html"
    options = ScenarioRunOptions(Where.SIMULATED, repeat=3, html_file=page)

    def stop(record: RunRecord) -> None:
        if record.seed == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_scenarios(read_scenarios(find_scenario("recovery-in-recovery")), options, stop)
    assert "2 of 2 runs ended as expected" in page.read_text("utf-8")


def test_a_results_folder_that_cannot_be_made_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    words = ["--worlds", "1", "--only", "none", "--report", str(tmp_path / "file" / "report")]
    assert main(["chaos", "all", *words]) == 3
    assert "Nothing was run." in capsys.readouterr().err


def test_a_new_run_of_all_keeps_the_lines_of_the_last_run(tmp_path: Path) -> None:
    (tmp_path / RUNS_FILE).write_text("hours\n")
    assert main(["chaos", "all", "--worlds", "0", "--only", "none", "--report", str(tmp_path)]) == 0
    assert (tmp_path / RUNS_FILE).with_suffix(".before.jsonl").read_text("utf-8") == "hours\n"
