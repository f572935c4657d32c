"""Replies that come in pieces: the text so far is shown, and the whole is put together as a reply that comes at once.

A piece is an event of the protocol: a line ``data: {...}`` with what is new. The last one is ``data: [DONE]``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import msgspec

from clonos.io.http.http_errors import shown_text
from clonos.io.system.json_decoders import decoder_of
from clonos_services.key_mask import KeyMask

logger = logging.getLogger(__name__)

Show = Callable[[str], object]
"""Takes the text that a model has said so far."""

STREAMED: Final[dict[str, Any]] = {"stream": True, "stream_options": {"include_usage": True}}
"""Parameters by which a server sends its reply in pieces."""

LINE: Final = b"data:"
DONE: Final = b"[DONE]"


class _Function(msgspec.Struct):
    name: str | None = None
    arguments: str | None = None


class _ToolCall(msgspec.Struct):
    index: int | None = None
    id: str | None = None
    function: _Function | None = None


class _Delta(msgspec.Struct):
    content: str | None = None
    refusal: str | None = None
    tool_calls: list[_ToolCall] | None = None


class _Choice(msgspec.Struct):
    index: int = 0
    delta: _Delta | None = None
    finish_reason: str | None = None


class _Event(msgspec.Struct):
    id: str | None = None
    model: str | None = None
    choices: list[_Choice] = []
    usage: dict[str, Any] | None = None
    error: Any = None


@dataclass(slots=True)
class _CallSoFar:
    index: int
    id: str = ""
    name: str = ""
    arguments: str = ""


class WholeReply(NamedTuple):
    """Reply without the key. ``problem``: why it cannot be used, "" if its end has come. ``excerpt``: of it, for the
    error."""

    body: bytes
    problem: str
    excerpt: bytes


class ReplyPieces:
    """Reply of which the events come one after the other. ``problem``: that of the first unusable event, "" if all
    can be used."""

    def __init__(self) -> None:
        self._rest = b""
        self._is_done = False
        self._head: dict[str, str] = {}
        self._finish_reason: str | None = None
        self._usage: dict[str, Any] | None = None
        self._refusal: str | None = None
        self._calls: list[_CallSoFar] = []
        self.text: str | None = None
        self.problem = ""

    def take(self, data: bytes) -> None:
        """Takes the next bytes."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            if line.startswith(LINE):
                self._take_event(line[len(LINE) :].strip())

    def end(self) -> None:
        """Takes the end of the reply."""
        self.take(b"\n")
        if not (self._is_done or self._finish_reason):
            self._fail("it ends in its middle")

    def words(self) -> str:
        """Returns what the model has said so far, in words or to tools."""
        return self.text or self._refusal or " ".join(call.arguments for call in self._calls)

    def body(self) -> bytes:
        """Returns the body of the reply so far."""
        message: dict[str, Any] = {"role": "assistant", "content": self.text}
        if self._refusal is not None:
            message["refusal"] = self._refusal
        if self._calls:
            message["tool_calls"] = [
                {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
                for call in sorted(self._calls, key=lambda call: call.index)
            ]
        choice = {"index": 0, "message": message, "finish_reason": self._finish_reason}
        return msgspec.json.encode({**self._head, "choices": [choice], "usage": self._usage})

    def _fail(self, problem: str) -> None:
        self.problem = self.problem or problem

    def _take_event(self, data: bytes) -> None:
        if data == DONE:
            self._is_done = True
            return
        try:
            event = decoder_of(_Event).decode(data)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            self._fail(f"a piece of it is malformed: {error}")
            return
        if event.error is not None:
            self._fail(f"a piece of it is an error: {msgspec.json.encode(event.error).decode()}")
        for name, value in (("id", event.id), ("model", event.model)):
            if value:
                self._head[name] = value
        self._usage = event.usage or self._usage
        for choice in event.choices:
            if choice.index == 0:
                self._take_choice(choice)

    def _take_choice(self, choice: _Choice) -> None:
        self._finish_reason = choice.finish_reason or self._finish_reason
        delta = choice.delta or _Delta()
        if delta.content is not None:
            self.text = (self.text or "") + delta.content
        if delta.refusal is not None:
            self._refusal = (self._refusal or "") + delta.refusal
        for part in delta.tool_calls or ():
            self._take_call(part, part.function or _Function())

    def _take_call(self, part: _ToolCall, function: _Function) -> None:
        """Takes a part of a call of a tool. Servers that give no index, or always the same, give each call its id."""
        of_index = (call for call in reversed(self._calls) if part.index in (None, call.index))
        call = next(of_index, None)
        if call is None or (part.id and call.id and part.id != call.id):
            if part.index is None and not part.id:
                self._fail("a call of a tool has neither an index nor an id")
            call = _CallSoFar(len(self._calls) if part.index is None else part.index)
            self._calls.append(call)
        elif part.index is None and not part.id and function.name:
            self._fail("a call of a tool has neither an index nor an id")
        call.id = part.id or call.id
        if function.name != call.name:  # some servers repeat it
            call.name += function.name or ""
        call.arguments += function.arguments or ""


class Showing:
    """Shows the text of a reply while its bytes come, and no text twice in a row. ``mask``: over what is not shown."""

    def __init__(self, show: Show) -> None:
        self._show: Show | None = show
        self.mask = KeyMask("")
        self._shown = ""
        self._pieces = ReplyPieces()

    def take(self, data: bytes) -> None:
        """Takes the next bytes of a reply. Empty: a reply begins, in place of any before."""
        if not data:
            self._pieces = ReplyPieces()
        self._pieces.take(data)
        if not self._pieces.problem:  # the whole reply has it as its error
            self.show(self.mask.so_far(self._pieces.text or ""))

    def show(self, text: str) -> None:
        """Shows a text. An exception ends that, and is a warning: the reply is paid for."""
        text = self.mask.whole(text)
        if self._show is None or text == self._shown:
            return
        self._shown = text
        try:
            self._show(text)
        except Exception:
            logger.warning("on_text= has raised an exception, and gets no more of this reply", exc_info=True)
            self._show = None


def whole_reply(content: bytes, mask: KeyMask) -> WholeReply:
    """Returns a reply, also one in pieces: a line of it begins with ``data:``, which no line of JSON does."""
    if not any(line.startswith(LINE) for line in content.split(b"\n")):
        masked = mask.body(content)
        return WholeReply(masked, "", masked)
    pieces = ReplyPieces()
    pieces.take(content)
    pieces.end()
    problem = shown_text(mask.whole(pieces.problem))
    excerpt = mask.so_far(pieces.words()).encode("utf-8", "replace") or mask.body(content.rstrip())
    return WholeReply(mask.body(pieces.body()), problem, excerpt)
