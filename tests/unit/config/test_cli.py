"""The command line before anything runs: selecting a job, options, and errors for the user."""

import subprocess
import sys
import threading
from pathlib import Path

import pytest

import clonos
from clonos.cli import ENVIRONMENT_AT_FAULT, JOB_AT_FAULT, WE_ARE_AT_FAULT, exit_code_of, main
from clonos.core.model.errors import SHORTAGE_ADVICE, EnvironmentFault, InternalError, JobError, PeerError
from clonos.job import Job
from clonos.job.run_register import RegisteredRun, write_record
from clonos.job.script.job_file import load_job
from clonos.kernels.choice import kernels_in_use
from tests.speed import scaled

ONE = "from clonos import Job\nfrom helping_module import NAME\njob = again = Job(NAME)\n"
TOO_LARGE_BYTES = 1 << 46
"""A stack that no process may have."""
TWO = "from clonos import Job\nfirst, second = Job('first'), Job('second')\n"


@pytest.fixture(autouse=True)
def _as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", sys.path.copy())
    for name in ("one_job", "two_jobs", "no_job", "helping_module", "json"):
        if name != "json":
            monkeypatch.delitem(sys.modules, name, raising=False)


def _file(folder: Path, name: str, text: str) -> str:
    (folder / "helping_module.py").write_text("NAME = 'named'\n", "utf-8")
    (folder / name).write_text(text, "utf-8")
    return str(folder / name)


def test_the_only_job_of_a_file_is_loaded_with_its_neighbouring_modules(tmp_path: Path) -> None:
    job = load_job(_file(tmp_path, "one_job.py", ONE))
    assert isinstance(job, Job)
    assert job.name == "named"
    assert sys.modules["one_job"].job is job


def test_one_of_several_jobs_is_selected_by_its_name(tmp_path: Path) -> None:
    assert load_job(_file(tmp_path, "two_jobs.py", TWO) + ":second").name == "second"


@pytest.mark.parametrize(
    ("name", "text", "suffix", "message"),
    [
        ("two_jobs.py", TWO, "", r"2 of them: first, second\. Name one"),
        ("two_jobs.py", TWO, ":third", r"no Job called 'third'; it has: first, second"),
        ("no_job.py", "x = 1\n", "", r"it has none"),
    ],
)
def test_a_file_without_exactly_one_job_is_refused(
    tmp_path: Path, name: str, text: str, suffix: str, message: str
) -> None:
    with pytest.raises(JobError, match=message):
        load_job(_file(tmp_path, name, text) + suffix)


def test_a_missing_file_is_reported_in_one_message_with_an_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "missing.py"]) == JOB_AT_FAULT
    printed = "clonos: the file 'missing.py' does not exist. Name a Python file that has a Job.\n"
    assert capsys.readouterr().err == printed


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--option", "chekpoint_every=5s"], "the command line sets 'chekpoint_every'"),
        (["--option", "checkpoint-every=often"], "the command line sets the option 'checkpoint_every' to 'often'"),
        (["--option", "standbys"], "--option is 'standbys', but key=value is expected"),
        (["--slots", "cloud"], "the command line sets the option 'slots' to 'cloud'"),
        (["--resume", "--overwrite"], "Set only one of them"),
    ],
)
def test_a_wrong_option_is_reported_in_one_message_that_names_it(
    tmp_path: Path, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", _file(tmp_path, "one_job.py", ONE), *arguments]) == JOB_AT_FAULT
    output = capsys.readouterr().err
    output = output.removeprefix("named runs on Spark (PySpark is installed)\n")
    assert output.startswith("clonos: ")
    assert message in output
    assert "Traceback" not in output


def test_a_process_that_may_start_no_thread_ends_with_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    usual_bytes = threading.stack_size()
    try:
        file = _file(tmp_path, "one_job.py", f"import threading\nthreading.stack_size({TOO_LARGE_BYTES})\n{ONE}")
        assert main(["run", file, "--slots", "process"]) == ENVIRONMENT_AT_FAULT
    finally:
        threading.stack_size(usual_bytes)
    assert capsys.readouterr().err == f"clonos: RuntimeError: can't start new thread. {SHORTAGE_ADVICE}\n"


def test_the_demo_refuses_unknown_kills(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--slots", "process", "--kills", "map,earthquake"]) == JOB_AT_FAULT
    assert "there is no kind of kill 'earthquake': give any of map, window, linked" in capsys.readouterr().err


def test_the_exit_code_shows_who_is_to_blame() -> None:
    errors = (JobError("a"), EnvironmentFault("b"), PeerError("c"), InternalError("d"))
    assert [exit_code_of(error) for error in errors] == [
        JOB_AT_FAULT,
        ENVIRONMENT_AT_FAULT,
        WE_ARE_AT_FAULT,
        WE_ARE_AT_FAULT,
    ]


def test_the_version_is_that_of_the_library(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"clonos {clonos.__version__}, {kernels_in_use()}\n"


def test_an_unknown_command_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["fly"])
    assert ended.value.code == 2
    assert "invalid choice: 'fly'" in capsys.readouterr().err


def test_explain_shows_the_plan_without_spark_processes_and_a_store(tmp_path: Path) -> None:
    job = _file(
        tmp_path,
        "plan_job.py",
        'from clonos import Job, files, stdout\njob = Job("plan")\n'
        'job.source(files.lines("missing/*.txt")).map(len).sink(stdout())\n',
    )
    code = (
        "import sys; from clonos.cli import main; code = main(sys.argv[1:]);"
        " print({'pyspark', 'pyarrow', 'multiprocessing.process'} & set(sys.modules)); sys.exit(code)"
    )
    command = (sys.executable, "-c", code, "explain", job, "--option", "parallelism=3")
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True, timeout=scaled(30))
    assert ended.stderr == ""
    assert "1. source-map-sink: 3 tasks" in ended.stdout
    assert "the splits of source are not known yet: no file matches 'missing/*.txt'" in " ".join(ended.stdout.split())
    assert ended.stdout.endswith("set()\n")
    assert {path.name for path in tmp_path.iterdir() if path.name != "__pycache__"} == {
        "plan_job.py",
        "helping_module.py",
    }


def test_explain_names_the_hot_key_of_the_last_run_in_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = tmp_path / "runs"
    runs.mkdir()
    monkeypatch.setenv("CLONOS_RUNS", str(runs))
    monkeypatch.chdir(tmp_path)
    file = _file(tmp_path, "one_job.py", "from clonos import Job, values, stdout\njob = Job('one')\n")
    with open(file, "a", encoding="utf-8") as program:
        program.write("job.source(values([1])).sink(stdout())\n")
    hot = "count/1 gets 91% of the records of count, the key 'ann' alone 85%"
    last = {"status": {"skew": [hot], "scaling": [{"step": "count", "text": "2 tasks are right"}]}}
    for number, folder in enumerate((str(tmp_path), "/elsewhere")):
        record = RegisteredRun("one", f"one-{number}", "", folder, 1, "", "", number, last=last)
        write_record(runs / f"{number}.json", record)
    assert main(["explain", file]) == 0
    assert capsys.readouterr().err == f"in its last run: {hot}\nin its last run: count: 2 tasks are right\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--option", "paralelism=5"], "did you mean 'parallelism'?"),
        (["--option", "parallelism"], "key=value is expected"),
    ],
)
def test_explain_reports_a_wrong_option_in_one_message(
    tmp_path: Path, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", _file(tmp_path, "one_job.py", ONE), *arguments]) == JOB_AT_FAULT
    assert message in capsys.readouterr().err
