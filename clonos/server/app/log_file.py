"""Lines of the log of a driver that does not live any more, from its file."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Final

from clonos.io.system.wall_clock import time_text
from clonos.server.job_api.documents import LogDocument, LogLine
from clonos.server.supervision.job_folder import JobFolder

LINE: Final = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d),(\d{3}) ([A-Z]+) ([\w.]+): (.*)", re.DOTALL)
TASK: Final = re.compile(r"\[?([A-Za-z0-9_.+-]+/\d+)(?:\]|:) ")
OUTPUT_BYTES_MAX: Final = 64 << 10


def log_of_file(folder: JobFolder, after: int, limit: int) -> LogDocument:
    """Returns up to ``limit`` lines after line ``after``; the numbers are those of lines in the file. What the process
    wrote past its log, such as the traceback of a failed start, follows as the last lines."""
    lines = _lines(folder)
    found = [_line(number, text) for number, text in enumerate(lines[after : after + limit], after + 1)]
    return LogDocument(lines=found, next=after + len(found))


def _lines(folder: JobFolder) -> list[str]:
    found: list[str] = []
    if folder.log.exists():
        for text in folder.log.read_text("utf-8", "replace").splitlines():
            if found and not LINE.match(text):
                found[-1] += f"\n{text}"  # of the same record: a traceback
            else:
                found.append(text)
    if folder.output.exists():
        found += folder.output.read_bytes()[-OUTPUT_BYTES_MAX:].decode("utf-8", "replace").splitlines()
    return found


def _line(number: int, text: str) -> LogLine:
    match = LINE.match(text)
    if match is None:
        return LogLine(number=number, at="", level="INFO", logger="", text=text)
    at = datetime.fromisoformat(match[1]).astimezone()  # the file has local time
    task = TASK.match(match[5])
    at_text = time_text(int(at.timestamp()) * 1_000_000_000 + int(match[2]) * 1_000_000)
    return LogLine(
        number=number, at=at_text, level=match[3], logger=match[4], text=match[5], task=task[1] if task else None
    )
