"""The test harness in event time: records with timestamps, watermarks by hand, side outputs, and their replay."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from clonos import Context, Tag, Timestamps, Tumbling, ValueState
from clonos.api.graph_errors import InvalidJob
from clonos.operators.event_time.timestamps import TimestampError
from clonos.testing import Harness, HarnessMisused, OutputDiverged

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
LATE = Tag[dict[str, Any]]("late")
ODD = Tag[int]("odd")


def at(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def click(user: str, seconds: float) -> dict[str, Any]:
    return {"user": user, "at": at(seconds).isoformat()}


@pytest.fixture
def windows(harness: Callable[..., Harness]) -> Harness:
    return harness(
        steps=lambda clicks: clicks.window(Tumbling("10s"), late=LATE).count(),
        key=lambda record: record["user"],
        timestamps="at",
        side_outputs=[LATE],
    )


def test_a_window_ends_with_the_watermark_and_late_records_go_to_the_side_output(windows: Harness) -> None:
    assert windows.push([click("ann", 1), click("ann", 9), click("bob", 12)]) == []
    assert windows.advance(3_600) == []
    assert windows.advance_watermark(at(9)) == []
    (counted,) = windows.advance_watermark(at(10))
    assert (counted.key, counted.value, counted.end) == ("ann", 2, at(10))
    assert windows.timestamps == [at(10) - timedelta(microseconds=1)]
    assert windows.push([click("ann", 2), click("ann", 11)]) == []
    assert windows.side_output(LATE) == [click("ann", 2)]
    assert [(found.key, found.value) for found in windows.end()] == [("bob", 1), ("ann", 1)]


@pytest.mark.slow
def test_a_replay_repeats_windows_and_side_outputs(windows: Harness) -> None:
    windows.push([click("ann", 1)])
    windows.snapshot()
    windows.advance_watermark(at(10))
    windows.push([click("ann", 2), click("bob", 3), click("ann", 14)])
    windows.crash()
    windows.restore()
    assert [found.value for found in windows.replay(elsewhere=True)] == [1]
    assert windows.side_output(LATE) == [click("ann", 2), click("bob", 3)]
    assert [found.value for found in windows.advance_watermark(at(20))] == [1]
    windows.crash(lost=1)
    assert len(windows.outputs) == 1
    windows.restore()
    windows.replay()
    assert [found.value for found in windows.outputs] == [1, 1]


class Silence:
    """Emits a user who has been silent for a minute of event time, and counts in a dict outside declared state."""

    due = ValueState[datetime | None]("due", default=None)

    def open(self, context: Any) -> None:
        self.seen: dict[str, int] = {}

    def process(self, record: dict[str, Any], context: Context[str, str]) -> None:
        due = context.state(self.due)
        if due.value is not None:
            context.delete_event_timer(due.value)
        due.value = datetime.fromisoformat(record["at"]) + timedelta(minutes=1)
        context.set_event_timer(due.value)
        self.seen[record["user"]] = self.seen.get(record["user"], 0) + 1  # clonos: ok to be detected
        context.output(ODD, self.seen[record["user"]])

    def on_event_timer(self, timestamp: datetime, context: Context[str, str]) -> None:
        context.emit(f"{context.key} {timestamp:%M:%S}")


def test_event_timers_fire_with_the_watermark_and_hidden_memory_in_a_side_output_is_found(
    harness: Callable[..., Harness],
) -> None:
    silence = harness(Silence, key=lambda record: record["user"], timestamps=Timestamps("at"), side_outputs=[ODD])
    silence.push([click("ann", 0), click("bob", 30)])
    assert silence.advance_watermark(at(60)) == ["ann 01:00"]
    silence.snapshot()
    silence.push([click("bob", 31)])
    assert silence.side_output(ODD) == [1, 1, 2]
    silence.crash()
    silence.restore()
    with pytest.raises(OutputDiverged, match="it was 2, replay makes 1"):
        silence.replay()


def test_mistakes_are_named(harness: Callable[..., Harness], windows: Harness) -> None:
    plain = harness(str)
    with pytest.raises(HarnessMisused, match=r"the stream has no timestamps\. Give the harness timestamps="):
        plain.advance_watermark(at(1))
    with pytest.raises(HarnessMisused, match=r"give the harness side_outputs=\[Tag\(name='late'\)\]"):
        plain.side_output(LATE)
    with pytest.raises(InvalidJob, match="has no side outputs"):
        harness(str, side_outputs=[LATE])
    windows.advance_watermark(at(10))
    with pytest.raises(HarnessMisused, match="watermarks rise"):
        windows.advance_watermark(at(10))
    with pytest.raises(TimestampError, match="the record has no field 'at' for its timestamp; it has user"):
        windows.push([{"user": "ann"}])
    assert windows.push([click("ann", 11)]) == []
