"""Metadata of a checkpoint as bytes, and the fingerprint of a plan."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from clonos.core.checkpoint.checkpoint_metadata import (
    METADATA_FORMAT,
    CheckpointMetadata,
    MetadataMalformed,
    PlanChanged,
    TaskEntry,
    check_resumable,
    decode_metadata,
    encode_metadata,
    metadata_of_start,
    plan_fingerprint,
)
from clonos.core.checkpoint.plan_shape import PlanShape, differences, shape_of
from clonos.core.model.ids import CheckpointId, Incarnation, TaskId
from clonos.core.model.plan import Partitioning, Plan, StatefulStep
from clonos.core.wire.decoding import FormatUnknown
from tests.harnesses.coordinator_harness import chain_plan

NAMES_ASTRAY = (
    "",
    "/etc/passwd",
    "..",
    "../job",
    "snapshots/../../x",
    "snapshots//x",
    "a/",
    ".hidden",
    "a\\b",
    "a\n",
    "a\0",
)


def _metadata() -> CheckpointMetadata:
    plan = chain_plan()
    entries = tuple(
        TaskEntry(TaskId(t), Incarnation(9), CheckpointId(3), ("a", "b"), 17, t == 0, ((CheckpointId(3), b"\x00x"),))
        for t in plan.tasks
    )
    return msgspec.structs.replace(
        metadata_of_start(plan, "job-1", 4),
        tasks=entries,
        checkpoint=CheckpointId(3),
        highest_checkpoint=CheckpointId(5),
        generation=2,
    )


def test_metadata_is_decoded_as_it_was_encoded() -> None:
    assert decode_metadata(encode_metadata(_metadata()), "e") == _metadata()


@pytest.mark.parametrize("length", [0, 1, 10, -1])
def test_truncated_metadata_is_refused_by_name(length: int) -> None:
    with pytest.raises(MetadataMalformed, match="chain/7"):
        decode_metadata(encode_metadata(_metadata())[:length], "chain/7")


@pytest.mark.parametrize("number", [METADATA_FORMAT - 1, METADATA_FORMAT + 1])
def test_another_format_is_refused_by_its_number_though_its_fields_are_unknown(number: int) -> None:
    other = msgspec.msgpack.encode({"format": number, "surprise": [1, 2]})
    with pytest.raises(FormatUnknown) as refused:
        decode_metadata(other, "chain/7")
    assert str(refused.value) == (
        f"the checkpoint metadata chain/7 has format {number}, and this version of clonos reads format"
        f" {METADATA_FORMAT}: use the version that wrote it."
    )


def test_tasks_in_another_order_are_refused() -> None:
    metadata = _metadata()
    mixed = msgspec.structs.replace(metadata, tasks=metadata.tasks[::-1])
    with pytest.raises(MetadataMalformed, match="not numbered"):
        decode_metadata(encode_metadata(mixed), "chain/7")


@pytest.mark.parametrize("name", NAMES_ASTRAY)
def test_an_object_name_outside_the_store_is_refused(name: str) -> None:
    metadata = _metadata()
    first = msgspec.structs.replace(metadata.tasks[0], objects=("snapshots/0/000000000003-1-full", name))
    astray = msgspec.structs.replace(metadata, tasks=(first, *metadata.tasks[1:]))
    with pytest.raises(MetadataMalformed, match="chain/7"):
        decode_metadata(encode_metadata(astray), "chain/7")


@pytest.mark.parametrize("field", ["term", "generation", "checkpoint", "highest_checkpoint"])
@pytest.mark.parametrize("number", [-1, 1 << 62, (1 << 64) - 1])
def test_a_number_from_which_no_job_can_resume_is_refused(field: str, number: int) -> None:
    with pytest.raises(MetadataMalformed, match="chain/7"):
        decode_metadata(encode_metadata(msgspec.structs.replace(_metadata(), **{field: number})), "chain/7")


def test_the_fingerprint_is_the_same_in_every_process() -> None:
    assert plan_fingerprint(chain_plan()) == "b8e9d41249643fe1365042aa3b1c73b2"


def test_the_fingerprint_changes_with_everything_that_state_depends_on() -> None:
    plan = chain_plan()
    others = [
        chain_plan(3),
        chain_plan(2, has_effects=True),
        replace(plan, max_parallelism=64),
        replace(plan, edges=plan.edges[::-1]),
        replace(plan, vertices=(replace(plan.vertices[0], name="lines"), *plan.vertices[1:])),
        replace(plan, vertices=(replace(plan.vertices[0], steps=(StatefulStep("n", "count"),)), *plan.vertices[1:])),
        replace(plan, vertices=(replace(plan.vertices[0], steps=(StatefulStep("n", "reduce"),)), *plan.vertices[1:])),
    ]
    found = {plan_fingerprint(other) for other in (plan, *others)}
    assert len(found) == len(others) + 1
    assert plan_fingerprint(replace(plan, sharing_depth=1, job_name="renamed")) == plan_fingerprint(plan)


def test_a_resume_from_a_checkpoint_of_another_plan_is_refused() -> None:
    check_resumable(chain_plan(), _metadata())
    with pytest.raises(PlanChanged, match="Resume with the job as it was, or start afresh with --overwrite"):
        check_resumable(chain_plan(3), _metadata())


def _refused(changed: Plan, plan: Plan | None = None) -> tuple[str, ...]:
    stored = metadata_of_start(plan or chain_plan(), "job-1", 4)
    with pytest.raises(PlanChanged) as raised:
        check_resumable(changed, stored)
    return raised.value.differences


def test_each_difference_is_named_in_words() -> None:
    plan = chain_plan()
    first, *others = plan.vertices
    total = StatefulStep("total", "count", (("key", "the field 'word'"),))

    def having(**changes: Any) -> Plan:
        return replace(plan, vertices=(replace(first, **changes), *others))

    assert _refused(replace(plan, max_parallelism=64)) == ("max_parallelism was 128, is 64",)
    name = first.name
    assert _refused(having(name="lines")) == (f'the task "{name}" is gone', 'the task "lines" is new')
    assert _refused(having(has_effects=True)) == (f'"{name}" has effects outside the job, and had none',)
    assert _refused(having(is_source=False)) == (f'"{name}" had a source, and has none',)
    assert _refused(having(steps=(replace(total, kind="reduce"),)), having(steps=(total,))) == (
        'the step "total" was count, is reduce',
    )
    assert _refused(plan, having(steps=(total,))) == ('the step "total" is gone, was count',)
    by_letter = replace(total, properties=(("key", "the field 'letter'"),))
    assert _refused(having(steps=(by_letter,)), having(steps=(total,))) == (
        """the key of the step "total" was the field 'word', is the field 'letter'""",
    )
    assert _refused(replace(plan, edges=plan.edges[::-1])) == ("the steps are in another order",)
    rebalanced = replace(plan.edges[0], partitioning=Partitioning.BROADCAST)
    gone, new = _refused(replace(plan, edges=(rebalanced, *plan.edges[1:])))
    target = plan.vertices[1].name
    assert gone == f'the exchange from "{name}" to "{target}" ({plan.edges[0].partitioning}) is gone'
    assert new == f'the exchange from "{name}" to "{target}" (broadcast) is new'


@pytest.mark.parametrize(
    ("before", "now", "words"),
    [
        (("read-row", "count"), ("read", "row", "count"), 'the steps of the task "read-row" run in "read" and "row"'),
        (("read", "row", "count"), ("read-row", "count"), 'the steps of the task "read-row" ran in "read" and "row"'),
        (("a-b", "c"), ("a", "b-c"), 'the steps of the task "a-b" run in "a" and "b-c"'),
        (("read-row",), ("read", "rows"), 'the task "read-row" is gone'),
    ],
)
def test_a_task_whose_steps_run_in_several_tasks_now_is_named_with_them(
    before: tuple[str, ...], now: tuple[str, ...], words: str
) -> None:
    shape = shape_of(chain_plan())
    first = shape.vertices[0]

    def having(names: tuple[str, ...]) -> PlanShape:
        return msgspec.structs.replace(
            shape, vertices=tuple(msgspec.structs.replace(first, name=name) for name in names)
        )

    found = differences(having(before), having(now))
    assert found[0] == words
    is_regrouped = words.startswith("the steps")
    assert ("start a job from it (--from-savepoint)" in str(PlanChanged("job", 3, found))) == is_regrouped


def test_one_of_two_exchanges_between_the_same_tasks_is_a_difference() -> None:
    plan = chain_plan()
    both = replace(plan, edges=(*plan.edges, replace(plan.edges[0], port=1)))
    name, target = plan.vertices[0].name, plan.vertices[1].name
    exchange = f'the exchange from "{name}" to "{target}" ({plan.edges[0].partitioning})'
    assert _refused(both) == (f"{exchange} is new",)
    assert _refused(plan, both) == (f"{exchange} is gone",)


def test_a_new_step_with_state_in_tasks_that_existed_is_taken() -> None:
    plan = chain_plan()
    first, *others = plan.vertices
    changed = replace(plan, vertices=(replace(first, steps=(StatefulStep("total", "count"),)), *others))
    check_resumable(changed, metadata_of_start(plan, "job-1", 4))


def test_many_differences_are_cut_short() -> None:
    text = str(PlanChanged("etl", 3, tuple(f"difference {number}" for number in range(20))))
    assert "difference 7; and 12 more. Resume with" in text


def test_a_resume_is_refused_when_only_the_shape_or_only_the_number_of_tasks_differs() -> None:
    stored = metadata_of_start(chain_plan(), "job-1", 4)
    renamed = replace(chain_plan(), vertices=(replace(chain_plan().vertices[0], name="b"), *chain_plan().vertices[1:]))
    for plan, metadata in (
        (renamed, stored),
        (chain_plan(), msgspec.structs.replace(stored, tasks=stored.tasks[:-1])),
    ):
        with pytest.raises(PlanChanged):
            check_resumable(plan, metadata)
