"""Connection to RabbitMQ with one channel, in a thread of its own that answers heartbeats while a task is busy."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any, Final

from clonos.connectors.kit.external_system import SystemUnreachable
from clonos.connectors.rabbitmq.broker import CONNECT_TIMEOUT_S, Broker
from clonos.connectors.rabbitmq.rabbitmq_errors import RABBITMQ, failure_of
from clonos.core.model.errors import ClonosError

ANSWER_S: Final = 20.0
"""Time in which the broker has to answer a request."""

CLOSE_S: Final = 2.0
"""Time that the broker has to confirm the end of a connection."""

Reply = Callable[..., None]


class Link:
    """Connection with one channel. Other threads use it by ``ask`` and ``run``."""

    def __init__(self, broker: Broker) -> None:
        """Connects.

        Raises: SystemRefused, SystemUnreachable, ExtraMissing, SecretMissing, InvalidConnector.
        """
        self._broker = broker
        self._lock = threading.Lock()
        self._failure: ClonosError | None = None
        self._is_blocked = False
        self._waiting: set[Future[Any]] = set()
        self._doing = "connecting"
        self.channel: Any = None
        pika = broker.library()
        opened = self._expect()
        self._connection = pika.SelectConnection(
            broker.parameters(),
            on_open_callback=lambda _: self._open_channel(opened),
            on_open_error_callback=lambda _, error: self._fail(error, stop=True),
            on_close_callback=lambda _, error: self._fail(error, stop=True),
        )
        self._connection.add_on_connection_blocked_callback(lambda *_: self._set_blocked(True))
        self._connection.add_on_connection_unblocked_callback(lambda *_: self._set_blocked(False))
        self._thread = threading.Thread(target=self._serve, name=f"rabbitmq {broker.connector}", daemon=True)
        self._thread.start()
        try:
            self._result(opened, "connecting", CONNECT_TIMEOUT_S + 5)
        except BaseException:
            self.close()
            raise

    @property
    def failure(self) -> ClonosError | None:
        """Returns what has ended the connection, None while it is open."""
        return self._failure

    def check(self) -> None:
        """Raises: what has ended the connection."""
        if self._failure is not None:
            raise self._failure

    def ask(self, doing: str, request: Callable[[Any, Reply], None], limit_s: float = ANSWER_S) -> Any:
        """Calls ``request(channel, reply)`` in the thread of the connection, and returns what it replies.

        Raises: SystemRefused, SystemUnreachable.
        """
        answer = self._expect()
        self.run(doing, lambda channel: request(channel, lambda *given: _set(answer, given[0] if given else None)))
        return self._result(answer, doing, limit_s)

    def run(self, doing: str, action: Callable[[Any], None]) -> None:
        """Calls ``action(channel)`` in the thread of the connection, soon. Calls keep their order."""

        def guarded() -> None:
            if self._failure is not None:
                return
            self._doing = doing
            try:
                action(self.channel)
            except Exception as error:  # noqa: BLE001  pika refuses an argument, or the channel is closed
                self._fail(error)

        self._connection.ioloop.add_callback_threadsafe(guarded)

    def close(self) -> None:
        """Ends the connection after what was asked for."""
        self._connection.ioloop.add_callback_threadsafe(self._end)
        self._thread.join(ANSWER_S)
        if not self._thread.is_alive():
            self._connection.ioloop.close()

    # ------------------------------------------------------------------ the thread

    def _serve(self) -> None:
        try:
            self._connection.ioloop.start()
        except Exception as error:  # noqa: BLE001  a frame that pika does not understand
            self._fail(error)

    def _open_channel(self, opened: Future[Any]) -> None:
        def ready(channel: Any) -> None:
            self.channel = channel
            channel.add_on_close_callback(lambda _, error: self._fail(error))
            channel.add_on_cancel_callback(lambda _: self._fail(RuntimeError("the broker has cancelled the consumer")))
            _set(opened, None)

        self._connection.channel(on_open_callback=ready)

    def _fail(self, error: Any, stop: bool = False) -> None:
        """Ends all waiting calls with what the error means."""
        with self._lock:
            if self._failure is None:
                self._failure = failure_of(self._broker.place, self._doing, error, self._broker.clean)
            waiting, self._waiting = self._waiting, set()
        for answer in waiting:
            if not answer.done():
                answer.set_exception(self._failure)
        if stop:
            self._connection.ioloop.stop()

    def _end(self) -> None:
        loop = self._connection.ioloop
        if self._connection.is_closed:
            loop.stop()
            return
        loop.call_later(CLOSE_S, loop.stop)
        if not self._connection.is_closing:
            self._connection.close()

    def _set_blocked(self, is_blocked: bool) -> None:
        self._is_blocked = is_blocked

    def _expect(self) -> Future[Any]:
        answer: Future[Any] = Future()
        with self._lock:
            if self._failure is not None:
                raise self._failure
            self._waiting.add(answer)
        return answer

    def _result(self, answer: Future[Any], doing: str, limit_s: float) -> Any:
        try:
            return answer.result(limit_s)
        except FutureTimeoutError:
            blocked = "it blocks publishers, because it lacks memory or space on its disk"
            reason = blocked if self._is_blocked else f"no answer in {limit_s:g} s"
            raise SystemUnreachable(RABBITMQ, self._broker.place, doing, reason) from None
        finally:
            with self._lock:
                self._waiting.discard(answer)


def _set(answer: Future[Any], value: Any) -> None:
    if not answer.done():
        answer.set_result(value)
