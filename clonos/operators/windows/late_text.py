"""Texts of the warnings about records of windows that come too late."""

from __future__ import annotations

from clonos.operators.event_time.timestamps import from_timestamp_ns


def late_text(step: str, tag: str | None, time_ns: int, watermark_ns: int) -> str:
    """Returns the warning of a window about late records."""
    timestamp, watermark = from_timestamp_ns(time_ns).isoformat(), from_timestamp_ns(watermark_ns).isoformat()
    advice = (
        'Give the window late=Tag("late") and read side_output(Tag("late"))'
        if tag is None
        else f"Read them by side_output(Tag({tag!r}))"
    )
    return (
        f"the step {step} leaves out records that are too late: the first has the timestamp {timestamp}, and the"
        f" watermark is at {watermark}. {advice}, or give lateness= or a greater out_of_order=."
    )


def torn_session_text(step: str, time_ns: int, watermark_ns: int) -> str:
    """Returns the warning of session windows about a record whose session may have ended before it came."""
    timestamp, watermark = from_timestamp_ns(time_ns).isoformat(), from_timestamp_ns(watermark_ns).isoformat()
    return (
        f"the step {step} began a session at {timestamp} when the watermark was at {watermark}: an earlier session that"
        " it continues may have ended. Give a greater out_of_order=, or lateness=."
    )
