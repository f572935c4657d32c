"""``clonos chaos conversations``: conversations with a model under kills, in slices, until there are as many kills as
were asked for. The slices ask in turn by ``ai.chat`` and by httpx."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from clonos_chaos.project.conversing.talk_slice import TalkRecord, TalkSlice, kills_of
from clonos_chaos.project.conversing.talking_job import ModelClient
from clonos_chaos.project.slices import SliceRun, run_slices

KILLS_A_SLICE: Final = 40
WRONG: Final = ("lost", "duplicated", "contradicted", "refunded_again", "rollbacks")


@dataclass(frozen=True, slots=True)
class Conversations(SliceRun):
    """Options of the command line. ``wanted``: kills. ``capacity``: open calls of a task."""

    capacity: int = 1


def run_conversations(wanted: Conversations) -> bool:
    """Goes on with a run. Returns whether all of its slices so far were good."""

    def perform(number: int, folder: Path, missing: int, on_kill: Callable[[TalkRecord], bool]) -> TalkRecord:
        kills = kills_of(number, min(KILLS_A_SLICE, missing))
        client = (ModelClient.AI, ModelClient.HTTPX)[number % 2]
        return TalkSlice(number, folder, kills, client, capacity=wanted.capacity).run(on_kill)

    texts = line_of, complaint_of, table_of
    return run_slices(TalkRecord, wanted, perform, texts)


def line_of(records: Iterable[TalkRecord]) -> str:
    """Formats the counts of all slices as one line."""
    records = list(records)
    names = ("made", "conversations", "requests", "refused", "paid", "logged", "repeated", "refunds", "missed")
    total = Counter({name: sum(getattr(each, name) for each in records) for name in (*names, *WRONG)})
    return (
        f"{total['made']:,} kills, {total['missed']} missed; {total['conversations']:,} conversations,"
        f" {total['requests']:,} requests, {total['refused']:,} refused, {total['paid']:,} paid, {total['logged']:,}"
        f" logged, {total['repeated']} repeated; {total['refunds']:,} refunds; {len(records)} slices,"
        f" {sum(not each.is_good for each in records)} bad; "
        + ", ".join(f"{total[name]} {name.replace('_', ' ')}" for name in WRONG)
    )


def complaint_of(record: TalkRecord) -> str:
    """Says what was wrong with a slice."""
    counts = ", ".join(f"{getattr(record, name)} {name.replace('_', ' ')}" for name in WRONG)
    examples = "; ".join(f"{what}: {', '.join(found)}" for what, found in record.examples.items())
    return record.failure or f"{record.repeated} calls repeated after {record.made} kills, {counts} ({examples})"


def table_of(records: Iterable[TalkRecord]) -> list[str]:
    """Lists the kills."""
    kills = Counter[str]()
    for record in records:
        kills.update(record.kills)
    return [f"{name}: {kills[name]}" for name in sorted(kills)]
