"""Approval of a call of a tool: the agent awaits an event of its key, for days if need be."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from clonos_services.awaiting import AwaitTimeout, await_event
from clonos_services.calls import recorded_call

if TYPE_CHECKING:
    from clonos_services.ai_tool import Tool

APPROVED, REASON = "approved", "reason"
REFUSED: Final = "refused"


class Approval(NamedTuple):
    """Question whether a tool may be called, for ``notify=``. ``event``: the name of the ``Event`` that answers.
    ``key``: that of the conversation."""

    event: str
    key: Any
    tool: str
    arguments: Mapping[str, Any]


Approve = bool | Callable[..., str | None]
"""Whether a tool needs an approval, or a function of its arguments that returns the name of the event, None if it needs
none."""


def refusal_of(tool: Tool[..., Any], arguments: Mapping[str, Any], key: Any) -> str | None:
    """Awaits the approval of a call, if it needs one. Returns what the model is told of a refusal, None if it may be
    made.

    Raises: CallCancelled; errors of ``notify``.
    """
    if not (event := tool.event_of(arguments)):
        return None
    if tool.notify is not None:
        _notify(tool, Approval(event, key, tool.name, arguments))
    try:
        answer = await_event(event, timeout=tool.approve_within)
    except AwaitTimeout as timeout:
        return f"{REFUSED}: {timeout}"
    if answer is True or (isinstance(answer, Mapping) and answer.get(APPROVED) is True):
        return None
    reason = answer.get(REASON) if isinstance(answer, Mapping) else answer
    return f"{REFUSED}: {reason}" if isinstance(reason, str) and reason else REFUSED


def _notify(tool: Tool[..., Any], approval: Approval) -> None:
    def perform(_key: str) -> None:
        assert tool.notify is not None, tool.name
        tool.notify(approval)

    asked = approval.event, approval.key, msgspec.to_builtins(dict(approval.arguments))
    recorded_call(f"{tool.name}.notify", lambda: asked, perform)
