"""Errors of HTTP sources: the class says whose fault it is, the message says where and what to do."""

from __future__ import annotations

from clonos.core.model.errors import EnvironmentFault, JobError, ProducerGivenUp


class PortUnavailable(EnvironmentFault):
    """The port of ``web.receive`` cannot be opened on this machine."""

    address: str
    reason: str

    def __str__(self) -> str:
        return (
            f"{self.address} cannot be opened to receive requests: {self.reason}. Stop the program that has the port,"
            " or give another port= or host=; a port below 1024 needs rights of the system."
        )


class PollFailed(ProducerGivenUp):
    """An endpoint has not answered for as long as the job waits for it."""

    url: str
    patience: str
    reason: str

    def __str__(self) -> str:
        return (
            f"polling {self.url} has failed for {self.patience}: {self.reason}. Resume the job when the server answers,"
            " or raise patience=."
        )


class PollRefused(JobError):
    """An endpoint refuses requests, and would refuse them again."""

    url: str
    reason: str
    advice: str

    def __str__(self) -> str:
        return f"polling {self.url} cannot go on: {self.reason}. {self.advice}"


class WebSocketFailed(ProducerGivenUp):
    """A WebSocket has had no connection for as long as the job waits for it."""

    url: str
    patience: str
    reason: str

    def __str__(self) -> str:
        return (
            f"{self.url} has had no connection for {self.patience}: {self.reason}. Resume the job when the server"
            " answers, or raise patience=."
        )


class WebSocketRefused(JobError):
    """The server of a WebSocket refuses connections, or sends what the job does not take."""

    url: str
    reason: str
    advice: str

    def __str__(self) -> str:
        return f"receiving from {self.url} cannot go on: {self.reason.rstrip('.')}. {self.advice}"


class AnswerMalformed(JobError):
    """The answer of an endpoint is not what the source expects."""

    url: str
    reason: str

    def __str__(self) -> str:
        return (
            f"the answer of {self.url} {self.reason}. Correct records=, cursor= and identity= of web.poll, or give a"
            " function as cursor=."
        )
