"""Structured logging for user code, silent during replay, so that no line is logged again.

``logger.info("banned", word=word)`` logs ``banned word='x'`` to the standard library's logger ``clonos.job``, with the
fields as a dict in the record's attribute ``fields``. Around a failure a line may be missing or repeated, because the
causal log records decisions, not lines.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from clonos.core.ports.recorder import current

LOGGER_NAME: Final = "clonos.job"


class Logger:
    """Logger of a text and fields, on top of the standard library's logging. It may be pickled."""

    def __init__(self, name: str = LOGGER_NAME) -> None:
        self.name = name
        self._logger = logging.getLogger(name)

    def debug(self, text: str, /, **fields: object) -> None:
        """Logs at level DEBUG."""
        self._log(logging.DEBUG, text, fields)

    def info(self, text: str, /, **fields: object) -> None:
        """Logs at level INFO."""
        self._log(logging.INFO, text, fields)

    def warning(self, text: str, /, **fields: object) -> None:
        """Logs at level WARNING."""
        self._log(logging.WARNING, text, fields)

    def error(self, text: str, /, **fields: object) -> None:
        """Logs at level ERROR."""
        self._log(logging.ERROR, text, fields)

    def exception(self, text: str, /, **fields: object) -> None:
        """Logs at level ERROR with the traceback of the current exception; call it in an ``except`` block."""
        self._log(logging.ERROR, text, fields, with_traceback=True)

    def named(self, name: str) -> Logger:
        """Returns a child logger."""
        return Logger(f"{self.name}.{name}")

    def __reduce__(self) -> tuple[Callable[[str], Logger], tuple[str]]:
        return Logger, (self.name,)

    def _log(self, level: int, text: str, fields: dict[str, object], with_traceback: bool = False) -> None:
        recorder = current()
        if (recorder is not None and not recorder.live) or not self._logger.isEnabledFor(level):
            return
        message = " ".join([text, *(f"{name}={value!r}" for name, value in fields.items())])
        caller = 3  # user code -> info -> _log -> the standard library
        self._logger.log(level, "%s", message, exc_info=with_traceback, stacklevel=caller, extra={"fields": fields})


logger: Final = Logger()
