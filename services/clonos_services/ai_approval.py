"""Approval of a call of a tool: the agent awaits an event of its key, for days if need be.

An answer counts for one question. Events wait until a call awaits their name, so a conversation asks under each name
once: an answer that comes late or twice would otherwise approve the next call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping
from typing import Any, Final, NamedTuple

import msgspec

from clonos.core.values import encode_value
from clonos.io.system.wall_clock import Timedelta
from clonos_services.awaiting import AwaitTimeout, await_event
from clonos_services.calls import recorded_call

APPROVED, REASON, ARGUMENTS = "approved", "reason", "arguments"
REFUSED: Final = "refused"
OTHERS: Final = f"{REFUSED}: the approval is one of other arguments"
QUESTION: Final = "approval"
"""Name of the call that records what a question is about."""


class Approval(NamedTuple):
    """Question whether a tool may be called, for ``notify=``. ``event``: the name of the ``Event`` that answers, which
    no other question of the conversation has. ``key``: that of the conversation."""

    event: str
    key: Any
    tool: str
    arguments: Mapping[str, Any]


Approve = bool | Callable[..., str | None]
"""Whether a tool needs an approval, or a function of its arguments that returns the name of the event, None if it needs
none."""


def refusal_of(
    approval: Approval,
    asked: MutableMapping[str, int],
    within: str | float | Timedelta | None,
    notify: Callable[[Approval], object] | None,
) -> str | None:
    """Awaits the approval of a call. Returns what the model sees of a refusal, None if the call may be made.

    ``asked``: how often the conversation has asked under each name. This question is added.

    Raises: CallCancelled; errors of ``notify``.
    """
    plain = _plain(approval)
    approval = _question(approval, plain, asked)
    if notify is not None:
        _notify(approval, notify)
    try:
        answer = await_event(approval.event, timeout=within)
    except AwaitTimeout as timeout:
        return f"{REFUSED}: {timeout}"
    if isinstance(answer, Mapping) and answer.get(APPROVED) is True:
        return None if answer.get(ARGUMENTS, plain) == plain else OTHERS
    if answer is True:
        return None
    reason = answer.get(REASON) if isinstance(answer, Mapping) else answer
    return f"{REFUSED}: {reason}" if isinstance(reason, str) and reason else REFUSED


def _question(approval: Approval, plain: Mapping[str, Any], asked: MutableMapping[str, int]) -> Approval:
    """Returns the question under a name of its own. One of an earlier attempt has its name already, and that question
    may be about another call."""
    about = [approval.tool, plain]
    name = approval.event
    while True:
        number = asked[name] = asked.get(name, 0) + 1
        question = approval._replace(event=name if number == 1 else f"{name} ({number})")
        if encode_value(_recorded(question.event, about)) == encode_value(about):
            return question


def _recorded(event: str, about: list[Any]) -> object:
    """Returns what the question under this name is about."""
    return recorded_call(QUESTION, lambda: event, lambda _key: about)


def _plain(approval: Approval) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.to_builtins(dict(approval.arguments), order="deterministic")
    return plain


def _notify(approval: Approval, notify: Callable[[Approval], object]) -> None:
    def perform(_key: str) -> None:
        notify(approval)

    asked = approval.event, approval.key, _plain(approval)
    recorded_call(f"{approval.tool}.notify", lambda: asked, perform)
