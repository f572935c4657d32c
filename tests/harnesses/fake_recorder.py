"""A recorder that keeps its log in a list: the contract of ``clonos.core.ports.recorder`` in few lines."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count

from clonos.core.log.call_outcomes import CallInDoubt, decode_outcome, encode_outcome
from clonos.core.log.call_usage import CallAccount, outcome_of
from clonos.core.model.metric_series import MetricTable

Entry = tuple[str, object]
FIRST_INSTANT_NS = 1_700_000_000_000_000_000


class FakeRecorder:
    """One incarnation of one task. ``successor()`` is the next: it replays the log of this one, then goes live."""

    def __init__(self, log: tuple[Entry, ...] = (), ticks: Iterator[int] | None = None, life: int = 0) -> None:
        self.log: list[Entry] = list(log)
        self.calls_made: list[tuple[str, bytes, str]] = []
        self.life = life
        self.metric_table = MetricTable()
        self.account = CallAccount(self.metric_table, 1)
        self._position = 0
        self._ticks = ticks or count(FIRST_INSTANT_NS, 1_000_000)
        self._epoch = 0
        self._seed: bytes | None = None
        self._instant_ns: int | None = None
        self._calls_count = 0

    def successor(self) -> FakeRecorder:
        """The next incarnation, with another clock and other random numbers."""
        life = self.life + 1
        return FakeRecorder(tuple(self.log), count(FIRST_INSTANT_NS + life * 10**12, 1_000_000), life)

    def begin_step(self) -> None:
        """Begins a step: another timestamp."""
        self._instant_ns = None

    def begin_epoch(self) -> None:
        """Begins the epoch after a barrier."""
        self._epoch += 1
        self._seed = None

    @property
    def live(self) -> bool:
        return self._position == len(self.log)

    @property
    def epoch(self) -> int:
        return self._epoch

    def metrics(self, name: str) -> MetricTable:
        return self.metric_table

    def instant_ns(self, exact: bool) -> int:
        if exact or self._instant_ns is None:
            instant = self._entry("CLOCK", lambda: next(self._ticks))
            assert isinstance(instant, int)
            self._instant_ns = instant
        return self._instant_ns

    def seed(self) -> bytes:
        if self._seed is None:
            seed = self._entry("SEED", lambda: bytes([self.life, self._epoch]) * 8)
            assert isinstance(seed, bytes)
            self._seed = seed
        return self._seed

    def call(
        self,
        service: str,
        request: bytes,
        perform: Callable[[str], object],
        *,
        effect: bool = False,
        in_doubt: Callable[[str], object] | None = None,
    ) -> object:
        key = f"call-{self._calls_count}-{request.hex()}"
        self._calls_count += 1
        is_doubtful = False
        if effect:
            is_announced = not self.live
            self._entry("INTENT", lambda: service)
            is_doubtful = is_announced and self.live

        def outcome() -> bytes:
            self.calls_made.append((service, request, key))
            if is_doubtful and in_doubt is None:
                return encode_outcome(service, CallInDoubt(service, key))
            return outcome_of(service, in_doubt if is_doubtful and in_doubt else perform, key, self.account)

        encoded = self._entry("CALL", outcome)
        assert isinstance(encoded, bytes)
        self.account.count_outcome(encoded)
        return decode_outcome(encoded)

    def _entry(self, tag: str, draw: Callable[[], object]) -> object:
        """The next entry of the log, drawn if the log has ended."""
        if self.live:
            # Drawing a value may end this incarnation: then nothing is logged.
            self.log.append((tag, draw()))
        logged, value = self.log[self._position]
        assert logged == tag, f"diverged: logged {logged}, asked for {tag}"
        self._position += 1
        return value
