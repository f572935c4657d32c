"""Jobs that do nothing say so: never run, without a sink, with an endless or an empty input."""

from __future__ import annotations

import itertools
import logging
from pathlib import Path
from typing import Any

import pytest

from clonos import Job, blackhole, values
from clonos.connectors.in_memory import read_all
from tests.harnesses.mistakes import check, describe, run_file, run_script

pytestmark = pytest.mark.slow

WITHOUT_RUN = """
from clonos import Job, stdout, values

job = Job("etl")
job.source(values([1, 2])).map(str).sink(stdout())
"""


@pytest.mark.processes
def test_a_script_that_never_runs_its_job_is_warned_at_its_exit(tmp_path: Path) -> None:
    printed = run_script(tmp_path, WITHOUT_RUN)
    check(printed, "the job etl was described and never run. Call its run()", "clonos run job.py", code=0)


@pytest.mark.processes
@pytest.mark.parametrize("last", ["job.run(slots='process')", "1 / 0"], ids=["it runs", "it fails"])
def test_a_script_that_runs_its_job_or_fails_does_not_mention_it(tmp_path: Path, last: str) -> None:
    assert "never run" not in run_script(tmp_path, f"{WITHOUT_RUN}\n{last}").errors


@pytest.mark.processes
def test_a_script_that_imports_a_job_does_not_mention_it(tmp_path: Path) -> None:
    (tmp_path / "other.py").write_text(WITHOUT_RUN, "utf-8")
    assert run_script(tmp_path, "import other") == (0, "", "")


def test_a_file_that_runs_its_own_job_is_refused_by_the_command_line(tmp_path: Path) -> None:
    printed = run_file(tmp_path, f"{WITHOUT_RUN}\njob.run(slots='process')")
    check(printed, "the file itself runs the job etl", 'if __name__ == "__main__":', code=1)


def test_a_job_without_a_sink_is_refused_with_the_ways_out() -> None:
    job = Job("etl")
    job.source(values([1])).map(str, name="parse")
    with pytest.raises(Exception, match="the step parse is the end of a job without a sink") as refused:
        job.start(slots="process")
    check(str(refused.value), "stdout()", "blackhole()")


def test_a_job_whose_only_output_are_effects_has_a_result(caplog: pytest.LogCaptureFixture) -> None:
    from clonos.api.checks.unused_results import check_results
    from clonos.job.description import graph_of

    job = Job("etl")
    job.source(values([1])).map(print, effects=True)
    check_results(graph_of(job))
    assert caplog.text == ""


def test_a_stream_that_is_forgotten_beside_a_sink_is_mentioned(caplog: pytest.LogCaptureFixture) -> None:
    from clonos.api.checks.unused_results import check_results
    from clonos.job.description import graph_of

    job = Job("etl")
    numbers = job.source(values([1]))
    numbers.map(str, name="forgotten")
    numbers.sink(blackhole())
    with caplog.at_level(logging.WARNING, "clonos.run"):
        check_results(graph_of(job))
    assert "the results of the step forgotten go nowhere" in caplog.text


@pytest.mark.parametrize(
    "endless", [itertools.count(), itertools.cycle([1]), itertools.repeat(1), (1 for _ in iter(int, 1))]
)
def test_values_without_an_end_are_refused(endless: Any) -> None:
    check(describe("values(endless)", endless=endless), "1,000,000 values and perhaps no end", "itertools.islice")


def test_values_of_a_long_list_and_of_a_short_iterator_are_taken() -> None:
    assert len(read_all(range(3), maximum=2)) == 3
    assert read_all(iter([1, 2]), maximum=2) == [1, 2]


def test_values_of_a_slow_iterator_warn_once(caplog: pytest.LogCaptureFixture) -> None:
    seconds = itertools.count(step=2)
    assert read_all(iter("abcdef"), now_s=lambda: next(seconds)) == list("abcdef")
    assert caplog.text.count("waits for the last one") == 1


def test_two_jobs_that_share_one_collect_are_refused() -> None:
    printed = describe(
        """
        rows = collect()
        Job("first").source(values([1])).sink(rows)
        Job("first").source(values([1])).sink(rows)  # the same job, described again
        Job("second").source(values([1])).sink(rows)
        """
    )
    check(printed, "the jobs first and second share it", "Give each job its own collect()")


@pytest.mark.parametrize("source", ["files.lines('')", "files.jsonl(['a', ''])", "files.lines('', watch='1s')"])
def test_an_empty_path_is_refused(source: str) -> None:
    check(describe(source), "a path is empty", "Name a file")
