"""Scenario files: their meaning, what is refused, and which key the message names."""

from __future__ import annotations

from pathlib import Path

import pytest

from clonos_chaos.scenario.scenario import FaultKind, Pattern, ScenarioOutcome
from clonos_chaos.scenario.scenario_file import (
    SHIPPED_FOLDER,
    ScenarioRefused,
    find_scenario,
    parse_scenarios,
    read_scenarios,
)

PLAIN = """
name = "plain"
job = "described"
[[faults]]
kind = "pause"
victim = "window"
pattern = "siblings"
lasts = "2s"
at = { records = 100 }
[limits]
seconds = 20
recovery = "3s"
[expected]
outcome = "rollback"
"""


def test_a_scenario_is_read_with_its_types() -> None:
    (scenario,) = parse_scenarios(PLAIN, "plain.toml")
    (fault,) = scenario.faults
    assert (fault.kind, fault.pattern, fault.lasts_ms, fault.at.records) == (
        FaultKind.PAUSE,
        Pattern.SIBLINGS,
        2_000,
        100,
    )
    assert not scenario.needs_fault_points
    assert (scenario.limits.seconds, scenario.limits.recovery_ms) == (20.0, 3_000)
    assert scenario.expected.outcome is ScenarioOutcome.ROLLBACK


def test_a_clock_may_be_set_back_but_no_other_duration_is_negative() -> None:
    text = PLAIN.replace('kind = "pause"\nvictim = "window"\npattern = "siblings"', 'kind = "clock_step"\nstep = "-7h"')
    (scenario,) = parse_scenarios(text, "back.toml")
    assert scenario.faults[0].step_ms == -7 * 3_600_000
    with pytest.raises(ScenarioRefused, match=r"lasts is '-2s'. A duration"):
        parse_scenarios(text.replace('"2s"', '"-2s"'), "back.toml")


def test_a_matrix_expands_to_one_run_per_combination() -> None:
    text = PLAIN.replace('victim = "window"\n', "").replace('lasts = "2s"\n', "")
    text += '[matrix]\nvictim = ["ask", "window"]\nlasts = ["500ms", "2s", "10s"]\n'
    runs = parse_scenarios(text, "matrix.toml")
    assert len({(run.faults[0].victim, run.faults[0].lasts_ms) for run in runs}) == 6
    assert runs[0].name == "plain victim=ask lasts=500ms"


def test_a_bundle_of_keys_is_one_matrix_value_with_its_name() -> None:
    text = PLAIN.replace('kind = "pause"\n', "").replace('lasts = "2s"\n', "")
    text += '[matrix]\nfault = [{ name = "long", kind = "pause", lasts = "2s" }, { kind = "kill_worker" }]\n'
    long, kill = parse_scenarios(text, "bundles.toml")
    assert (long.name, long.faults[0].kind, long.faults[0].lasts_ms) == ("plain fault=long", FaultKind.PAUSE, 2_000)
    assert (kill.name, kill.faults[0].kind) == ("plain fault=kind:kill_worker", FaultKind.KILL_WORKER)


def test_a_file_may_have_several_matrices_with_their_own_faults_and_outcome() -> None:
    text = PLAIN.replace('victim = "window"\n', "").replace('outcome = "rollback"', "lost = 3")
    text += """
[[matrix]]
victim = ["ask", "merge"]
[[matrix]]
victim = ["table"]
expected = { outcome = "rollback" }
before = [{ kind = "kill_worker", victim = "read", at = { seconds = 1 } }]
"""
    *first, last = parse_scenarios(text, "matrices.toml")
    assert [[fault.victim for fault in run.faults] for run in first] == [["ask"], ["merge"]]
    assert [fault.victim for fault in last.faults] == ["read", "table"]
    assert (last.expected.outcome, last.expected.lost) == (ScenarioOutcome.ROLLBACK, 3)
    assert first[0].expected.outcome is ScenarioOutcome.EXACTLY_ONCE


@pytest.mark.parametrize(
    ("name", "cases", "kinds"), [("matrix-faults", 60, 11), ("matrix-points", 45, 1), ("matrix-patterns", 11, 1)]
)
def test_the_shipped_matrices_have_the_documented_number_of_cases(name: str, cases: int, kinds: int) -> None:
    runs = read_scenarios(find_scenario(name))
    assert len({run.name for run in runs}) == cases
    assert (
        len({run.faults[-1].kind for run in runs}) == kinds
    )  # a pause below the lease and one beyond it are of one kind


@pytest.mark.parametrize(
    ("line", "instead", "message"),
    [
        ('kind = "pause"', 'kind = "pauze"', r"faults\[0\]\.kind is 'pauze'\. Did you mean 'pause'\?"),
        ('lasts = "2s"', 'last = "2s"', r"faults\[0\]\.last is not a key of a scenario\. Did you mean 'lasts'\?"),
        ('lasts = "2s"', 'lasts = "long"', r"faults\[0\]\.lasts is 'long'\. A duration"),
        ('lasts = "2s"', 'jitter = "2s"', r"faults\[0\]\.jitter does not apply to pause\. It belongs to delay"),
        ("records = 100", "record = 100", r"faults\[0\]\.at\.record is not a key .* 'records'"),
        ("{ records = 100 }", "{ records = 100, seconds = 1 }", r"faults\[0\]\.at has 2 triggers\. Exactly one"),
        ("at = { records = 100 }", "", r"faults\[0\]\.at is missing\. It is"),
        ("seconds = 20", 'seconds = "20"', r"limits\.seconds is '20'\. A number"),
        ('job = "described"', "", r"job is missing"),
        ("[limits]", "[limit]", r"limit is not a key of a scenario\. Did you mean 'limits'\?"),
        ('outcome = "rollback"', "lost = -1", r"expected\.lost is -1"),
        ("name =", "name", r"is not TOML"),
        ("name =", "name = " + "[" * 5_000, r"is not TOML"),
        ("[limits]", "[matrix]\nat = ['soon']\n[limits]", r"matrix\.at is 'soon'\. A table"),
    ],
)
def test_a_wrong_key_is_reported_with_the_nearest_valid_key(line: str, instead: str, message: str) -> None:
    with pytest.raises(ScenarioRefused, match=message):
        parse_scenarios(PLAIN.replace(line, instead, 1), "wrong.toml")


def test_every_shipped_scenario_can_be_read_by_its_name() -> None:
    names = sorted(path.stem for path in SHIPPED_FOLDER.glob("*.toml"))
    assert names
    for name in names:
        assert all(run.name.split(" ")[0] == name and run.about for run in read_scenarios(find_scenario(name)))


def test_an_unknown_scenario_is_refused_with_the_nearest_shipped_one() -> None:
    with pytest.raises(ScenarioRefused, match="kill-each-step"):
        find_scenario("kill-each-stepp")


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("at = { records = 100 }", "at = { seconds = inf }", r"at\.seconds is inf"),
        ("at = { records = 100 }", 'at = { point = "called", nth = 0 }', r"at\.nth is 0. A whole number, not below 1"),
        ("at = { records = 100 }", "at = { records = 100, nth = 2 }", r"at\.nth is given without a point"),
        ('"siblings"', '"in_a_row"\ncount = 0', r"count is 0. A whole number, not below 1"),
        ('"siblings"', '"siblings"\ncount = 3', r"count does not apply to siblings"),
        ('"siblings"', '"driver"', r"pattern does not apply to pause. It belongs to disk_failing, .*file_table_full"),
        ("[limits]", "[options]\nstandbies = 2\n[limits]", r"options cannot be: .*did you mean 'standbys'"),
    ],
)
def test_a_fault_that_would_have_no_effect_is_refused(old: str, new: str, complaint: str) -> None:
    assert parse_scenarios(PLAIN, "plain.toml")
    with pytest.raises(ScenarioRefused, match=complaint):
        parse_scenarios(PLAIN.replace(old, new), "plain.toml")


def test_a_file_that_is_not_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(ScenarioRefused, match="is not UTF-8"):
        read_scenarios(tmp_path / "binary.toml")
