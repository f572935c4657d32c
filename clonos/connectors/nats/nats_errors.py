"""Errors of NATS sources and sinks: the class says whose fault it is, the message says where and what to do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from clonos.connectors.kit.external_system import ExternalSystem, SystemRefused, SystemUnreachable
from clonos.connectors.tls_context import is_of_tls, tls_advice
from clonos.core.model.errors import ClonosError

ACCOUNT_WITHOUT_JETSTREAM: Final = 10039
TOO_LARGE: Final = 10054
_OF_RIGHTS: Final = (
    "authorization violation",
    "permissions violation",
    "user authentication",
    "account authentication",
)


NATS: Final = ExternalSystem(
    "NATS",
    module="nats",
    package="nats-py",
    extra="nats",
    unreachable_advice="Check that the server runs with JetStream and that every process of the job reaches it, then"
    " resume.",
    refused_advice="Correct the name, the credentials or the rights; streams must exist before the job starts.",
)
ROW_ADVICE: Final = (
    "Drop or cut such rows in a step before the sink, or raise the limit of the stream or of the server, and resume the"
    " job: no row is lost."
)


def failure_of(server: str, doing: str, error: BaseException, clean: Callable[[str], str]) -> ClonosError:
    """Returns what an exception of nats-py means: an error of the job, or a fault that may pass.

    ``clean`` removes passwords from a text.
    """
    if isinstance(error, ClonosError):
        return error
    code, number = getattr(error, "code", None), getattr(error, "err_code", None)
    text = getattr(error, "description", None) or str(error).removeprefix("nats: ") or type(error).__name__
    if type(error).__name__ == "ServiceUnavailableError" and number is None:
        text = "JetStream does not answer"
    if type(error).__name__ == "NotFoundError" and number is None:
        text, code = "no stream has it", 404
    return refusal_of(server, doing, clean(text), 400 if number == ACCOUNT_WITHOUT_JETSTREAM else code)


def refusal_of(server: str, doing: str, text: str, code: int | None) -> ClonosError:
    """Returns what an answer of a server means; ``code`` is its status, as that of HTTP."""
    text = " ".join(text.split()).rstrip(".")
    if code in (400, 404) or is_of_rights(text):
        return SystemRefused(NATS, server, doing, text, tls_advice(text))
    return SystemUnreachable(NATS, server, doing, text)


def is_of_rights(error: object) -> bool:
    """Returns whether the text of an error is about credentials, certificates or rights."""
    return is_of_tls(error) or any(words in str(error).lower() for words in _OF_RIGHTS)
