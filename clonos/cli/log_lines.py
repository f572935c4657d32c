"""Log lines on standard error, as text or as one JSON object per line."""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime
from typing import Final

from clonos.io.system.closed_pipes import write_or_discard
from clonos_standby.driver.printed_lines import PRINTED_LINES, StandardErrorHandler

LOG_FORMAT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"
LOG_FORMATS: Final = ("text", "json")

PLACE: Final = ("task", "incarnation", "epoch", "fields")
"""Attributes that the driver gives to records of tasks and alarms, in the order in which a JSON line has them."""


class JsonFormatter(logging.Formatter):
    """Formatter that makes one line of JSON of a record: ``at`` (ISO 8601, UTC), ``level``, ``logger``, ``job``,
    ``task``, ``incarnation`` and ``epoch`` if they are known, ``text``, and ``traceback`` of an exception."""

    def __init__(self) -> None:
        super().__init__()
        self.job = ""

    def format(self, record: logging.LogRecord) -> str:
        """Returns the line."""
        import msgspec  # most commands log nothing as JSON, and start without it

        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        line: dict[str, object] = {"at": at, "level": record.levelname, "logger": record.name}
        if self.job:
            line["job"] = self.job
        for name in PLACE:
            if getattr(record, name, None) not in (None, "", {}):
                line[name] = getattr(record, name)
        line["text"] = getattr(record, "line", None) or record.getMessage()  # without the name of the task in front
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return msgspec.json.encode(line, enc_hook=repr).decode()


JSON_LINES: Final = JsonFormatter()


def log_to_console(is_verbose: bool, log_format: str = "text", keeps_lines: bool = False) -> None:
    """Lets log lines appear on the standard error of the moment, which a live table may have replaced.

    ``keeps_lines``: a page or ``clonos logs`` shows what the runtime does, in any case.
    """
    handler = StandardErrorHandler()
    if keeps_lines and not is_verbose:
        handler.addFilter(lambda record: record.levelno >= logging.WARNING or not record.name.startswith("clonos"))
    handler.setFormatter(JSON_LINES if log_format == "json" else logging.Formatter(LOG_FORMAT))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    logging.getLogger("clonos").setLevel(logging.INFO if is_verbose or keeps_lines else logging.WARNING)
    for printed in PRINTED_LINES.handlers:
        printed.setFormatter(JSON_LINES if log_format == "json" else None)


def is_json() -> bool:
    """Returns True when lines are JSON."""
    return any(handler.formatter is JSON_LINES for handler in PRINTED_LINES.handlers)


def report(text: str, level: int = logging.INFO) -> None:
    """Prints a line about a run on standard error, as JSON if log lines are."""
    if is_json():
        text = JSON_LINES.format(logging.LogRecord("clonos.run", level, "", 0, "%s", (text.strip(),), None))
    write_or_discard(sys.stderr, f"{text}\n")
