"""Report of a replay: what was replayed, what is equal, how it ended; as text and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from clonos.core.model.code_location import user_frames, user_frames_of
from clonos.core.model.suspect import likely_cause
from clonos.core.task.divergence import OTHER_OUTPUT
from clonos.core.values.column_rows import rows_of_columns
from clonos.replay.changed_code import ResultChanges
from clonos.replay.epoch import Epoch, LogFigures, figures_of
from clonos.replay.going_on import HTTP, GoneOn
from clonos.replay.output_comparison import ROWS_SHOWN, Difference, EpochComparison, shown
from clonos.replay.replaying import Replayed, described

DIFFERENCES_SHOWN = 3

REDACTED = "the record was redacted, so what depends on these values differs from the live task"


@dataclass
class ReplayReport:
    """Report of a replay, the same for the command line and for a test.

    ``differences``: from the record, or with changed code from the recorded code, each with a readable text.
    ``error``: what user code raised, None if the replay reached the end of the log. ``is_as_recorded``: the replay did
    what the live task did, with the same error if it failed. ``equal``: elements of the output that were compared and
    are equal byte by byte. ``read_files``: files outside of the record that user code has read, with the line.
    """

    epoch: Epoch
    replayed: Replayed
    comparison: EpochComparison
    changes: ResultChanges | None = None
    is_of_changed_code: bool = False
    notes: list[str] = field(default_factory=list)

    @property
    def differences(self) -> list[Difference]:
        """Differences, the first one first."""
        found = [*self.comparison.differences, *(() if self.changes is None else self.changes.differences)]
        if not self.is_of_changed_code and not self.ended_as_recorded:
            found.append(self._other_end())
        return found

    @property
    def error(self) -> BaseException | None:
        """Exception of user code, or the divergence; None if the replay has reached the end of the log."""
        return self.replayed.user_error

    @property
    def equal(self) -> int:
        """How many elements of the output are equal byte by byte."""
        return self.comparison.equal

    @property
    def read_files(self) -> list[str]:
        """Files outside of the record that user code has read, with the line."""
        return [f"{each.file} ({each.place})" for each in self.replayed.isolation.read]

    @property
    def is_as_recorded(self) -> bool:
        """Whether the replay did what the live task did."""
        return not self.differences

    @property
    def ended_as_recorded(self) -> bool:
        """Whether the replay has ended as the live task did: with the same error, or at the end of the log."""
        failure, error = self.epoch.head.failure, self.error
        if self.replayed.gone_on is not None:
            return failure is None  # what came behind the end of the log is not in the record
        if failure is None or error is None:
            return failure is None and error is None
        return _same_error(failure.error, error)

    @property
    def rows_gone_on(self) -> list[tuple[Any, Any]]:
        """Rows that were made behind the end of the log, each with its key, None without one."""
        gone_on = self.replayed.gone_on
        found: list[tuple[Any, Any]] = []
        for made in self.replayed.made[gone_on.results :] if gone_on is not None else ():
            rows = made.rows if isinstance(made.rows, list) else rows_of_columns(made.rows)
            found += zip(made.keys or [None] * len(rows), rows, strict=True)
        return found

    @property
    def likely_cause(self) -> str:
        """Likely cause of another output of the same code; "" without one. A divergence has its own."""
        if self.epoch.head.redacted:
            return REDACTED if self.differences else ""
        has_others = self.comparison.differences or (self.changes is not None and self.changes.differences)
        if self.is_of_changed_code or not has_others or self.replayed.divergence is not None:
            return ""
        return likely_cause(self.replayed.chain.suspects(""), "", OTHER_OUTPUT)

    def _other_end(self) -> Difference:
        failure, error = self.epoch.head.failure, self.error
        was = "no error" if failure is None else failure.error
        now = "no error" if error is None else described(error)
        number = self.replayed.number
        return Difference(number, number, "", was, now, "the end of the replay", _place(error))

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        head, figures = self.epoch.head, figures_of(self.epoch)
        yield f"{head.task}, epoch {head.epoch} of {head.job}: {self._counts(figures)}"
        if not self.is_of_changed_code:
            yield self._what_was_replayed()
        yield from self._end()
        yield from self._differences()
        yield from self._external()
        yield from (f"note: {note}" for note in (*self.notes, *self._not_run(), *head.missing, *head.redacted))

    def _not_run(self) -> list[str]:
        return [
            f"the function of {step} does not run: the log has what its calls have returned, so no change of it shows"
            f"{', but with --key' if runs_by_key else ''}"
            for step, runs_by_key in self.replayed.chain.replied_steps.items()
        ]

    def _counts(self, figures: LogFigures) -> str:
        counts = [_counted(self.replayed.records, "record"), _counted(figures.calls, "call")]
        if figures.timers:
            counts.append(_counted(figures.timers, "timer"))
        if figures.first_ns:
            counts.append(f"from {_clock(figures.first_ns)} to {_clock(figures.last_ns)}")
        return ", ".join(counts)

    def _what_was_replayed(self) -> str:
        found, comparison = self.replayed, self.comparison
        if self.epoch.head.redacted:
            return f"replayed: {_counted(found.emissions, 'step')}, its output not compared: the record was redacted"
        equal = f"{_counted(comparison.equal, 'element')} of its output equal byte by byte"
        if comparison.unknown:
            equal += f", {comparison.unknown:,} not compared (the record has no digest of them)"
        if comparison.equal_rows:
            equal += f"; {_counted(comparison.equal_rows, 'row')} of its sinks equal"
        if rows := found.chain.sink_rows + comparison.unknown_rows:
            equal += f"; {_counted(rows, 'row')} of its sink not compared (--elsewhere compares them)"
        return f"replayed: {_counted(found.emissions, 'step')}, {equal}"

    def _end(self) -> Iterator[str]:
        found = self.replayed
        if found.gone_on is not None:
            yield self._what_came_behind(found.gone_on)
            yield from (f"  {shown(row if key is None else (key, row))}" for key, row in self.rows_gone_on[:ROWS_SHOWN])
        if self.error is not None:
            at = "" if found.number is None else f" at record {found.number:,}"
            same = ", as it happened" if self.epoch.head.failure is not None and self.ended_as_recorded else ""
            yield f"then{at} {described(self.error)}{same}"
            if frames := user_frames(self.error):
                yield frames
        elif found.open_call and found.gone_on is not None:
            at = f" at {found.place}" if found.place else ""
            name = found.open_call
            yield f"then{at} it calls {name}, which has no stand-in: give one by {_stand_in_for(name)}"
        elif found.gone_on is not None:
            yield "then the recorded input ends"
        elif found.open_call:
            at = f" at {found.place}" if found.place else ""
            yield f"then the log ends{at}, which calls {found.open_call}: its outcome is not in the record"
        elif found.place:
            yield f"then the log ends in the middle of a step, at {found.place}"

    def _what_came_behind(self, gone_on: GoneOn) -> str:
        records, rows = self.replayed.records - gone_on.records, len(self.rows_gone_on)
        answered = ", ".join(f"{name} ({count:,})" for name, count in sorted(gone_on.answered.items()))
        return (
            f"behind the end of the log: {_counted(records, 'further record')}, {_counted(rows, 'row')} made;"
            f" stand-ins answered {answered or 'no call'}"
        )

    def _differences(self) -> Iterator[str]:
        differences = self.differences
        for each in differences[:DIFFERENCES_SHOWN]:
            yield str(each)
        if len(differences) > DIFFERENCES_SHOWN:
            more = len(differences) - DIFFERENCES_SHOWN
            yield f"... and {more:,} more differences, which --format json lists"
        if cause := self.likely_cause:
            yield f"likely cause: {cause}"
        if self.changes is not None:
            calls = self.replayed.replayed_calls
            yield (
                f"{self.changes.differing:,} of {_counted(self.changes.results, 'result')} differ;"
                f" calls: {calls:,} asked as before"
            )

    def _external(self) -> Iterator[str]:
        isolation = self.replayed.isolation
        for file in self.read_files:
            yield f"read outside of the record: {file}"
        if not isolation.refused and not self.read_files:
            yield "nothing outside was asked"

    def _gone_on_json(self) -> dict[str, Any] | None:
        gone_on = self.replayed.gone_on
        if gone_on is None:
            return None
        rows = [shown(row if key is None else (key, row)) for key, row in self.rows_gone_on]
        return {
            "records": self.replayed.records - gone_on.records,
            "answered": dict(gone_on.answered),
            "rows": rows,
        }

    def to_json(self) -> dict[str, Any]:
        """Returns the report for a program."""
        head, figures, error = self.epoch.head, figures_of(self.epoch), self.error
        return {
            "job": head.job,
            "task": head.task,
            "epoch": head.epoch,
            "records": self.replayed.records,
            "calls": figures.calls,
            "timers": figures.timers,
            "steps": self.replayed.emissions,
            "equal": self.comparison.equal,
            "not_compared": self.comparison.unknown,
            "sink_rows": self.replayed.chain.sink_rows + self.comparison.unknown_rows,
            "equal_sink_rows": self.comparison.equal_rows,
            "as_recorded": self.is_as_recorded,
            "differing": None if self.changes is None else self.changes.differing,
            "likely_cause": self.likely_cause or None,
            "differences": [_difference_json(each) for each in self.differences],
            "error": None
            if error is None
            else {"text": described(error), "at": _place(error), "record": self.replayed.number},
            "open_call": self.replayed.open_call or None,
            "gone_on": self._gone_on_json(),
            "refused": [
                {"kind": each.kind, "what": each.what, "at": each.place} for each in self.replayed.isolation.refused
            ],
            "read_files": self.read_files,
            "notes": [*self.notes, *self._not_run(), *head.missing, *head.redacted],
        }


def _stand_in_for(service: str) -> str:
    if service.startswith(HTTP):
        return "http=, or in the file of --stand-ins by http"
    return f"services={{{service!r}: ...}}, or in the file of --stand-ins by services"


def _difference_json(difference: Difference) -> dict[str, Any]:
    return difference._asdict()


def _same_error(recorded: str, error: BaseException) -> bool:
    """Returns whether an error is the recorded one, which the record has as its class and text."""
    text = described(error)
    names = f"{type(error).__name__}: {error}", f"{type(error).__qualname__}: {error}", text
    return any(recorded == each or recorded.startswith(f"{each}\n") for each in names) or text.startswith(recorded)


def _place(error: BaseException | None) -> str:
    frames = [] if error is None else user_frames_of(error)
    return frames[-1].place if frames else ""


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _clock(instant_ns: int) -> str:
    instant = datetime.fromtimestamp(instant_ns / 1e9, UTC)
    return f"{instant:%H:%M:%S}.{instant_ns // 1_000_000 % 1_000:03d}"
