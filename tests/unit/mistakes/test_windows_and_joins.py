"""Mistakes with windows, aggregates, joins and side outputs: one sentence says what to write."""

from __future__ import annotations

from typing import Any

import pytest

from clonos import Sliding, Timestamps, agg
from clonos.api.graph import JobGraph
from clonos.core.ports.operator_chain import StepFailed
from tests.harnesses.mistakes import check, describe
from tests.unit.operators.driver import Given, Outbox, run

STREAMS = """
job = Job('etl')
rows = job.source(values([{'a': 1, 'at': '2026-01-01T00:00:00Z'}]), timestamps='at')
keyed = rows.key_by('a')
windowed = keyed.window(Tumbling('1s'), late=Tag('late'))
rules = job.source(values([1]))
"""


@pytest.mark.parametrize(
    ("step", "sentences"),
    [
        ("windowed.aggregate(n=max)", ("gets n=max, a function of Python", "Use max_ of clonos.agg: n=max_('field')")),
        ("keyed.aggregate(n=min)", ("gets n=min", "Use min_ of clonos.agg: n=min_('field')")),
        ("rows.aggregate(total=sum)", ("gets total=sum", "Use sum_ of clonos.agg: total=sum_('field')")),
        ("rows.aggregate(n=len)", ("gets n=len", "Use count of clonos.agg: n=count()")),
        ("windowed.aggregate(agg.mean('a'))", ("gets mean('a') without a name", "as in aggregate(n=count()")),
        (
            "windowed.top_k(3)",
            ("a WindowedStream has no top_k. Use aggregate(top=top_k(3, by='field')) with clonos.agg",),
        ),
        ("windowed.quantile(0.5)", ("Use aggregate(quantile=quantile('field', 0.95)) with clonos.agg",)),
        ("windowed.first()", ("Use aggregate(first=first('field')) with clonos.agg",)),
        (
            "rules.broadcast().connect(keyed)",
            (
                "connects a broadcast stream with a keyed one",
                "The broadcast stream comes second: keyed.connect(rules.bro",
            ),
        ),
        ("rules.connect(keyed)", ("connects a stream without keys with a keyed one", "Call key_by on both")),
        (
            "windowed.count(name='hourly').side_output(Tag('latee'))",
            ("the step hourly has no side output 'latee'; it has 'late'",),
        ),
        (
            "keyed.window(Tumbling('1s')).count().side_output(Tag('late'))",
            ("has no side outputs", 'a window, join or merge with late=Tag("late")'),
        ),
        (
            "rows.join(rows, on='a', between=(0, 1), late=Tag('late'), name='pairs').side_output(Tag('late2'))",
            ("the step pairs has no side output 'late2'; it has 'late'",),
        ),
        *(
            (
                f"rows.union(rules){window}",
                ("the step window joins streams with timestamps in different places, or with and without them",),
            )
            for window in (".window(Tumbling('1s'))", ".key_by('a').window(Session('1s'))", ".window(Global())")
        ),
        ("keyed.union(rules.key_by('a')).window(Sliding('2s', '1s'))", ("Give each of them timestamps",)),
        (
            "rows.window(Sliding('1h', every='1ms'))",
            ("is only 1ms", "a multiple of every=, at most 10,000 times as long"),
        ),
        (
            "rows.join(rows, on='a', between=(0, 1), name='pairs').side_output(Tag('late'))",
            ("the step pairs has no side outputs", 'late=Tag("late")'),
        ),
        ("rows.join_as_of(rows, on='a').side_output(Tag('late'))", ("the step join_as_of has no side outputs",)),
        ("rows.merge_ordered(late=Tag('late')).side_output(Tag('x'))", ("has no side output 'x'; it has 'late'",)),
        (
            "rows.join(rows, on='a', between=(0, 1), late='late')",
            ("gets late='late'", 'Give it a tag: late=Tag("late")'),
        ),
        ("rows.join_as_of(rows, on='a', late='late')", ("gets late='late'",)),
        ("rows.merge_ordered(late='late')", ("gets late='late'",)),
        ("windowed.count(name='hourly').side_output('late')", ("the step hourly", "'late'", 'Give a tag: Tag("late")')),
    ],
)
def test_a_mistake_is_answered_by_what_to_write(step: str, sentences: tuple[str, ...]) -> None:
    check(describe(STREAMS + step), *sentences)


@pytest.mark.parametrize(
    "step",
    [
        "windowed.count().side_output(Tag('late'))",
        "rows.join(rows, on='a', between=(0, 1), late=Tag('late')).side_output(Tag('late'))",
        "rows.merge_ordered(late=Tag('late')).side_output(Tag('late'))",
        "keyed.aggregate(n=agg.max_('a'))",
        "rows.union(rules).window(Tumbling('1s', time='processing')).count()",
    ],
)
def test_code_that_follows_the_advice_is_accepted(step: str) -> None:
    assert describe(STREAMS + step, agg=agg) == ""


def test_the_second_length_of_sliding_windows_needs_no_name() -> None:
    assert Sliding("10min", "1min") == Sliding("10min", every="1min")


ROW = {"order": 1, "at": "2023-11-01T00:00:00Z"}


def joined(left: dict[str, Any], right: dict[str, Any], name: str | None) -> str:
    """Returns the step and the error of a join by the field "order"."""
    graph = JobGraph("etl")
    sides = [graph.source(Given([row]), timestamps=Timestamps("at")) for row in (left, right)]
    sides[0].join(sides[1], on="order", between=(0, 1), name=name).sink(Outbox())
    with pytest.raises(StepFailed) as raised:
        run(graph, parallelism=1)
    return f"{raised.value.at.step}: {raised.value.__cause__}"


def test_a_record_without_the_key_of_a_join_is_named_with_the_join_and_its_side() -> None:
    misspelt = {"oder": 1, "at": ROW["at"]}
    assert joined(misspelt, ROW, "shipped").startswith("shipped-left-key: the record has no field 'order'; it has oder")
    assert joined(ROW, misspelt, None).startswith("join-right-key: the record has no field 'order'; it has oder")


@pytest.mark.parametrize(("method", "option"), [("distinct", "key"), ("deduplicate", "by")])
def test_records_that_cannot_be_keys_are_not_compared_as_wholes(method: str, option: str) -> None:
    graph = JobGraph("job")
    getattr(graph.source(Given([{"id": 1}])), method)(name="once").sink(Outbox())
    sentence = f"{method} compares whole records, and a dict cannot be a key: give {option}=, such as"
    with pytest.raises(StepFailed) as raised:
        run(graph, 1)
    assert sentence in str(raised.value.__cause__)
