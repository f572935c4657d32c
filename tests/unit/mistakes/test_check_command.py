"""``clonos check``: findings with codes and places, in three formats, with settings, and without running the file."""

from __future__ import annotations

import importlib
import json
import linecache
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from clonos.cli import main

HELPERS = """import functools
import itertools
import sqlite3
import time

NUMBERS = itertools.count()


def stamped(record):
    return deep(record)


def deep(record):
    return record, time.strftime("%H:%M")


@functools.lru_cache
def looked_up(record):
    return sqlite3.connect("rates.db").execute("select 1").fetchone()
"""

JOB = """from dataclasses import dataclass
from pathlib import Path

import helpers
from clonos import Job, http, stdout, values


@dataclass
class Order:
    number: int


def made(record):
    return Order(record)


def tagged(record):
    tags = set(record)
    return ",".join(tags), sorted(tag for tag in tags)


class Counting:
    def __init__(self):
        self.seen = {}
        self.numbers = iter([1])

    def process(self, value, context):
        self.seen.setdefault(value, 1)
        context.emit(next(self.numbers))


def read(record):
    file = Path(record)
    return file.read_text(), file.stem


job = Job("shop")
stream = job.source(values([1]), name="numbers").map(made, name="made").rebalance()
stream = stream.map(helpers.stamped, name="stamped").map(helpers.looked_up, name="looked_up")
stream = stream.map(lambda record: next(helpers.NUMBERS), name="numbered").map(tagged, name="tagged")
stream = stream.process(Counting, name="counting").map(read, name="read")
stream = stream.map(lambda record: http.post("http://127.0.0.1:9", json=record), name="posted")
stream.key_by(lambda record: record / 2).count().sink(stdout())
"""

FOUND = [
    ("helpers.py", 14, "CLN101"),
    ("helpers.py", 19, "CLN403"),
    ("job.py", 1, "CLN801"),
    ("job.py", 14, "CLN807"),
    ("job.py", 19, "CLN601"),
    ("job.py", 28, "CLN504"),
    ("job.py", 29, "CLN505"),
    ("job.py", 34, "CLN301"),
    ("job.py", 40, "CLN505"),
    ("job.py", 42, "CLN802"),
    ("job.py", 43, "CLN803"),
]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    tmp_path.joinpath("helpers.py").write_text(HELPERS, "utf-8")
    tmp_path.joinpath("job.py").write_text(JOB, "utf-8")
    return tmp_path


class Ended(NamedTuple):
    """What a command has printed, and its exit code."""

    returncode: int
    stdout: str
    stderr: str


Check = Callable[..., Ended]
Found = Callable[..., list[tuple[str, int, str]]]


@pytest.fixture
def check(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Check:
    """Runs ``clonos check`` in a folder, whose modules are loaded anew each time."""

    def run(folder: Path, *arguments: str) -> Ended:
        monkeypatch.chdir(folder)
        with monkeypatch.context() as patch:
            patch.setattr(sys, "path", [*sys.path])
            for name in ("job", "helpers"):
                sys.modules.pop(name, None)
            linecache.checkcache()
            importlib.invalidate_caches()
            returncode = main(["check", *arguments])
        return Ended(returncode, *capsys.readouterr())

    return run


@pytest.fixture
def found(check: Check) -> Found:
    """Returns file, line and code of each finding."""

    def run(folder: Path, *arguments: str) -> list[tuple[str, int, str]]:
        printed = json.loads(check(folder, "--format", "json", *arguments).stdout)
        return [(each["file"], each["line"], each["code"]) for each in printed]

    return run


def test_findings_are_named_by_file_line_column_and_code_through_modules_and_caches(
    check: Check, found: Found, project: Path
) -> None:
    ended = check(project, "job.py")
    assert ended.returncode == 1
    lines = ended.stdout.splitlines()
    assert lines[0] == (
        "helpers.py:14:20: CLN101 deep(), which the step stamped runs, calls time.strftime: use clock.now() of clonos"
    )
    assert found(project, "job.py") == FOUND
    assert len(lines) == len(FOUND)
    assert "11 findings" in ended.stderr


def test_a_look_that_runs_no_line_finds_the_same_in_functions(found: Found, project: Path) -> None:
    raises = f"{JOB}\nraise SystemExit('the file ran')\n"
    project.joinpath("job.py").write_text(raises, "utf-8")
    needs_the_graph = {"CLN801", "CLN807"}
    assert found(project, "--static", "job.py") == [each for each in FOUND if each[2] not in needs_the_graph]


def test_several_files_are_looked_at_as_a_hook_gives_them(found: Found, project: Path) -> None:
    project.joinpath("other.py").write_text(JOB, "utf-8")
    one, both = found(project, "--static", "job.py"), found(project, "--static", "job.py", "other.py")
    assert both[: len(one)] == one
    assert {(line, code) for file, line, code in both if file == "other.py"} == {
        (line, code) for file, line, code in one if file == "job.py"
    }


def test_an_empty_code_leaves_no_finding_out(check: Check, found: Found, project: Path) -> None:
    assert found(project, "--ignore", "", "job.py") == FOUND
    assert found(project, "--ignore", ",", "job.py") == FOUND
    project.joinpath("pyproject.toml").write_text('[tool.clonos.check]\nignore = [""]\n', "utf-8")
    assert "names '', and no code begins so" in check(project, "job.py").stderr


def test_sarif_has_the_rules_and_a_place_for_each_result(check: Check, project: Path) -> None:
    (run,) = json.loads(check(project, "--format", "sarif", "job.py").stdout)["runs"]
    rules = {rule["id"] for rule in run["tool"]["driver"]["rules"]}
    places = [each["locations"][0]["physicalLocation"] for each in run["results"]]
    shown = [(place["artifactLocation"]["uri"], place["region"]["startLine"]) for place in places]
    assert shown == [(file, line) for file, line, _ in FOUND]
    assert {each["ruleId"] for each in run["results"]} <= rules


def test_codes_are_chosen_on_the_command_line_and_in_pyproject(found: Found, project: Path) -> None:
    of_files = [each for each in FOUND if each[2].startswith(("CLN3", "CLN5"))]
    assert found(project, "--select", "CLN3,CLN5", "job.py") == of_files
    assert found(project, "--select", "CLN3", "--select", "CLN5", "--ignore", "CLN505", "job.py") == [
        each for each in of_files if each[2] != "CLN505"
    ]
    settings = (
        '[tool.clonos.check]\nselect = ["CLN1", "CLN4", "CLN6"]\nper-file-ignores = { "helpers.py" = ["CLN4"] }\n'
    )
    project.joinpath("pyproject.toml").write_text(settings, "utf-8")
    assert [code for _, _, code in found(project, "job.py")] == ["CLN101", "CLN601"]


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ('selects = ["CLN1"]', "has 'selects', which [tool.clonos.check] does not know: select."),
        ('select = ["CLN0"]', "names 'CLN0', and no code begins so"),
        ('ignore = "CLN1"', "is a list of codes"),
        ("per-file-ignores = 3", "per-file-ignores of"),
    ],
)
def test_wrong_settings_are_one_sentence(check: Check, project: Path, settings: str, sentence: str) -> None:
    project.joinpath("pyproject.toml").write_text(f"[tool.clonos.check]\n{settings}\n", "utf-8")
    ended = check(project, "job.py")
    assert ended.returncode == 2
    assert sentence in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_comment_silences_its_codes_alone_and_needs_a_reason(found: Found, tmp_path: Path) -> None:
    text = """import os
import time

from clonos import Job, stdout, values


def one(record):
    return time.time(), os.getpid()  # clonos: ok CLN101 only printed


def without_reason(record):
    return time.time()  # clonos: ok CLN101


def everything(record):
    return time.time(), os.getpid()  # clonos: ok only printed


job = Job("quiet")
job.source(values([1])).map(one).map(without_reason).map(everything).sink(stdout())
"""
    tmp_path.joinpath("job.py").write_text(text, "utf-8")
    assert found(tmp_path, "job.py") == [("job.py", 8, "CLN303"), ("job.py", 12, "CLN101")]
    assert found(tmp_path, "--static", "job.py") == [("job.py", 8, "CLN303"), ("job.py", 12, "CLN101")]


def test_a_job_without_findings_ends_with_zero(check: Check, tmp_path: Path) -> None:
    text = "from clonos import Job, stdout, values\n\njob = Job('quiet')\njob.source(values([1])).sink(stdout())\n"
    tmp_path.joinpath("job.py").write_text(text, "utf-8")
    ended = check(tmp_path, "job.py")
    assert (ended.returncode, ended.stdout) == (0, "")
    assert check(tmp_path, "--static", "job.py").returncode == 0


@pytest.mark.parametrize("how", [(), ("--static",)], ids=["loaded", "static"])
def test_a_syntax_error_is_a_finding_at_its_place(
    check: Check, found: Found, tmp_path: Path, how: tuple[str, ...]
) -> None:
    tmp_path.joinpath("job.py").write_text("import helpers\n", "utf-8")
    tmp_path.joinpath("helpers.py").write_text("rates = {}\ndef priced(:\n", "utf-8")
    assert found(tmp_path, *how, "helpers.py") == [("helpers.py", 2, "CLN901")]
    ended = check(tmp_path, *how, "job.py")
    assert ended.stdout == "helpers.py:2:12: CLN901 the file is not Python: invalid syntax: correct it\n"
    assert (ended.returncode, "Traceback" in ended.stderr) == (1, False)
    assert check(tmp_path, *how, "--ignore", "CLN9", "job.py").returncode == 0


def test_steps_of_a_store_that_the_job_does_not_have_are_named(check: Check, tmp_path: Path) -> None:
    text = """from clonos import Job, stdout, values

job = Job("words", slots="thread")
job.source(values(["a", "b"])).key_by(str).count(name="counted").sink(stdout())
"""
    file = tmp_path / "job.py"
    file.write_text(text, "utf-8")
    run = [sys.executable, "-m", "clonos.cli", "run", "job.py", "--store", "store"]
    subprocess.run(run, cwd=tmp_path, check=True, capture_output=True)
    assert check(tmp_path, "job.py", "--store", "store").returncode == 0
    file.write_text(text.replace("counted", "counted_again"), "utf-8")
    ended = check(tmp_path, "job.py", "--store", "store")
    assert "CLN804 the store has state of the step counted, which the job does not have" in ended.stdout


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((), "name it, as in clonos check job.py"),
        (("--static", "missing.py"), "does not exist"),
        (("missing.py",), "does not exist"),
        (("--static", "--store", "store", "job.py"), "leave out --store"),
    ],
)
def test_a_wrong_command_line_is_one_sentence(
    check: Check, project: Path, arguments: tuple[str, ...], sentence: str
) -> None:
    ended = check(project, *arguments)
    assert ended.returncode == 2
    assert sentence in ended.stderr


def test_the_codes_are_listed(check: Check, tmp_path: Path) -> None:
    listed = check(tmp_path, "--codes").stdout.splitlines()
    assert "CLN101  a clock is read" in listed
    assert listed == sorted(listed)
