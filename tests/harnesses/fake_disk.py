"""A disk that does one operation at a time, when the test says so, and fails when the test says so."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from clonos.core.channel.inflight_budget import InflightBudget
from clonos.core.channel.inflight_log import Chunk, InflightLog
from clonos.core.model.ids import ChannelId
from clonos.core.model.options import Options, SpillPolicy

Work = tuple[str, int, list[bytes]]


class FakeDisk:
    """A ``SpillStore``. ``asked`` has the waiting operations; ``do`` performs the oldest."""

    def __init__(self) -> None:
        self.files: dict[int, list[bytes]] = {}
        self.asked: deque[Work] = deque()
        self.is_full = False
        self.is_unreadable = False
        self.written = 0
        self.loaded = 0
        self.on_spilled: Callable[[int, int, str], object] = lambda *_: None
        self.on_loaded: Callable[[int, list[bytes] | None, str], object] = lambda *_: None

    def write_segment(self, segment: int, payloads: list[bytes]) -> None:
        assert segment not in self.files, segment
        self.asked.append(("write", segment, list(payloads)))

    def load(self, segment: int) -> None:
        assert segment in self.files, segment
        self.asked.append(("load", segment, []))

    def delete(self, segment: int) -> None:
        self.asked = deque(work for work in self.asked if work[1] != segment)
        self.files.pop(segment, None)

    def do(self, count: int = 1) -> int:
        """Performs the oldest operations; returns their number."""
        done = 0
        while self.asked and done < count:
            done += 1
            what, segment, payloads = self.asked.popleft()
            if what == "load":
                self._load(segment)
            else:
                self._write(segment, payloads)
        return done

    def do_all(self) -> None:
        """Performs operations until none is left."""
        while self.do():
            pass

    def _write(self, segment: int, payloads: list[bytes]) -> None:
        if self.is_full:
            self.on_spilled(segment, 0, "no space left on the disk of the test")
            return
        self.written += 1
        self.files[segment] = payloads
        self.on_spilled(segment, sum(map(len, payloads)), "")

    def _load(self, segment: int) -> None:
        if self.is_unreadable:
            self.on_loaded(segment, None, f"segment {segment} of the disk of the test is damaged")
            return
        self.loaded += 1
        self.on_loaded(segment, self.files[segment], "")

    @property
    def stored_bytes(self) -> int:
        """Bytes of all files."""
        return sum(sum(map(len, payloads)) for payloads in self.files.values())


def options_of(policy: SpillPolicy = SpillPolicy.AVAILABILITY, memory_bytes: int = 4_000, **more: int) -> Options:
    """A small budget."""
    return Options(spill_policy=policy, inflight_memory_bytes=memory_bytes, **more)  # type: ignore[arg-type]


def new_budget(options: Options) -> tuple[InflightBudget, FakeDisk]:
    """A budget and its disk."""
    disk = FakeDisk()
    budget = InflightBudget(options, disk)
    disk.on_spilled = budget.spilled
    disk.on_loaded = lambda segment, payloads, _error: budget.loaded(segment, payloads)
    return budget, disk


def new_log(options: Options, channel: int = 0, next_seq: int = 0) -> tuple[InflightLog, FakeDisk]:
    """A new log with its disk."""
    budget, disk = new_budget(options)
    return InflightLog(ChannelId(channel), next_seq, budget), disk


def read(log: InflightLog, disk: FakeDisk, seq: int) -> Chunk:
    """Reads a chunk, after as many operations of the disk as it needs."""
    while (chunk := log.read(seq)) is None:
        assert disk.do(), f"element {seq} waits, and the disk has nothing to do"
    return chunk


def read_all(log: InflightLog, disk: FakeDisk) -> list[Chunk]:
    """Payloads of all chunks, oldest first."""
    found = []
    seq = log.start_seq
    while seq < log.next_seq:
        chunk = read(log, disk, seq)
        found.append(chunk)
        seq = chunk.first_seq + chunk.count
    return found
