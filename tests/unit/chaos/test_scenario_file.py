"""Scenario files: what they say, what is refused, and which key the message names."""

from __future__ import annotations

import pytest

from clonos_chaos.scenario import Kind, Outcome, Pattern
from clonos_chaos.scenario_file import SHIPPED_FOLDER, ScenarioRefused, find_scenario, parse_scenarios, read_scenarios

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
    assert (fault.kind, fault.pattern, fault.lasts_ms, fault.at.records) == (Kind.PAUSE, Pattern.SIBLINGS, 2_000, 100)
    assert (scenario.limits.seconds, scenario.limits.recovery_ms) == (20.0, 3_000)
    assert scenario.expected.outcome is Outcome.ROLLBACK


def test_a_matrix_gives_one_run_for_each_combination() -> None:
    text = PLAIN.replace('victim = "window"\n', "").replace('lasts = "2s"\n', "")
    text += '[matrix]\nvictim = ["ask", "window"]\nlasts = ["500ms", "2s", "10s"]\n'
    runs = parse_scenarios(text, "matrix.toml")
    assert len({(run.faults[0].victim, run.faults[0].lasts_ms) for run in runs}) == 6
    assert runs[0].name == "plain victim=ask lasts=500ms"


@pytest.mark.parametrize(
    ("line", "instead", "message"),
    [
        ('kind = "pause"', 'kind = "pauze"', r"faults\[0\]\.kind is 'pauze'\. Did you mean 'pause'\?"),
        ('lasts = "2s"', 'last = "2s"', r"faults\[0\]\.last is no key of a scenario\. Did you mean 'lasts'\?"),
        ('lasts = "2s"', 'lasts = "long"', r"faults\[0\]\.lasts is 'long'\. A duration"),
        ('lasts = "2s"', 'jitter = "2s"', r"faults\[0\]\.jitter means nothing for pause\. It belongs to delay"),
        ("records = 100", "record = 100", r"faults\[0\]\.at\.record is no key .* 'records'"),
        ("{ records = 100 }", "{ records = 100, seconds = 1 }", r"faults\[0\]\.at says 2 moments\. Exactly one"),
        ("at = { records = 100 }", "", r"faults\[0\]\.at is missing\. When:"),
        ("seconds = 20", 'seconds = "20"', r"limits\.seconds is '20'\. A number"),
        ('job = "described"', "", r"job is missing"),
        ("[limits]", "[limit]", r"limit is no key of a scenario\. Did you mean 'limits'\?"),
        ('outcome = "rollback"', "lost = -1", r"expected\.lost is -1"),
        ("name =", "name", r"is no TOML"),
    ],
)
def test_a_mistake_is_named_by_its_key_with_the_nearest_right_one(line: str, instead: str, message: str) -> None:
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
