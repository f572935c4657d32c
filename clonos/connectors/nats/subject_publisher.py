"""Publisher of one sink task to NATS: a connection on which a stream confirms each message.

The confirmations come to an inbox of the publisher, because ``publish_async`` of nats-py never ends for a message that
a stream refuses.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from typing import Any, Final

from clonos.connectors.kit.broker_sink import CONFIRM_S, Outgoing, Published
from clonos.connectors.kit.external_system import MessageRefused, SystemUnreachable
from clonos.connectors.nats.loop_thread import LoopThread
from clonos.connectors.nats.nats_address import Connection, NatsAddress
from clonos.connectors.nats.nats_errors import NATS, ROW_ADVICE, TOO_LARGE
from clonos.core.model.errors import EnvironmentFault

STREAM_HEADER: Final = "Nats-Expected-Stream"
NO_RESPONDERS: Final = "503"


class SubjectPublisher:
    """Connection that publishes to streams. ``stream`` None: to whichever has the subject."""

    def __init__(self, server: NatsAddress, stream: str | None, confirm_s: float = CONFIRM_S) -> None:
        """Connects.

        Raises: SystemRefused, SystemUnreachable, ExtraMissing, SecretMissing, InvalidConnector.
        """
        self._server, self._confirm_s = server, confirm_s
        self._headers = {} if stream is None else {STREAM_HEADER: stream}
        self._thread = LoopThread("nats.sink")
        try:
            self._connection: Connection = self._thread.run(Connection.opened(server))
            self._batch: _Batch = self._thread.run(self._begun())
        except BaseException:
            self._thread.close()
            raise

    def publish(self, batch: list[Outgoing]) -> Published:
        """Publishes messages, and waits until each is confirmed or refused.

        Raises: MessageRefused: the stream or the server refuses a row for good. SystemRefused.
        """
        found: Published = self._thread.run(self._publish(batch))
        return found

    def close(self) -> None:
        """Closes the connection."""
        self._thread.run(self._connection.close())
        self._thread.close()

    async def _begun(self) -> _Batch:
        batch = _Batch(self._connection.raw.new_inbox())
        subscribing = self._connection.raw.subscribe(f"{batch.inbox}.*", cb=batch.on_reply)
        await self._connection.answer("subscribing to confirmations", subscribing)
        return batch

    async def _publish(self, batch: list[Outgoing]) -> Published:
        doing = f"publishing to {batch[0].target}"
        failure: EnvironmentFault | None = None
        self._batch.begin({each.number for each in batch})
        try:
            await self._connection.answer(doing, self._send(batch))
            if not await self._connection.answer(doing, self._batch.is_answered(self._confirm_s)):
                reason = f"no stream has confirmed in {self._confirm_s:g} s"
                if self._batch.has_foreign_answer:
                    reason += ", but something else has answered: does a service listen to the subject?"
                failure = SystemUnreachable(NATS, self._server.place, doing, reason)
        except EnvironmentFault as error:
            failure = error
        for each in batch:
            refusal = self._batch.refused.get(each.number)
            if refusal is not None:
                failure = failure or self._failure(each, refusal)
        return Published(self._batch.confirmed, failure, not self._connection.raw.is_closed)

    async def _send(self, batch: list[Outgoing]) -> None:
        """Publishes messages.

        Raises: MessageRefused: the server does not take so large a message.
        """
        raw, inbox = self._connection.raw, self._batch.inbox
        for each in batch:
            try:
                headers = {**each.properties, **self._headers}
                await raw.publish(each.target, each.payload, reply=f"{inbox}.{each.number}", headers=headers)
            except self._server.library().errors.MaxPayloadError:
                raise _refused(each, f"it has {len(each.payload)} bytes, the server takes {raw.max_payload}") from None
        await raw.flush()

    def _failure(self, each: Outgoing, refusal: dict[str, Any]) -> EnvironmentFault:
        """Returns why a row is not confirmed now.

        Raises: MessageRefused, SystemRefused: it never will be.
        """
        text = str(refusal.get("description", refusal))
        if refusal.get("err_code") == TOO_LARGE:
            raise _refused(each, self._server.clean(text))
        found = self._server.refusal(f"publishing to {each.target}", text, refusal.get("code"))
        if not isinstance(found, EnvironmentFault):
            raise found
        return found


class _Batch:
    """Messages that are on their way, and what came back."""

    def __init__(self, inbox: str) -> None:
        self.inbox = inbox
        self.confirmed: set[int] = set()
        self.refused: dict[int, dict[str, Any]] = {}
        self.has_foreign_answer = False
        self._waiting: set[int] = set()
        self._done = asyncio.Event()

    def begin(self, numbers: set[int]) -> None:
        """Begins a batch."""
        self.confirmed, self.refused, self.has_foreign_answer = set(), {}, False
        self._waiting = numbers
        self._done.clear()

    async def is_answered(self, limit_s: float) -> bool:
        """Returns whether the stream has confirmed or refused each message in time."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._done.wait(), limit_s)
        return not self._waiting

    async def on_reply(self, raw: Any) -> None:
        """Takes the answer to one message."""
        number = int(raw.subject.rpartition(".")[2])
        if number not in self._waiting:  # of an earlier batch
            return
        refusal: dict[str, Any] | None
        if (raw.headers or {}).get("Status") == NO_RESPONDERS:
            refusal = {"description": "no stream takes the subject"}
        else:
            answer = _answer_of_stream(raw.data)
            if answer is None:
                self.has_foreign_answer = True
                return
            refusal = answer.get("error")
        self._waiting.remove(number)
        if refusal is None:
            self.confirmed.add(number)
        else:
            self.refused[number] = refusal
        if not self._waiting:
            self._done.set()


def _answer_of_stream(data: bytes) -> dict[str, Any] | None:
    """Returns what a stream has answered; None if it is a service that has the same subject."""
    try:
        answer = json.loads(data)
    except ValueError:
        return None
    if not isinstance(answer, dict):
        return None
    is_confirmed = isinstance(answer.get("stream"), str) and type(answer.get("seq")) is int
    return answer if is_confirmed or isinstance(answer.get("error"), dict) else None


def _refused(each: Outgoing, reason: str) -> MessageRefused:
    return MessageRefused(f"the subject {each.target}", each.shown_row, reason, ROW_ADVICE)
