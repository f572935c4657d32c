"""Errors of NATS sources and sinks: the class says whose fault it is, the message says where and what to do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from clonos.connectors.tls_context import is_of_tls, tls_advice
from clonos.core.model.errors import ClonosError, EnvironmentFault, JobError
from clonos.operators.row_errors import ERRORS_ADVICE, RecordError

ACCOUNT_WITHOUT_JETSTREAM: Final = 10039
TOO_LARGE: Final = 10054
_OF_RIGHTS: Final = (
    "authorization violation",
    "permissions violation",
    "user authentication",
    "account authentication",
)


class NatsUnreachable(EnvironmentFault):
    """A NATS server cannot be reached, has closed the connection, or does not answer."""

    server: str
    doing: str
    reason: str

    def __str__(self) -> str:
        return (
            f"NATS at {self.server} failed at {self.doing}: {self.reason}. Check that the server runs with JetStream"
            " and that every process of the job reaches it, then resume."
        )


class NatsRefused(JobError):
    """A NATS server refuses what the job asks for: its credentials, its rights, a stream or a subject."""

    server: str
    doing: str
    reason: str

    def __str__(self) -> str:
        other = "Correct the name, the credentials or the rights; streams must exist before the job starts."
        return f"NATS at {self.server} refused {self.doing}: {self.reason}. {tls_advice(self.reason) or other}"


class MessagesLost(EnvironmentFault):
    """The messages that a source reads next are no longer in the stream."""

    stream: str
    sequence: int
    reason: str

    def __str__(self) -> str:
        return (
            f"the stream {self.stream} has lost messages that the job may not have read: sequence {self.sequence} is"
            f" next, but {self.reason}. To go on without them, start afresh with --overwrite."
        )


class MessageRefused(JobError):
    """A stream refuses a row, for example because it is too large."""

    subject: str
    row: str
    reason: str

    def __str__(self) -> str:
        return (
            f"the row {self.row} cannot be published to {self.subject}: {self.reason}. Drop or cut such rows in a step"
            " before the sink, or raise the limit of the stream or of the server, and resume the job: no row is lost."
        )


class PayloadMalformed(RecordError):
    """The payload of a message cannot be decoded."""

    stream: str
    sequence: int
    subject: str
    reason: str

    def __str__(self) -> str:
        return f"{self.set_aside_text()}{ERRORS_ADVICE}"

    def set_aside_text(self) -> str:
        """See ``RecordError``."""
        return f"sequence {self.sequence} of the stream {self.stream}, subject {self.subject}: {self.reason}."


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
        return NatsRefused(server, doing, text)
    return NatsUnreachable(server, doing, text)


def is_of_rights(error: object) -> bool:
    """Returns whether the text of an error is about credentials, certificates or rights."""
    return is_of_tls(error) or any(words in str(error).lower() for words in _OF_RIGHTS)
