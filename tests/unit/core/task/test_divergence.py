"""A replay that asks for something else than the log has is stopped at once, and says what was asked (protocol 2)."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any

import pytest

from clonos.core.log import determinants as d
from clonos.core.log.asked import asked_of, code_of_service, described, request_digest
from clonos.core.model.errors import ReplayDiverged, lasts
from clonos.core.model.ids import TaskId
from clonos.core.model.options import OnDivergence, Options
from clonos.core.model.plan import Edge, Partitioning, Plan, Vertex
from clonos.core.model.suspect import Suspect, ranked
from clonos.core.ports.operator_chain import FailedAt, StepFailed
from clonos.core.task.divergence import OTHER_ARGUMENTS, OTHER_ERROR, OTHER_WAY
from tests.harnesses.recording_chain import RecordingChain, Use, ask_aside, clock, exact_clock, pay, rng
from tests.harnesses.task_harness import END, Job, ScriptedTask, Start, rows

LINE = Plan(
    "line",
    (Vertex("source", 1, is_source=True), Vertex("work", 1, has_effects=True), Vertex("next", 1)),
    (Edge(0, 1, Partitioning.FORWARD, 0), Edge(1, 2, Partitioning.FORWARD, 0)),
)
AT = 5
"""Row from which on the replay differs."""


def ask(service: str, chain: RecordingChain, row: Any) -> object:
    return chain.recorder.call(service, str(row).encode(), lambda key: f"{service} {row}")


def ask_of_service(service: str) -> Use:
    return partial(ask, service)


def route(text: str, chain: RecordingChain, row: Any) -> object:
    return chain.context.collector.routed_error(f"{text} {row}".encode())


def log_of(use: Use) -> bytes:
    return ScriptedTask(job(use), 2).run().log


def job(use: Use) -> Job:
    def external_call(row: Any, key: str) -> object:
        return row

    return Job(LINE, TaskId(1), lambda _: RecordingChain((use,), external_call), {0: [*rows(*range(10)), *END]})


def from_row(first: Use, then: Use) -> Use:
    return lambda chain, row: first(chain, row) if row < AT else then(chain, row)


def shifted(use: Use) -> Use:
    """As a use of the rows after."""
    return lambda chain, row: use(chain, row + 1)


RATE = ask_of_service("rate")


@pytest.mark.parametrize(
    ("before", "now", "logged", "asked", "cause"),
    [
        pytest.param(
            *(RATE, shifted(RATE), "a call of rate", "a call of rate, with other arguments", OTHER_ARGUMENTS),
            id="other arguments",
        ),
        pytest.param(
            *(RATE, ask_of_service("stock"), "a call of rate", "a call of stock", OTHER_WAY), id="another service"
        ),
        pytest.param(RATE, clock, "a call of rate", "the time", OTHER_WAY, id="the time"),
        pytest.param(RATE, rng, "a call of rate", "random numbers", OTHER_WAY, id="random numbers"),
        pytest.param(exact_clock, RATE, "the time", "a call of rate", OTHER_WAY, id="a call for the time"),
        pytest.param(RATE, lambda chain, row: None, "a call of rate", "a new step", OTHER_WAY, id="no call"),
        pytest.param(
            *(
                pay,
                shifted(pay),
                "a call of ask, with an effect",
                "a call of ask, with an effect, with other arguments",
            ),
            OTHER_ARGUMENTS,
            id="an effect with other arguments",
        ),
        pytest.param(
            *(partial(route, "bad"), partial(route, "worse"), "an error for the error output (bad 5)"),
            *("an error for the error output (worse 5)", OTHER_ERROR),
            id="another error",
        ),
    ],
)
def test_a_replay_that_asks_for_something_else_is_stopped_there(
    before: Use, now: Use, logged: str, asked: str, cause: str
) -> None:
    life = ScriptedTask(job(from_row(before, now)), 3, Start(log_of(before)))
    with pytest.raises(ReplayDiverged) as raised:
        life.run()
    assert (raised.value.logged, raised.value.asked) == (logged, asked)
    assert raised.value.cause.startswith(f"{cause}. clonos check finds no such line in the functions of this task")
    assert lasts(raised.value), "another try would differ too"
    assert not life.performed, "nothing outside was asked"


def test_an_asynchronous_call_with_other_arguments_does_not_take_the_logged_outcome() -> None:
    def ask_other(chain: RecordingChain, row: Any) -> object:
        return ask_aside(chain, row + 1)

    log = log_of(ask_aside)
    with pytest.raises(ReplayDiverged, match="a call of ask aside, with other arguments"):
        ScriptedTask(job(from_row(ask_aside, ask_other)), 3, Start(log)).run()


def test_user_code_that_catches_the_error_does_not_go_on() -> None:
    def shielded(chain: RecordingChain, row: Any) -> object:
        try:
            return RATE(chain, row + 1)
        except Exception:  # noqa: BLE001  as user code does
            return "unknown"

    life = ScriptedTask(job(from_row(RATE, shielded)), 3, Start(log_of(RATE)))
    with pytest.raises(ReplayDiverged, match="a call of rate, with other arguments"):
        life.run()


def accepting(before: Use, now: Use) -> ScriptedTask:
    """A task of a job that accepts divergences, before the replay of what ``before`` has logged."""
    wanted = Options(on_divergence=OnDivergence.ACCEPT)
    return ScriptedTask(replace(job(from_row(before, now)), options=wanted), 3, Start(log_of(before)))


@pytest.mark.parametrize(
    ("before", "now"),
    [
        pytest.param(RATE, shifted(RATE), id="other arguments"),
        pytest.param(ask_aside, shifted(ask_aside), id="an asynchronous call with other arguments"),
        pytest.param(partial(route, "bad"), partial(route, "worse"), id="another error"),
    ],
)
def test_a_job_that_accepts_divergences_takes_the_logged_outcome_and_reports_the_first_difference(
    before: Use, now: Use
) -> None:
    life = accepting(before, now).run()
    assert not life.performed, "nothing outside was asked"
    assert life.accepted.startswith("task work/0 does not repeat itself at byte ")
    assert "\n" not in life.accepted
    assert accepting(before, before).run().accepted == ""


@pytest.mark.parametrize(
    ("before", "now"),
    [
        pytest.param(RATE, ask_of_service("stock"), id="another service"),
        pytest.param(RATE, clock, id="the time"),
        pytest.param(RATE, lambda chain, row: None, id="no call"),
        pytest.param(pay, shifted(pay), id="an effect with other arguments"),
    ],
)
def test_no_job_accepts_an_outcome_of_another_kind_or_a_call_with_an_effect(before: Use, now: Use) -> None:
    life = accepting(before, now)
    with pytest.raises(ReplayDiverged):
        life.run()
    assert not life.performed


TIME = Suspect("CLN101", "prices.py:28", "calls time.time", "use clock.time() of clonos")
RANDOM = Suspect("CLN201", "prices.py:27", "calls random.random", "use random of clonos", is_silenced=True)


def diverged_with(suspected: tuple[Suspect, ...], use: Use = RATE) -> ReplayDiverged:
    def new_chain(_: Random) -> RecordingChain:
        chain = RecordingChain((from_row(use, shifted(use)),))
        chain.suspected = suspected
        return chain

    life = ScriptedTask(replace(job(use), new_chain=new_chain), 3, Start(log_of(use)))
    with pytest.raises(ReplayDiverged) as raised:
        life.run()
    return raised.value


def test_a_divergence_names_what_clonos_check_finds_in_the_step() -> None:
    error = diverged_with((TIME, RANDOM))
    assert (
        "\nLikely cause: prices.py:28 calls time.time (use clock.time() of clonos)."
        "\nAlso possible: prices.py:27 calls random.random (use random of clonos), although a comment # clonos: ok"
        " silences it.\n"
    ) in str(error)
    assert str(pickle.loads(pickle.dumps(error))) == str(error)  # noqa: S301


def test_a_divergence_counts_the_suspects_that_it_does_not_name() -> None:
    many = tuple(Suspect("CLN101", f"prices.py:{line}", "calls time.time", "advice") for line in range(1, 6))
    cause = diverged_with(many).cause
    assert "prices.py:3" in cause
    assert "prices.py:4" not in cause
    assert cause.endswith("; and 2 more, see clonos check")


def test_suspects_are_ranked_by_the_kind_of_their_cause_and_those_silenced_come_last() -> None:
    codes = ["CLN701", "CLN602", "CLN601", "CLN302", "CLN401", "CLN504", "CLN203", "CLN103", "CLN802", "CLN805"]
    found = [Suspect(code, "", code, "") for code in codes]
    assert [each.code for each in ranked([TIME._replace(is_silenced=True), *found])] == [
        *("CLN103", "CLN203", "CLN504", "CLN401", "CLN302", "CLN601", "CLN602", "CLN701"),
        "CLN101",
    ]


def test_a_divergence_takes_the_place_of_what_user_code_raises_at_it() -> None:
    def wrapped(chain: RecordingChain, row: Any) -> object:
        try:
            return RATE(chain, row + 1)
        except Exception as error:  # noqa: BLE001  as user code does
            raise StepFailed(FailedAt("priced", 0, "")) from KeyError(str(error))

    life = ScriptedTask(job(from_row(RATE, wrapped)), 3, Start(log_of(RATE)))
    with pytest.raises(StepFailed) as raised:
        life.run()
    assert isinstance(raised.value.__cause__, ReplayDiverged)
    assert "in the step priced and the steps before it" in str(raised.value.__cause__)


@pytest.mark.parametrize("use", [RATE, clock, rng, pay, ask_aside, partial(route, "bad")])
def test_a_replay_that_asks_for_the_same_does_not_diverge(use: Callable[..., Any]) -> None:
    log = log_of(use)
    assert ScriptedTask(job(use), 3, Start(log)).run().whole_log == log


def test_a_service_is_named_only_where_the_process_knows_it() -> None:
    digest = request_digest("never heard of", b"")
    unknown = int.from_bytes(b"\x00\x00" + digest[:4], "big")
    assert described(unknown) == "a service that this process has not used yet"
    assert described(asked_of("heard of", digest)) == "heard of"
    assert code_of_service("heard of") == code_of_service("heard of") != code_of_service("rate")
    reader = d.LogReader(d.call(asked_of("heard of", digest), b"x"))
    assert described(reader.next()[2]) == "heard of"
