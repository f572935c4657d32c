"""Replies that come in pieces: the text so far is shown, and the whole is put together as a reply that comes at once.

A piece is an event of the protocol: a line ``data: {...}`` with what is new. The last one is ``data: [DONE]``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Final

import msgspec

from clonos.io.system.json_decoders import decoder_of
from clonos_services.model_answer import Unusable

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
    index: int = 0
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


class ReplyPieces:
    """Reply of which the events come one after the other."""

    def __init__(self) -> None:
        self._rest = b""
        self._is_done = False
        self._head: dict[str, str] = {}
        self._finish_reason: str | None = None
        self._usage: dict[str, Any] | None = None
        self._refusal: str | None = None
        self._calls: dict[int, dict[str, str]] = {}
        self.text: str | None = None

    def take(self, data: bytes) -> None:
        """Takes the next bytes. Raises: Unusable: an event is malformed, or an error."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            if line.startswith(LINE):
                self._take_event(line[len(LINE) :].strip())

    def body(self) -> bytes:
        """Returns the body of the reply. Raises: Unusable: it has no end."""
        self.take(b"\n")
        if not (self._is_done or self._finish_reason):
            raise Unusable("it ends in its middle")
        message: dict[str, Any] = {"role": "assistant", "content": self.text}
        if self._refusal is not None:
            message["refusal"] = self._refusal
        if self._calls:
            message["tool_calls"] = [
                {
                    "id": call["id"],
                    "type": "function",
                    "function": {"name": call["name"], "arguments": call["arguments"]},
                }
                for _, call in sorted(self._calls.items())
            ]
        choice = {"index": 0, "message": message, "finish_reason": self._finish_reason}
        return msgspec.json.encode({**self._head, "choices": [choice], "usage": self._usage})

    def _take_event(self, data: bytes) -> None:
        if data == DONE:
            self._is_done = True
            return
        try:
            event = decoder_of(_Event).decode(data)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise Unusable(f"a piece of it is malformed: {error}") from error
        if event.error is not None:
            raise Unusable("a piece of it is an error")
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
            call = self._calls.setdefault(part.index, {"id": "", "name": "", "arguments": ""})
            call["id"] += part.id or ""
            if part.function is not None:
                call["name"] += part.function.name or ""
                call["arguments"] += part.function.arguments or ""


class Showing:
    """Shows the text of a reply while its bytes come, and no text twice in a row. ``secret``: what is not shown."""

    def __init__(self, show: Show) -> None:
        self._show: Show | None = show
        self.secret = ""
        self._shown = ""
        self._pieces = ReplyPieces()

    def take(self, data: bytes) -> None:
        """Takes the next bytes of a reply. Empty: a reply begins, in place of any before."""
        if not data:
            self._pieces = ReplyPieces()
        try:
            self._pieces.take(data)
        except Unusable:  # the whole reply raises it
            return
        self.show(self._pieces.text or "")

    def show(self, text: str) -> None:
        """Shows a text. An exception ends that, and is a warning: the reply is paid for."""
        text = text.replace(self.secret, "***") if self.secret else text
        if self._show is None or text == self._shown:
            return
        self._shown = text
        try:
            self._show(text)
        except Exception:
            logger.warning("on_text= has raised an exception, and gets no more of this reply", exc_info=True)
            self._show = None


def whole_body(content: bytes) -> bytes:
    """Returns the body of a reply, also of one in pieces. Raises: Unusable."""
    if not content.lstrip().startswith(LINE):
        return content
    pieces = ReplyPieces()
    pieces.take(content)
    return pieces.body()
