"""``clonos state``: what a checkpoint or a savepoint has of the state of each step; two of them compared.

Keys and values are JSON, and the code of the job is not needed. One task is in memory at a time.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from clonos.job.stored_state import READS_MAX, CheckpointRemoved, StateLocation

if TYPE_CHECKING:
    from clonos.spark.frames.state_rows import StateRow

LIMIT: Final = 50
CHARACTERS_MAX: Final = 120
"""Characters of a value in a table; JSON has all of them."""


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
