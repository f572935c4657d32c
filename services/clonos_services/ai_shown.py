"""Text that a model sees of a call of a tool: the result, or the error."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, ParamSpec, TypeVar

import msgspec

from clonos.core.log.call_outcomes import error_text
from clonos.core.model.errors import JobError
from clonos.core.values import register
from clonos_services.awaiting import CallCancelled
from clonos_services.service import Service

P = ParamSpec("P")
R = TypeVar("R")

DONE: Final = "done"
"""What the model sees of a tool that returns None."""


class ToolError(Exception):
    """Error that a tool raises for the model, which sees its text: nothing has happened, and the conversation goes on.

    Any other error of a tool with an effect ends the call of the agent, because the effect may have taken place."""


@register
@dataclass(frozen=True, slots=True)
class ErrorShown:
    """Outcome of a tool whose error the model sees: a value, so that a later attempt of the step gets it too."""

    text: str


class ShownService(Service[P, R]):
    """Service of a tool that a model calls: an error that the model sees is its value."""

    def _outcome(self, call: Callable[[], object]) -> object:
        try:
            return super()._outcome(call)
        except ToolError as error:
            return ErrorShown(error_text(error))
        except (JobError, CallCancelled):
            raise
        except Exception as error:
            if self.effect:
                raise
            return ErrorShown(f"{type(error).__name__}: {error_text(error)}")


def as_json(found: object) -> str:
    """Returns what the model sees of a result: as JSON, the same in each process, or that it has no such form."""
    try:
        plain = msgspec.to_builtins(found, str_keys=True, order="deterministic")
        return json.dumps(plain, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        return f"{DONE}, but the result cannot be shown as JSON: {error}"
