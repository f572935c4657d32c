"""Count the clicks on each page in windows of ten seconds of processing time.

Gives one JSON line per page and window. A click is counted when the job receives it; after a failure it is in the same
window as before, because the clock of the job is recorded. With `watch="1s"` the source also reads files that arrive
later, and the job runs until it is stopped.

    clonos run examples/click_counts.py
"""

from __future__ import annotations

from pathlib import Path

from clonos import Job, Tumbling, WindowResult, files

CLICKS = Path(__file__).with_name("data") / "clicks.jsonl"


def row(window: WindowResult[str, int]) -> dict[str, object]:
    return {"page": window.key, "from": window.start, "to": window.end, "clicks": window.value}


job = Job("click_counts", parallelism=2, checkpoint_every="1s")
(
    job.source(files.jsonl(CLICKS), name="clicks")
    .key_by("page")
    .window(Tumbling("10s"))
    .count(name="count")
    .map(row)
    .sink(files.jsonl("out/click_counts"), name="counts")
)
