"""Every reader of bytes and every machine, fed with wrong inputs: it answers, or raises a declared exception."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz.engine import ROOT, feed, input_of, run, schedule_of, time_limits
from tests.fuzz.everything import FILES, all_targets
from tests.fuzz.known import KNOWN, is_known
from tests.fuzz.target import folder_of
from tests.stages import SHARES

pytestmark = pytest.mark.fuzz

CORPUS = Path(__file__).with_name("corpus")
FOUND = sorted(path for path in CORPUS.glob("*/*") if path.is_file())
DIGEST = "from tests.fuzz.test_fuzz import digest_of_inputs; print(digest_of_inputs())"


PORTION, INPUTS_MAX = 50, 400
"""Inputs of a target are fed in portions until one is valid."""

TARGETS = {folder_of(target.name): target for target in all_targets()}


def _run(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(map(str, (ROOT, *(ROOT / f for f in ("services", "standby", "chaos")))))
    }
    return subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )


@pytest.mark.keeps_sockets
@pytest.mark.parametrize("path", FOUND, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_inputs_that_once_crashed_a_reader_are_handled(path: Path) -> None:
    with time_limits():
        found = feed(TARGETS[path.parent.name], path.read_bytes())
    assert found is None or is_known(found.target, found.error, found.place), found


def test_every_input_of_the_corpus_has_a_target() -> None:
    assert len(FOUND) > 40
    assert {path.parent.name for path in FOUND} <= TARGETS.keys()


@pytest.mark.keeps_sockets
@pytest.mark.parametrize("name", TARGETS)
def test_a_target_accepts_valid_input(name: str) -> None:
    target = TARGETS[name]
    for seed in range(1, INPUTS_MAX, PORTION):
        tally = run([target], PORTION, seed)
        assert not tally.found, tally.found
        if tally.accepted[target.name]:
            return
    pytest.fail(f"none of {INPUTS_MAX} inputs is valid")


def digest_of_inputs() -> str:
    """Digest of the first inputs of every target."""
    digest = hashlib.blake2b(digest_size=8)
    schedule = schedule_of(all_targets(FILES))
    for seed in range(2 * len(schedule)):
        digest.update(input_of(schedule, seed)[1])
    return digest.hexdigest()


@pytest.mark.slow
def test_one_seed_generates_the_same_input_every_time() -> None:
    assert _run("-c", DIGEST).stdout == f"{digest_of_inputs()}\n"


@pytest.mark.slow
def test_the_fuzzer_finds_planted_bugs() -> None:
    reported = _run("-m", "tests.fuzz.planted").stdout.splitlines()
    assert reported[:-1] == [
        "claims MemoryError tests/fuzz/planted.py",
        "dies Crash signal 6",
        "hangs TooLong tests/fuzz/planted.py",
        "raises KeyError tests/fuzz/planted.py",
    ]
    inputs, unexpected = int(reported[-1].split()[0]), int(reported[-1].split()[2])
    assert 300 <= inputs < 304
    assert unexpected > 6


def test_every_known_finding_names_a_target() -> None:
    assert {folder_of(name) for name in KNOWN} <= TARGETS.keys()


@pytest.mark.slow
@pytest.mark.exhaustive
def test_generated_inputs_raise_only_documented_errors(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    inputs, first, minutes = (request.config.getoption(name) for name in ("--fuzz-inputs", "--first-seed", "--minutes"))
    limits = ["--inputs", str(inputs)]
    if minutes is not None:
        limits = ["--seconds", str(60 * minutes * SHARES["fuzz"]), "--processes", "1"]
    ended = _run("-m", "tests.fuzz", *limits, "--first-seed", str(first), "--keep", str(tmp_path))
    assert ended.returncode == 0, f"{ended.stdout}\n{ended.stderr}"
    verdict = ended.stdout.splitlines()[-1]
    assert verdict.endswith(" inputs, 0 unexpected exceptions")
    request.node.user_properties.append(("wrong inputs", (int(verdict.split()[0]), 0)))
