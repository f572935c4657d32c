"""Errors of RabbitMQ sources and sinks: the class says whose fault it is, the message says where and what to do."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

from clonos.connectors.tls_context import is_of_tls, tls_advice
from clonos.core.model.errors import ClonosError, EnvironmentFault, JobError
from clonos.operators.row_errors import ERRORS_ADVICE, RecordError

REFUSED: Final = frozenset({402, 403, 404, 406, 530, 540})
"""Reply codes of the broker that no retry changes."""
_PASSING: Final = re.compile(r"exclusive use|down or inaccessible|acknowledgement .*timed out|not available")
TOO_LARGE: Final = "larger than configured max size"
_LOGIN: Final = frozenset({"AuthenticationError", "ProbableAuthenticationError", "ProbableAccessDeniedError"})


class BrokerUnreachable(EnvironmentFault):
    """A RabbitMQ broker cannot be reached, has closed the connection, or does not answer."""

    broker: str
    doing: str
    reason: str

    def __str__(self) -> str:
        return (
            f"RabbitMQ at {self.broker} failed at {self.doing}: {self.reason}. Check that the broker runs and that"
            " every process of the job reaches it, then resume."
        )


class BrokerRefused(JobError):
    """A RabbitMQ broker refuses what the job asks for: its credentials, its rights, a queue or an exchange."""

    broker: str
    doing: str
    reason: str

    def __str__(self) -> str:
        other = (
            "Correct the name, the credentials or the rights; queues and exchanges must exist before the job starts."
        )
        return f"RabbitMQ at {self.broker} refused {self.doing}: {self.reason}. {tls_advice(self.reason) or other}"


class MessageUnroutable(JobError):
    """An exchange has no queue for a row."""

    exchange: str
    routing_key: str
    row: str
    reason: str

    def __str__(self) -> str:
        return (
            f"{self.exchange} has no queue for the routing key {self.routing_key!r} of the row {self.row}:"
            f" {self.reason}. Bind a queue to it, or correct routing_key=, and resume the job: no row is lost."
        )


class MessageRefused(JobError):
    """A broker does not take a row, because it is too large."""

    exchange: str
    row: str
    reason: str

    def __str__(self) -> str:
        return (
            f"{self.exchange} does not take the row {self.row}: {self.reason}. Drop or cut such rows in a step before"
            " the sink, or raise max_message_size of the broker, and resume the job: no row is lost."
        )


class BodyMalformed(RecordError):
    """The body of a message cannot be decoded."""

    queue: str
    message_id: str
    reason: str

    def __str__(self) -> str:
        return f"{self.set_aside_text()}{ERRORS_ADVICE}"

    def set_aside_text(self) -> str:
        """See ``RecordError``."""
        which = f"the message {self.message_id}" if self.message_id else "a message without an id"
        return f"{which} of the queue {self.queue}: {self.reason}."


def failure_of(broker: str, doing: str, error: Any, clean: Callable[[str], str]) -> ClonosError:
    """Returns what an exception of pika means: an error of the job, or a fault that may pass.

    ``clean`` removes passwords from a text.
    """
    cause = innermost(error)
    code = getattr(cause, "reply_code", 0)
    text = str(getattr(cause, "reply_text", "")) or str(cause) or type(cause).__name__
    is_refused = type(cause).__name__ in _LOGIN or (code in REFUSED and not _PASSING.search(text))
    if is_refused or is_of_tls(cause):
        return BrokerRefused(broker, doing, _sentence(clean(text)))
    return BrokerUnreachable(broker, doing, _sentence(clean(text)))


def innermost(error: Any) -> Any:
    """Returns the cause that pika has wrapped in its own exceptions."""
    for _ in range(8):
        if several := getattr(error, "exceptions", ()):
            error = several[-1]
        elif isinstance(inner := getattr(error, "exception", None), BaseException):
            error = inner
        elif error.args and isinstance(error.args[0], BaseException):
            error = error.args[0]
        else:
            break
    return error


def _sentence(text: str) -> str:
    return " ".join(text.split()).rstrip(".")
