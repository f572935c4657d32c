"""Order of records: which sources must keep it, and which step of a job ends it (``docs/order.md``)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from clonos.api.step import Exchange, Step, StepInput
from clonos.operators.connector_contract import OrderedSource, in_order
from clonos.operators.job_image import OrderDescription

PerStep = Callable[[Step], int]


def ordered_sources(steps: Sequence[Step]) -> dict[int, Any]:
    """Returns the sources that are read in order, by number of their step, where the job decides that."""
    sources = [
        step
        for step in steps
        if step.source is not None and (has_event_time(step, steps) or depends_on_order(step, steps))
    ]
    found = {step.number: in_order(step.source) for step in sources}
    return {step.number: found[step.number] for step in sources if found[step.number] is not step.source}


def has_event_time(source: Step, steps: Sequence[Step]) -> bool:
    """Returns whether the records of a source get timestamps, there or in a step that follows.

    Each block of a file would have its own watermark, and blocks begin anywhere in the event time of the file.
    """
    reached = {source.number}
    for step in steps:  # each step comes after those that it reads
        if reached.intersection(each.step for each in step.inputs):
            reached.add(step.number)
    return any(step.number in reached and step.assigner is not None for step in steps)


def depends_on_order(step: Step, steps: Sequence[Step]) -> bool:
    """Returns whether a result of the job may depend on the order in which ``step`` emits its records.

    It does not where each record passes only through steps that handle it alone, to an aggregate that ignores order.
    """
    for reader in _readers(step, steps):
        if reader.ignores_order:
            continue
        if not reader.is_per_record or reader.has_effects or depends_on_order(reader, steps):
            return True
    return False


def describe_order(
    steps: Sequence[Step],
    ordered: Mapping[int, OrderedSource],
    splits: Mapping[str, Sequence[bytes]],
    parallelism_of: PerStep,
) -> OrderDescription:
    """Returns what users should know of the order of records. ``ordered`` is the result of ``ordered_sources``."""
    notes = [
        ordered[step.number].order_note(splits[step.name], parallelism_of(step))
        for step in steps
        if step.number in ordered
    ]
    return OrderDescription(tuple(filter(None, notes)), tuple(_all_ends(steps, parallelism_of)))


def _all_ends(steps: Sequence[Step], parallelism_of: PerStep) -> list[str]:
    sentences = []
    for step in steps:
        if step.source is not None:
            ends = list(dict.fromkeys(_ends(step, False, steps, parallelism_of)))
            promise = f"the order of {step.name}: each key sees the records of a split in their order"
            sentences.append(f"{promise}, up to {' and '.join(ends)}" if ends else f"{promise}, in all steps")
    return sentences


def _ends(step: Step, is_spread: bool, steps: Sequence[Step], parallelism_of: PerStep) -> Iterator[str]:
    """Yields the steps that end the order. ``is_spread``: several tasks of ``step`` have records of a split."""
    for reader in _readers(step, steps):
        count = parallelism_of(reader)
        for each in reader.inputs:
            if each.step != step.number:
                continue
            if reason := _reason(each, is_spread, parallelism_of(step), count):
                yield f"{reader.name} ({reason})"
            elif reader.breaks_order:
                yield f"{reader.name} ({reader.breaks_order})"
            else:
                is_spread_there = count > 1 and (is_spread or each.exchange is not Exchange.FORWARD)
                yield from _ends(reader, is_spread_there, steps, parallelism_of)


def _reason(step_input: StepInput, is_spread: bool, sources: int, targets: int) -> str:
    """Returns why an edge ends the order, "" if it does not."""
    match step_input.exchange:
        case Exchange.FORWARD if sources == targets:
            return ""
        case Exchange.HASH | Exchange.BROADCAST | Exchange.GLOBAL if not is_spread:
            return ""
        case Exchange.HASH:
            return "it is keyed again"
        case Exchange.FORWARD | Exchange.REBALANCE if targets == 1 and not is_spread:
            return ""
        case Exchange.FORWARD:
            return f"{sources} tasks before it, {targets} of its own"
        case exchange:
            return exchange.value


def _readers(step: Step, steps: Sequence[Step]) -> list[Step]:
    return [reader for reader in steps if any(each.step == step.number for each in reader.inputs)]
