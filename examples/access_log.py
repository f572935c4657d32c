"""Parse the access log of a web server, and count the failed requests of each page.

Gives a folder of CSV files with every failed request (status 400 and above), and a SQLite table with their number per
page. Lines that are not in the combined log format do not end the job: they are in the folder of the error output.

    clonos run examples/access_log.py
    sqlite3 access_log.db 'select * from pages'
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from clonos import Job, files, sqlite

LOG = Path(__file__).with_name("data") / "access.log"
LINE = re.compile(r'(\S+) \S+ \S+ \[([^\]]+)\] "([A-Z]+) (\S+) [^"]*" (\d{3}) (\d+|-)(?: "[^"]*" "[^"]*")?')
FIELDS = ["client", "time", "method", "page", "status", "size"]


class Unparsable(Exception):
    """A line is not in the combined log format."""


def parse(line: str) -> dict[str, Any]:
    found = LINE.fullmatch(line)
    if found is None:
        raise Unparsable(line)
    client, time, method, page, status, size = found.groups()
    values = [client, time, method, page.partition("?")[0], int(status), 0 if size == "-" else int(size)]
    return dict(zip(FIELDS, values, strict=True))


job = Job("access_log", checkpoint_every="1s", errors=files.jsonl("out/unparsable"))
failed = job.source(files.lines(LOG), name="log").map(parse, name="parse").filter(lambda entry: entry["status"] >= 400)
failed.sink(files.csv("out/failed", columns=FIELDS), name="failed")
counts = failed.key_by("page").count(name="count")
counts.sink(sqlite("access_log.db", "pages", columns=["page", "failures"], upsert="page"), name="pages")
