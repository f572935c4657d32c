"""``clonos state``: what a checkpoint or a savepoint has of the state of each step; two of them compared.

Keys and values are JSON, and the code of the job is not needed. One task is in memory at a time.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from clonos.core.model.errors import EnvironmentFault, JobError

if TYPE_CHECKING:
    from clonos.core.checkpoint.checkpoint_metadata import CheckpointMetadata
    from clonos.spark.frames.state_rows import StateRow

LIMIT: Final = 50
CHARACTERS_MAX: Final = 120
"""Characters of a value in a table; JSON has all of them."""

READS_MAX: Final = 10
"""Checkpoints that are read until one has stayed as long as that took. A running job removes the oldest ones."""


RESTORING_SHARE: Final = 0.1
"""Share of the time of reading a task's state, about, in which nothing is decoded yet."""


class StateUnknown(JobError):
    """A place has no such checkpoint, step or state."""

    place: str
    problem: str
    known: str

    def __str__(self) -> str:
        return f"{self.place} {self.problem}. It has {self.known}."


class CheckpointRemoved(EnvironmentFault):
    """The job has removed a checkpoint whose state is read. ``is_chosen``: the user has named it."""

    place: str
    checkpoint: int
    is_chosen: bool

    def __str__(self) -> str:
        if self.is_chosen:
            advice = "Read the last one, without --checkpoint, or raise checkpoints_retained of the job."
        else:
            advice = f"So were {READS_MAX - 1} before it: take a savepoint, which stays, and read that."
        return (
            f"checkpoint {self.checkpoint} of {self.place} was removed by its job before all of it was read. {advice}"
        )


class StateLost(EnvironmentFault):
    """An object of the last checkpoint is missing, which no job has removed."""

    place: str
    checkpoint: int
    name: str

    def __str__(self) -> str:
        return (
            f"the object {self.name} of checkpoint {self.checkpoint}, the last one, is missing from {self.place}."
            " Restore it from a backup, or read an earlier checkpoint or a savepoint."
        )


class StateLocation:
    """Checkpoint of a store, or savepoint."""

    def __init__(self, url: str, checkpoint: int | None) -> None:
        """Finds it. Raises: StateUnknown, NothingToResume, SavepointCorrupt, StoreFailed."""
        from clonos.core.checkpoint.checkpoint_metadata import decode_metadata
        from clonos.io.store.savepoint import SavepointReader, is_savepoint
        from clonos.io.store.store import CheckpointStore

        url = store_of(url)
        self.url, self._is_chosen = url, checkpoint is not None
        self.metadata: CheckpointMetadata
        self._read: Callable[[str], Iterable[bytes | memoryview]]
        if is_savepoint(url):
            reader = SavepointReader(url)
            self.metadata, self._read = reader.metadata(), reader.read_object
            if checkpoint not in (None, self.metadata.checkpoint):
                raise StateUnknown(
                    url,
                    f"is a savepoint, which has no checkpoint {checkpoint}",
                    f"checkpoint {self.metadata.checkpoint}",
                )
            return
        store = CheckpointStore(url)
        if store.read_job() is None:
            raise StateUnknown(url, "has no state to show", "neither a savepoint nor the checkpoint store of a job")
        store.find_job()
        known = store.checkpoints()
        if not known or checkpoint not in (None, *known):
            numbers = ", ".join(map(str, known)) or "none: the job has completed no checkpoint yet"
            raise StateUnknown(url, f"has no checkpoint {checkpoint or ''}".rstrip(), f"the checkpoints {numbers}")
        found = store.checkpoint_metadata(checkpoint)
        self.metadata, self._read = decode_metadata(found, f"the chain of {store.url}"), store.read_object

    def steps(self, wanted: str | None) -> list[str]:
        """Returns the names of the steps with state, or the wanted one. Raises: StateUnknown."""
        from clonos.spark.frames.state_rows import steps_with_state

        names = steps_with_state(self.metadata)
        if wanted is not None and wanted not in names:
            known = f"the steps {', '.join(names)}" if names else "no steps with state"
            raise StateUnknown(self.url, f"has no state of a step {wanted!r}", known)
        return names if wanted is None else [wanted]

    def rows(self, step: str) -> Iterator[StateRow]:
        """Yields the state of a step, task by task, and shows how far it is.

        Raises: CheckpointRemoved, StateLost and other faults of the store.
        """
        from clonos.io.store.object_files import ObjectMissing
        from clonos.io.system.shown_progress import Progress, WorkUnit, shown_progress
        from clonos.spark.frames.state_rows import rows_of_task, tasks_of

        tasks = tasks_of(self.metadata, step)
        try:
            work = Progress(f"reading the state of {step} in {self.url}", 1.0, WorkUnit.SHARE)
            with shown_progress(work) as progress:
                for number, task in enumerate(tasks):
                    restored, row_share = (number + RESTORING_SHARE) / len(tasks), 0.0

                    def began(count: int, restored: float = restored) -> None:
                        nonlocal row_share
                        progress.reach(restored)
                        row_share = (1 - RESTORING_SHARE) / len(tasks) / max(count, 1)

                    for row in rows_of_task(self._read, step, task, began):
                        progress.add(row_share)
                        yield row
        except ObjectMissing as error:
            number = self.metadata.checkpoint
            if StateLocation(self.url, None).metadata.checkpoint == number:
                raise StateLost(self.url, number, error.name) from None
            raise CheckpointRemoved(self.url, number, self._is_chosen) from None

    def __str__(self) -> str:
        return f"checkpoint {self.metadata.checkpoint} of job {self.metadata.job_id}"


def store_of(place: str) -> str:
    """Returns a place, or the store of the job of ``clonos run`` with this name."""
    from clonos.job.run_register import store_called
    from clonos.job.starting import default_store

    if "://" in place or os.path.exists(place):
        return place
    if os.path.basename(place) == place and os.path.exists(default_store(place)):
        return default_store(place)
    return store_called(place) or place


def add_state(commands: Any) -> None:
    """Adds the command to a parser."""
    state = commands.add_parser("state", help="show or compare the state in checkpoints and savepoints")
    verbs = state.add_subparsers(dest="verb", required=True, metavar="VERB")
    for verb, text in (
        ("ls", "list the states of each step, with their entries"),
        ("show", "show the entries of a step"),
        ("diff", "compare the state of two places"),
    ):
        command = verbs.add_parser(verb, help=text)
        command.add_argument("place", metavar="PLACE", help="a checkpoint store, a savepoint, or a job's name")
        if verb == "diff":
            command.add_argument("other", metavar="OTHER", help="what it is compared with; the same store is possible")
            command.add_argument(
                "--other-checkpoint", type=int, metavar="M", help="of the store OTHER; default: the last"
            )
        if verb != "ls":
            command.add_argument("step", metavar="STEP", nargs="?" if verb == "diff" else None, help="name of a step")
            command.add_argument("--state", metavar="NAME", help="only this state of the step")
            command.add_argument("--key", metavar="KEY", help="only this key, as JSON or as text")
            command.add_argument("--limit", type=int, default=LIMIT, metavar="N", help=f"rows; default {LIMIT}, 0: all")
        command.add_argument("--checkpoint", type=int, metavar="N", help="of the store PLACE; default: the last")
        command.add_argument("--json", action="store_true", help="print one JSON object per line")


def run_state(parsed: argparse.Namespace) -> int:
    """Runs the command; returns the exit code. All rows are read before one is printed, so that it can read the newest
    checkpoint again if the job removes one meanwhile that the user has not chosen."""
    command = {"ls": _list, "show": _show, "diff": _compare}[parsed.verb]
    for left in reversed(range(READS_MAX)):
        try:
            command(parsed, StateLocation(parsed.place, parsed.checkpoint))
            break
        except CheckpointRemoved as removed:
            if removed.is_chosen or not left:
                raise
    return 0


def _list(parsed: argparse.Namespace, place: StateLocation) -> None:
    found = []
    for step in place.steps(None):
        entries, tasks = Counter[str](), dict[str, set[str]]()
        for row in place.rows(step):
            entries[row.state] += 1
            tasks.setdefault(row.state, set()).add(row.task)
        found += [{"step": step, "state": s, "entries": entries[s], "tasks": len(tasks[s])} for s in sorted(entries)]
    _print(parsed.json, found, f"{place}: {_counted(len(found), 'state', 'states')}")


def _wanted(parsed: argparse.Namespace, rows: Iterable[StateRow]) -> Iterator[StateRow]:
    keys = None if parsed.key is None else _keys(parsed.key)
    for row in rows:
        if parsed.state in (None, row.state) and (keys is None or row.key in keys):
            yield row


def _keys(given: str) -> set[str]:
    """Returns a key as the rows have it: the JSON that was given, and the text itself."""
    import msgspec

    from clonos.connectors.json_text import json_text

    found = {json_text(given)}
    try:
        found.add(json_text(msgspec.json.decode(given)))
    except msgspec.DecodeError:  # a text without quotes
        pass
    return found


def _show(parsed: argparse.Namespace, place: StateLocation) -> None:
    (step,) = place.steps(parsed.step)
    rows = _wanted(parsed, place.rows(step))
    shown = list(islice(rows, parsed.limit or None))
    more = sum(1 for _ in rows)
    left = f"; {more:,} more, --limit 0 shows all" if more else ""
    _print(
        parsed.json,
        (row._asdict() for row in shown),
        f"{place}: {_counted(len(shown), 'entry', 'entries')} of {step}{left}",
    )


def _compare(parsed: argparse.Namespace, place: StateLocation) -> None:
    other = StateLocation(parsed.other, parsed.other_checkpoint)
    theirs = other.steps(None)
    steps = list(dict.fromkeys((*place.steps(None), *theirs))) if parsed.step is None else [parsed.step]
    if parsed.step is not None and parsed.step not in theirs:
        place.steps(parsed.step)
    counted, shown = Counter[str](), list[dict[str, str]]()
    for step in steps:
        sides = [
            _entries(_wanted(parsed, each.rows(step) if step in each.steps(None) else ())) for each in (place, other)
        ]
        for change in _changes(step, *sides):
            counted[change["change"]] += 1
            if not parsed.limit or len(shown) < parsed.limit:
                shown.append(change)
    sums = ", ".join(f"{counted[kind]:,} {kind}" for kind in ("added", "removed", "changed"))
    left = sum(counted.values()) - len(shown)
    rest = f"; {left:,} more, --limit 0 shows all" if left else ""
    _print(parsed.json, shown, f"{place}, compared with {other}: {sums}{rest}")


Entries = dict[tuple[str, str], Counter[str]]


def _entries(rows: Iterable[StateRow]) -> Entries:
    """Returns the values by state and key. Rows without a key may be several. The task is left out: keys move."""
    found: Entries = {}
    for row in rows:
        found.setdefault((row.state, row.key), Counter())[row.value] += 1
    return found


def _changes(step: str, before: Entries, after: Entries) -> Iterator[dict[str, str]]:
    for state, key in dict.fromkeys((*before, *after)):
        was, now = before.get((state, key), Counter()), after.get((state, key), Counter())
        gone, new = list((was - now).elements()), list((now - was).elements())
        place = {"step": step, "state": state, "key": key}
        if len(gone) == len(new) == 1:
            yield {"change": "changed", **place, "value": gone[0], "other": new[0]}
            continue
        yield from ({"change": "removed", **place, "value": value} for value in gone)
        yield from ({"change": "added", **place, "other": value} for value in new)


# ------------------------------------------------------------------ output

JSON_TEXTS: Final = frozenset({"key", "value", "other"})


def _print(is_json: bool, rows: Iterable[dict[str, Any]], summary: str) -> None:
    if is_json:
        import msgspec

        for row in rows:
            line = {name: msgspec.Raw(text.encode()) if name in JSON_TEXTS else text for name, text in row.items()}
            sys.stdout.write(msgspec.json.encode(line).decode() + "\n")
        return
    from clonos.cli.server_tables import rows_table, show

    found = list(rows)
    names = list(dict.fromkeys(name for row in found for name in row))
    if found:
        show(rows_table(names, ([_cut(row.get(name, "")) for name in names] for row in found)))
    show(summary)


def _counted(number: int, one: str, many: str) -> str:
    return f"{number:,} {one if number == 1 else many}"


def _cut(value: object) -> str:
    text = str(value)
    return text if len(text) <= CHARACTERS_MAX else f"{text[: CHARACTERS_MAX - 3]}..."
