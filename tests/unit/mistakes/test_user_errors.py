"""Exceptions of user code: one sentence with step and record, the frames of user code, at most 12 lines."""

from __future__ import annotations

from pathlib import Path

import pytest

from clonos.core.coordinator.coordinator_effects import JobFailed
from clonos.core.model.errors import Blame
from clonos.job.results import error_of
from tests.harnesses.mistakes import LINES_MAX, check, run_file, run_script

pytestmark = pytest.mark.slow

HEAD = """
from dataclasses import dataclass

from clonos import Job, http, stdout, values

job = Job("etl")
numbers = job.source(values([5, 2, 0, 1]))


@dataclass
class Plain:
    number: int


def parse(record):
    return divided(record)


def divided(record):
    return 10 // record
"""

IN_A_STEP = f"{HEAD}\nnumbers.map(parse, name='parse').sink(stdout())\n"

DEEP = """
from clonos import Job, stdout, values

def down(depth):
    return down(depth - 1) if depth else {}["x" * 5_000]

def start(record):
    try:
        return down(50)
    except KeyError as error:
        raise ValueError("\\n".join(f"line {number}" for number in range(500))) from error

job = Job("etl")
job.source(values([list(range(5_000))])).map(start).sink(stdout())
"""


@pytest.mark.processes
def test_an_exception_in_a_step_is_one_sentence_with_the_frames_of_the_user(tmp_path: Path) -> None:
    printed = run_file(tmp_path, IN_A_STEP)
    check(
        printed,
        "job etl has failed: step parse, at the record 0, raised ZeroDivisionError: integer division",
        "line 16, in parse\n    return divided(record)",
        "line 20, in divided\n    return 10 // record",
        "Job(..., errors=sink)",
        "-v shows the whole traceback",
        code=1,
    )


@pytest.mark.processes
def test_a_verbose_run_shows_the_frames_of_the_library_too(tmp_path: Path) -> None:
    printed = run_file(tmp_path, IN_A_STEP, "-v")
    assert printed.code == 1
    assert "user_errors.py" in printed.errors
    assert "element: number 2 of what was read by task parse/0" in printed.errors


@pytest.mark.processes
def test_an_exception_ends_a_script_with_the_same_few_lines(tmp_path: Path) -> None:
    printed = run_script(tmp_path, f"{IN_A_STEP}\njob.run(slots='process')")
    check(printed, "clonos: job etl has failed: step parse, at the record 0, raised", "in divided", code=1)


@pytest.mark.processes
def test_a_long_record_a_deep_stack_and_a_long_chained_text_stay_short(tmp_path: Path) -> None:
    printed = run_file(tmp_path, DEEP)
    check(printed, "step map, at the record [0, 1, 2,", "raised ValueError: line 0\nline 1\nline 2 ...", code=1)
    assert max(map(len, printed.errors.splitlines())) < 400
    assert "KeyError" not in printed.errors


UNDECLARED = "numbers.map(lambda n: http.post('http://127.0.0.1:9').status  # clonos: ok CLN802 to be refused\n)"


@pytest.mark.processes
@pytest.mark.parametrize(
    ("steps", "sentences"),
    [
        (
            "numbers.map(lambda n: {'n': n}).key_by(lambda row: row).count()",
            ("key_by", "a dict, which cannot be a key"),
        ),
        (
            "numbers.map(float).key_by(lambda n: n).count()",
            ("step key_by", "a float, which cannot be a key", "round(x)"),
        ),
        (
            "numbers.map(lambda n: {'n': n}).key_by(lambda row: row['m']).count()",
            ("{'n': 5}", "KeyError: 'm'", "in <lam"),
        ),
        ("numbers.map(Plain).rebalance().map(str)", ("Plain, which cannot travel", "put @register")),
        (UNDECLARED, ("effects=True", "in <lambda>")),
    ],
    ids=["a dict as a key", "a float as a key", "a missing field", "an unregistered class", "an undeclared effect"],
)
def test_a_mistake_in_a_step_is_one_sentence(tmp_path: Path, steps: str, sentences: tuple[str, ...]) -> None:
    check(run_file(tmp_path, f"{HEAD}\n{steps}.sink(stdout())\n"), "has failed: step ", *sentences, code=1)


def test_a_file_that_raises_while_it_is_loaded_names_the_users_line(tmp_path: Path) -> None:
    printed = run_file(tmp_path, "import json\n\ndef load():\n    return json.loads('{')\n\nload()\n")
    check(printed, "raised json.decoder.JSONDecodeError", "line 4, in load\n    return json.loads", code=1)


def test_a_file_with_a_syntax_error_names_its_line(tmp_path: Path) -> None:
    check(run_file(tmp_path, "x = 1\ndef (\n"), "SyntaxError", "line 2", code=1)


def test_a_closure_over_a_lock_is_refused_before_the_start(tmp_path: Path) -> None:
    code = (
        f"{HEAD}\nimport threading\nlock = threading.Lock()\nnumbers.map(lambda n: lock, name='note').sink(stdout())\n"
    )
    check(run_file(tmp_path, code), "the step note: ", "lock", "open() of a process class", code=1)


def test_a_refused_step_names_the_users_line(tmp_path: Path) -> None:
    printed = run_file(tmp_path, f"{HEAD}\nnumbers.map(str, parallelism=0).sink(stdout())\n")
    check(printed, "the step map has the parallelism 0", "line 22, in <module>", code=1)


@pytest.mark.parametrize("option", ["paralelism=3", "parallelism='three'"])
def test_a_wrong_option_of_a_job_is_one_sentence(tmp_path: Path, option: str) -> None:
    printed = run_file(tmp_path, f"from clonos import Job\njob = Job('etl', {option})\n")
    check(printed, "parallelism", f"Job('etl', {option})", code=1)


def test_a_missing_input_is_one_sentence(tmp_path: Path) -> None:
    code = "from clonos import *\njob = Job('etl')\njob.source(files.lines('no/*.txt')).sink(stdout())\n"
    check(run_file(tmp_path, code), "no file matches 'no/*.txt'", "wildcards", code=1)
    check(run_file(tmp_path, code.replace("no/", "~/no/")), "Write os.path.expanduser('~/no/*.txt')", code=1)


def test_a_file_that_ends_the_program_while_it_is_loaded_is_one_sentence(tmp_path: Path) -> None:
    check(run_file(tmp_path, "exit()\n"), "raised SystemExit: None. A file is loaded for its Job", code=1)


def test_a_short_text_that_is_cut_still_names_the_folder_of_the_epoch() -> None:
    frames = "\n".join(f'  File "job.py", line {line}, in parse' for line in range(20))
    epoch = "The epoch of parse/0 is in e/17. To see it again:\n  clonos replay e/17"
    error = error_of("etl", JobFailed(Blame.JOB, "step parse raised E: no", frames=frames, epoch=epoch))
    shown = error._render_traceback_()
    assert shown[0] == "job etl has failed: step parse raised E: no"
    assert shown[-3:] == ["(12 more lines)", *epoch.splitlines()]
    assert len(shown) == LINES_MAX


def test_a_notebook_shows_the_short_text() -> None:
    frames = '  File "job.py", line 3, in parse\n    return 1 // 0'
    failed = JobFailed(Blame.JOB, "step map raised E: no", traceback="Traceback\n" * 30, frames=frames)
    shown = error_of("etl", failed)._render_traceback_()
    assert shown == ["job etl has failed: step map raised E: no", *frames.splitlines()]
    assert len(shown) <= LINES_MAX
