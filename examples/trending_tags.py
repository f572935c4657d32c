"""Find the three tags that posts of the last ten minutes use most, once a minute.

Gives one JSON line per minute with the tags and their numbers of posts. The first windows count the posts of each tag,
in parallel; their results bear the time at which they end, so a window of one minute has the counts of all tags.

    clonos run examples/trending_tags.py
"""

from __future__ import annotations

from typing import Any, TypedDict

from clonos import Job, Sliding, Timestamps, Tumbling, WindowResult, files, values
from clonos.agg import top_k

NOON = 1_690_000_200
TAGS = ("python", "spark", "arrow", "kafka", "flink")


class Post(TypedDict):
    """Post with a tag, at a time in seconds since the Unix epoch."""

    tag: str
    at: int


POSTS: list[Post] = [
    {"tag": TAGS[(n * n + n // 90) % 5 * (n % 7) % 5], "at": NOON + 5 * n - n * 11 % 20} for n in range(400)
]


def rank(counted: WindowResult[str, int]) -> tuple[int, str]:
    return counted.value, counted.key


def row(window: WindowResult[None, dict[str, Any]]) -> dict[str, Any]:
    return {"until": window.end, "tags": [[counted.key, counted.value] for counted in window.value["top"]]}


job = Job("trending_tags", parallelism=2, checkpoint_every="1s")
posts = job.source(values(POSTS), name="posts", timestamps=Timestamps("at", out_of_order="20s"))
counts = posts.key_by(lambda post: post["tag"]).window(Sliding("10min", every="1min")).count(name="counts")
trending = counts.window(Tumbling("1min")).aggregate(top=top_k(3, by=rank), name="trending")
trending.map(row).sink(files.jsonl("out/trending_tags"), name="tags")
