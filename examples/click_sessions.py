"""Divide the clicks of each user into sessions: clicks that follow each other within 30 minutes.

Gives one JSON line per session with its length, its number of clicks and its first and last page, by the times of the
clicks. Their order in the file does not matter as long as they are less than an hour out of order.

    clonos run examples/click_sessions.py
"""

from __future__ import annotations

from typing import Any

from clonos import Job, Session, Timestamps, Window, files, values

MORNING = 1_690_000_000
MINUTES = [("ann", 0), ("bob", 1), ("ann", 25), ("ann", 12), ("bob", 40), ("ann", 90), ("bob", 55), ("eve", 60)]
CLICKS = [
    {"user": user, "at": MORNING + 60 * minute, "page": f"/{user}/{minute}"}
    for day in range(5)
    for user, minute in [(user, minute + day * 1_440) for user, minute in MINUTES]
]


def session(user: str, window: Window, clicks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    pages = [click["page"] for click in sorted(clicks, key=lambda click: click["at"])]
    minutes = (window.end - window.start).total_seconds() / 60 - 30  # a session ends 30 minutes after its last click
    return [{"user": user, "start": window.start, "minutes": minutes, "clicks": len(pages), "pages": pages}]


job = Job("click_sessions", parallelism=2, checkpoint_every="1s")
(
    job.source(values(CLICKS), name="clicks", timestamps=Timestamps("at", out_of_order="1h"))
    .key_by("user")
    .window(Session("30min", max_length="12h"))
    .apply(session, name="session")
    .sink(files.jsonl("out/click_sessions"), name="sessions")
)
