"""``clonos history``: what has happened to a job, from the events in its checkpoint store; two runs compared."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterable, Iterator
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

from clonos.core.model.errors import JobError

if TYPE_CHECKING:
    from clonos.job.run_history.history_events import Event
    from clonos.job.run_history.history_lines import HistoryLine
    from clonos.job.run_history.run_figures import ComparedFigure

TEXT: Final = "text"
FORMATS: Final = (TEXT, "json")
CHECKPOINT: Final = "checkpoint"
COLUMNS: Final = ("at", "event", "what")
UNREADABLE_ADVICE: Final = "another version of clonos has written them, or the store is damaged"


class HistoryMissing(JobError):
    """A place has no history, or not the run that is asked for."""

    place: str
    what: str

    def __str__(self) -> str:
        return (
            f"{self.place} has no {self.what}. Name the checkpoint store of a job that has begun, or the job itself;"
            " for a job of a server give --token, or set CLONOS_TOKEN."
        )


def add_history(commands: Any) -> None:
    """Adds the command to a parser."""
    history = commands.add_parser("history", help="show what has happened to a job, or compare two of its runs")
    history.add_argument("place", metavar="PLACE", help="a checkpoint store, or a job's name; of a server also its id")
    history.add_argument("--server", metavar="URL", help="the job is one of this server; default: CLONOS_SERVER")
    history.add_argument("--token", metavar="TOKEN", help="of the server; default: CLONOS_TOKEN; @FILE")
    history.add_argument(
        "--against",
        metavar="OTHER",
        help="compare the last run with the last one of OTHER; if that is PLACE too, with the run before",
    )
    history.add_argument("--all", action="store_true", help="a line for each checkpoint")
    history.add_argument("--last", type=int, metavar="N", help="the last N lines only")
    history.add_argument("--format", choices=FORMATS, default=TEXT, help="text (default), or JSON, one object per line")


def run_history(parsed: argparse.Namespace) -> int:
    """Runs the command; returns the exit code.

    Raises: HistoryMissing, StoreFailed. RequestFailed, ServerUnreachable: of a server.
    """
    from clonos.job.stored_state import store_of

    place = store_of(parsed.place)
    if _is_of_server(parsed, place):
        _show_of_server(parsed)
        return 0
    if parsed.against is not None:
        _compare(parsed, place, store_of(parsed.against))
        return 0
    from clonos.job.run_history.history_lines import joined_checkpoints, lines_of_history

    events, is_running = _read(place)
    lines = list(lines_of_history(events, not is_running))
    if parsed.format == TEXT and not parsed.all:
        lines = list(joined_checkpoints(lines))
    _print(parsed, lines[-parsed.last :] if parsed.last else lines)
    return 0


def _is_of_server(parsed: argparse.Namespace, place: str) -> bool:
    """Returns whether the job is one of a server: a server is named, or known and there is no such store here."""
    from clonos.cli.server_client import SERVER_VARIABLE, TOKEN_VARIABLE

    if parsed.server is not None or parsed.token is not None:
        return True
    has_server = TOKEN_VARIABLE in os.environ or SERVER_VARIABLE in os.environ
    return has_server and "://" not in place and not os.path.exists(place)


def _show_of_server(parsed: argparse.Namespace) -> None:
    """Prints the lines that the server has of a job's history. Raises: RequestFailed, ServerUnreachable."""
    from clonos.cli.server_client import RequestFailed, ServerClient
    from clonos.cli.server_tables import rows_table, show

    if parsed.against is not None:
        raise RequestFailed(400, "--against compares the events of checkpoint stores: name the stores of the jobs.")
    client = ServerClient(parsed.server, parsed.token)
    lines = client.get(f"/jobs/{client.find(parsed.place)}/history")["lines"]
    if parsed.format == TEXT and not parsed.all:
        lines = list(_joined(lines))
    lines = lines[-parsed.last :] if parsed.last else lines
    if parsed.format != TEXT:
        for line in lines:
            sys.stdout.write(json.dumps(line) + "\n")
        return
    show(rows_table(COLUMNS, ((line["at"], line["event"].replace("_", " "), line["text"]) for line in lines)))


def _joined(lines: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yields lines of a server with one for checkpoints that follow each other."""
    for event, group in groupby(lines, key=itemgetter("event")):
        found = list(group)
        if event != CHECKPOINT or len(found) == 1:
            yield from found
        else:
            yield {**found[-1], "event": "checkpoints", "text": f"{len(found)}, the last one: {found[-1]['text']}"}


def _read(place: str) -> tuple[list[Event], bool]:
    """Returns the events of a store, and whether a driver runs its job."""
    from clonos.io.store.driver_mark import has_living_driver
    from clonos.io.store.store import open_files
    from clonos.job.run_history.history_events import read_events

    files = open_files(place)
    events, unreadable = read_events(files)
    if unreadable:
        print(f"{unreadable} lines of {place} cannot be read: {UNREADABLE_ADVICE}", file=sys.stderr)
    if not events:
        raise HistoryMissing(place, "history")
    return events, has_living_driver(files)


def _print(parsed: argparse.Namespace, lines: Iterable[HistoryLine]) -> None:
    from clonos.cli.server_tables import rows_table, show
    from clonos.io.system.wall_clock import time_text

    if parsed.format != TEXT:
        for line in lines:
            sys.stdout.write(line_document(line) + "\n")
        return
    show(rows_table(COLUMNS, ((time_text(e.at_ns), e.kind.replace("_", " "), e.text) for e in lines)))


def line_document(line: HistoryLine) -> str:
    """Returns a line as JSON: its event's fields, with ``at`` and ``text``."""
    import msgspec

    from clonos.io.system.wall_clock import time_text

    fields = (
        msgspec.to_builtins(line.events[0]) if len(line.events) == 1 else {"job_id": line.job_id, "term": line.term}
    )
    for name in ("at_ns", "shape", "event"):
        fields.pop(name, None)
    return msgspec.json.encode({"at": time_text(line.at_ns), "event": line.kind, **fields, "text": line.text}).decode()


def _compare(parsed: argparse.Namespace, place: str, other: str) -> None:
    from clonos.job.run_history.run_figures import compared, differing_plan, figures_of, runs_of

    events, is_running = _read(place)
    runs = runs_of(events)
    run = runs[-1]
    if other == place:
        if len(runs) < 2:
            raise HistoryMissing(place, "run before its last one")
        before, has_ended = runs[-2], True
    else:
        theirs, is_other_running = _read(other)
        before, has_ended = runs_of(theirs)[-1], not is_other_running
    found = compared(figures_of(run, not is_running), figures_of(before, has_ended))
    plan = differing_plan(run, before)
    if parsed.format != TEXT:
        import msgspec

        for each in found:
            document = {"figure": each.name, "unit": each.unit, "value": each.value, "other": each.other}
            sys.stdout.write(msgspec.json.encode(document).decode() + "\n")
        for line in plan:
            sys.stdout.write(msgspec.json.encode({"plan": line.text}).decode() + "\n")
        return
    from clonos.cli.server_tables import rows_table, show

    names = ("figure", run[0].job_id, before[0].job_id, "times")
    show(rows_table(names, ([each.name, *_cells(each)] for each in found)))
    show(*(f"the plan differs: {line.text}" for line in plan))


def _cells(figure: ComparedFigure) -> list[str]:
    ratio = "" if figure.ratio is None else f"{figure.ratio:.2f}"
    return [_value(figure.value, figure.unit), _value(figure.other, figure.unit), ratio]


def _value(value: float | None, unit: str) -> str:
    from clonos.job.run_history.history_lines import bytes_text, milliseconds

    if value is None:
        return "-"
    if unit == "ms":
        return milliseconds(value)
    return bytes_text(value) if unit == "bytes" else f"{value:,.1f} s" if unit == "s" else f"{value:,.0f}"
