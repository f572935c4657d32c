"""Report the activity of each user on each day, and how many users were active, by the days of a time zone.

Gives one JSON line per user and day, with the number of actions, the pages seen and the times of the first and the last
action; and one per day for all users. Actions that come hours late, from phones without a network, still count: a day
takes them for six more hours, and the last line of a user and day has them all.

    clonos run examples/user_activity.py
"""

from __future__ import annotations

from typing import Any, TypedDict

from clonos import Job, Timestamps, Tumbling, WindowResult, files, values
from clonos.agg import approx_distinct, count, distinct, max_, min_

MIDNIGHT = 1_690_236_000  # 2023-07-25 in Berlin
HOUR = 3_600
DAY = Tumbling("1d", timezone="Europe/Berlin")


class Action(TypedDict):
    """What a user did, at a time in seconds since the Unix epoch."""

    user: str
    page: str
    at: int


ACTIONS: list[Action] = [
    {
        "user": ("ann", "bob", "eve", "joe")[n * n % 13 % 4],
        "page": f"/{n % 6}",
        "at": MIDNIGHT + n * HOUR // 2 - (4 * HOUR if n % 10 == 9 else 0),
    }
    for n in range(48 * 4)
]


def activity(window: WindowResult[str, dict[str, Any]]) -> dict[str, Any]:
    return {"user": window.key, "day": window.start, **window.value, "pages": sorted(window.value["pages"])}


def active_users(window: WindowResult[None, dict[str, Any]]) -> dict[str, Any]:
    return {"day": window.start, **window.value}


job = Job("user_activity", parallelism=2, checkpoint_every="1s")
actions = job.source(values(ACTIONS), name="actions", timestamps=Timestamps("at", out_of_order="1h"))
(
    actions.key_by(lambda action: action["user"])
    .window(DAY, lateness="6h")
    .aggregate(actions=count(), pages=distinct("page"), first=min_("at"), last=max_("at"), name="days")
    .map(activity)
    .sink(files.jsonl("out/user_activity"), name="activity")
)
(
    actions.window(DAY, lateness="6h")
    .aggregate(users=approx_distinct(lambda action: action["user"]), actions=count(), name="all")
    .map(active_users)
    .sink(files.jsonl("out/active_users"), name="users")
)
