"""Errors of RabbitMQ sources and sinks: the class says whose fault it is, the message says where and what to do."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

from clonos.connectors.kit.external_system import ExternalSystem, SystemRefused, SystemUnreachable
from clonos.connectors.tls_context import is_of_tls, tls_advice
from clonos.core.model.errors import ClonosError

REFUSED: Final = frozenset({402, 403, 404, 406, 530, 540})
"""Reply codes of the broker that no retry changes."""
_PASSING: Final = re.compile(r"exclusive use|down or inaccessible|acknowledgement .*timed out|not available")
TOO_LARGE: Final = "larger than configured max size"
_LOGIN: Final = frozenset({"AuthenticationError", "ProbableAuthenticationError", "ProbableAccessDeniedError"})


RABBITMQ: Final = ExternalSystem(
    "RabbitMQ",
    module="pika",
    package="pika",
    extra="rabbitmq",
    unreachable_advice="Check that the broker runs and that every process of the job reaches it, then resume.",
    refused_advice="Correct the name, the credentials or the rights; queues and exchanges must exist before the job"
    " starts.",
)
SIZE_ADVICE: Final = (
    "Drop or cut such rows in a step before the sink, or raise max_message_size of the broker, and resume the job: no"
    " row is lost."
)
ROUTE_ADVICE: Final = "Bind a queue to it, or correct routing_key=, and resume the job: no row is lost."


def failure_of(broker: str, doing: str, error: Any, clean: Callable[[str], str]) -> ClonosError:
    """Returns what an exception of pika means: an error of the job, or a fault that may pass.

    ``clean`` removes passwords from a text.
    """
    cause = innermost(error)
    code = getattr(cause, "reply_code", 0)
    text = str(getattr(cause, "reply_text", "")) or str(cause) or type(cause).__name__
    is_refused = type(cause).__name__ in _LOGIN or (code in REFUSED and not _PASSING.search(text))
    if is_refused or is_of_tls(cause):
        reason = _sentence(clean(text))
        return SystemRefused(RABBITMQ, broker, doing, reason, tls_advice(reason))
    return SystemUnreachable(RABBITMQ, broker, doing, _sentence(clean(text)))


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
