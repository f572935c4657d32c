"""Structured logging of user code that stays silent during replay: what the first life said is not said again.

``logger.info("banned", word=word)`` goes to the standard library's logger ``clonos.job`` as ``banned word='x'``, with
the fields as a dict in the record's attribute ``fields``. Around the place where a life ended a line may be missing, or
be there twice: the log of the task holds choices, not lines.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from clonos.core.ports.recorder import current

LOGGER_NAME: Final = "clonos.job"


class Logger:
    """Text and fields to the standard library's logging. It may travel in a function to a slot."""

    def __init__(self, name: str = LOGGER_NAME) -> None:
        self.name = name
        self._logger = logging.getLogger(name)

    def debug(self, text: str, /, **fields: object) -> None:
        """For whoever looks for a bug."""
        self._log(logging.DEBUG, text, fields)

    def info(self, text: str, /, **fields: object) -> None:
        """What happened."""
        self._log(logging.INFO, text, fields)

    def warning(self, text: str, /, **fields: object) -> None:
        """What somebody should look at."""
        self._log(logging.WARNING, text, fields)

    def error(self, text: str, /, **fields: object) -> None:
        """What went wrong."""
        self._log(logging.ERROR, text, fields)

    def exception(self, text: str, /, **fields: object) -> None:
        """What went wrong, in an ``except``: with the traceback."""
        self._log(logging.ERROR, text, fields, with_traceback=True)

    def named(self, name: str) -> Logger:
        """A logger below this one."""
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
