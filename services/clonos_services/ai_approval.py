"""Approval of a call of a tool: the agent awaits an event of its key, for days if need be."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from clonos.io.system.wall_clock import Timedelta
from clonos_services.awaiting import AwaitTimeout, await_event
from clonos_services.calls import recorded_call

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


def refusal_of(
    approval: Approval, within: str | float | Timedelta | None, notify: Callable[[Approval], object] | None
) -> str | None:
    """Awaits the approval of a call. Returns what the model sees of a refusal, None if the call may be made.

    Raises: CallCancelled; errors of ``notify``.
    """
    if notify is not None:
        _notify(approval, notify)
    try:
        answer = await_event(approval.event, timeout=within)
    except AwaitTimeout as timeout:
        return f"{REFUSED}: {timeout}"
    if answer is True or (isinstance(answer, Mapping) and answer.get(APPROVED) is True):
        return None
    reason = answer.get(REASON) if isinstance(answer, Mapping) else answer
    return f"{REFUSED}: {reason}" if isinstance(reason, str) and reason else REFUSED


def _notify(approval: Approval, notify: Callable[[Approval], object]) -> None:
    def perform(_key: str) -> None:
        notify(approval)

    asked = approval.event, approval.key, msgspec.to_builtins(dict(approval.arguments), order="deterministic")
    recorded_call(f"{approval.tool}.notify", lambda: asked, perform)
