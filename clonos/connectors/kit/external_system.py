"""Kinds of external systems, and the errors of connectors to them: the class says whose fault it is, a field which."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from clonos.core.model.errors import EnvironmentFault, ExtraMissing, JobError, LastingFault
from clonos.operators.row_errors import RecordError


@dataclass(frozen=True)
class ExternalSystem:
    """Kind of external system: its name, the library of its clients, and what a user does about its failures.

    ``module`` is what Python imports, ``package`` is its name in the index, ``extra`` that of the pip extra.
    """

    name: str
    module: str
    package: str
    extra: str
    unreachable_advice: str
    refused_advice: str

    def __str__(self) -> str:
        return self.name

    def library(self, what: str) -> Any:
        """Returns the module of the library, without its log: what matters of it is in the errors of the connectors.

        Raises: ExtraMissing: it is not installed, and ``what`` needs it.
        """
        try:
            found = import_module(self.module)
        except ImportError as error:
            if isinstance(error, ModuleNotFoundError) and error.name != self.module:
                raise
            raise ExtraMissing(what, self.package, self.extra) from None
        log = logging.getLogger(self.module)
        if log.level == logging.NOTSET:
            log.setLevel(logging.CRITICAL + 1)
        return found


class SystemUnreachable(EnvironmentFault):
    """An external system cannot be reached, has closed the connection, or does not answer."""

    system: ExternalSystem
    place: str
    doing: str
    reason: str

    def __str__(self) -> str:
        return f"{self.system} at {self.place} failed at {self.doing}: {self.reason}. {self.system.unreachable_advice}"


class SystemRefused(JobError):
    """An external system refuses what the job asks for, and would refuse it again: credentials, rights, a name."""

    system: ExternalSystem
    place: str
    doing: str
    reason: str
    advice: str = ""

    def __str__(self) -> str:
        advice = self.advice or self.system.refused_advice
        return f"{self.system} at {self.place} refused {self.doing}: {self.reason}. {advice}"


class MessageRefused(JobError):
    """A broker does not take a row, for example because it is too large. ``target`` is a topic, a subject or such."""

    target: str
    row: str
    reason: str
    advice: str

    def __str__(self) -> str:
        return f"{self.target} refused the row {self.row}: {self.reason}. {self.advice}"


class InputLost(EnvironmentFault):
    """Loss of what a source reads next."""

    def loss(self) -> str:
        """Returns what is lost and why, in words without a full stop."""
        raise NotImplementedError


class MessagesLost(InputLost):
    """Messages that a source reads next are no longer there. ``stream`` and ``following`` say where, in words."""

    stream: str
    following: str
    reason: str

    def loss(self) -> str:
        """See ``InputLost``."""
        return (
            f"{self.stream} has lost messages that the job may not have read: {self.following} is next, but"
            f" {self.reason}"
        )

    def __str__(self) -> str:
        return f"{self.loss()}. To go on without them, start afresh with --overwrite."


class NumberLost(LastingFault):
    """An external system does not have the number of a sink task's next row, although the task has written rows."""

    place: str
    written: int
    reason: str
    advice: str

    def __str__(self) -> str:
        return (
            f"{self.place} has no number of the next row, or a smaller one, but at least {self.written} rows have been"
            f" written: {self.reason}. Which rows are there cannot be known any more, so nothing is written."
            f" {self.advice}; to go on, start afresh with --overwrite."
        )


class PayloadMalformed(RecordError):
    """The payload of a message, a request or an answer cannot be decoded. ``where`` tells it from others."""

    where: str
    reason: str

    def set_aside_text(self) -> str:
        """See ``RecordError``."""
        return f"{self.where}: {self.reason}."
