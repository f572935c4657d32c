"""Slots that outlive their driver: a file by which the next driver finds them.

Only the user may enter its folder. A slot is in the file before the coordinator hears of it, so a process that is not
in it hosts nothing. A number of a process is never trusted alone: its start time and the boot are compared.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from pathlib import Path

import msgspec

from clonos.core.model.errors import EnvironmentFault
from clonos.core.model.ids import SlotId
from clonos.core.wire.control_messages import Register
from clonos.core.wire.decoding import DECODE_ERRORS
from clonos.io.system.entropy import random_bytes
from clonos.io.system.process_identity import machine, started_at
from clonos.io.system.readiness import wait_readable


class RetainedSlot(msgspec.Struct, frozen=True):
    """Slot as it registered, and when its process started."""

    register: Register
    started_at: str


class RetainedRecord(msgspec.Struct, frozen=True):
    """Slots of one job. ``driver_folder``: name of the local folder in which their driver listens. ``built_of``: what
    must be equal in the next driver."""

    machine: str
    driver_folder: str
    built_of: str
    slots: tuple[RetainedSlot, ...] = ()


class RetainedSlots:
    """File of the slots of a job. One thread calls the methods."""

    def __init__(self, file: Path) -> None:
        """Reads the file. Raises: EnvironmentFault."""
        self._file = file
        found = self._read()
        self.record = found if found is not None else RetainedRecord(machine(), f"driver-{random_bytes(6).hex()}", "")

    def _read(self) -> RetainedRecord | None:
        try:
            found = msgspec.json.decode(self._file.read_bytes(), type=RetainedRecord)
        except (FileNotFoundError, *DECODE_ERRORS):
            return None
        except OSError as error:  # as without free descriptors: the slots may live
            raise EnvironmentFault(f"the list of the job's slots, {self._file}, cannot be read: {error}") from None
        return found if found.machine == machine() else None

    def _write(self) -> None:
        new = self._file.with_name(f".{self._file.name}")
        new.touch(0o600)
        new.write_bytes(msgspec.json.encode(self.record))
        os.replace(new, self._file)

    def end_if_any(self) -> None:
        """Ends every slot, if there are any. Raises: EnvironmentFault."""
        if self.record.slots:
            self.end_all()

    def living(self) -> tuple[RetainedSlot, ...]:
        """Returns the slots whose process runs. None can be watched on systems without descriptors of processes.

        Raises: EnvironmentFault: the system does not say it.
        """
        return tuple(each for each in self.record.slots if started_at(each.register.pid) == each.started_at)

    def begin(self, built_of: str, slots: tuple[RetainedSlot, ...]) -> None:
        """Notes what the slots are built of, and with which ones the driver begins."""
        self.record = msgspec.structs.replace(self.record, built_of=built_of, slots=slots)
        self._write()

    def add(self, register: Register) -> None:
        """Adds a slot that registers."""
        new = RetainedSlot(register, started_at(register.pid))
        self.record = msgspec.structs.replace(self.record, slots=(*self.record.slots, new))
        self._write()

    def remove(self, slot: SlotId) -> None:
        """Removes a slot whose process has ended."""
        left = tuple(each for each in self.record.slots if each.register.slot != slot)
        self.record = msgspec.structs.replace(self.record, slots=left)
        self._write()

    def end_all(self) -> None:
        """Ends every slot that lives, and waits for its end. Raises: EnvironmentFault."""
        for each in self.record.slots:
            descriptor = opened(each)
            if descriptor is not None:
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)
                wait_readable(descriptor)
                os.close(descriptor)
        self.record = msgspec.structs.replace(self.record, slots=())
        self._write()


def opened(slot: RetainedSlot) -> int | None:
    """Returns a descriptor of the process of a slot, which is readable when it has ended; None if it has.

    Raises: EnvironmentFault: there is no free descriptor, so nobody knows whether it has.
    """
    pid = slot.register.pid
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return None
    except OSError as error:
        raise EnvironmentFault(f"the slot in process {pid} cannot be watched: {error}") from None
    with ExitStack() as stack:
        stack.callback(os.close, descriptor)
        if started_at(pid) != slot.started_at:  # looked at while the descriptor holds the number
            return None
        stack.pop_all()
    return descriptor


_retained: ContextVar[RetainedSlots | None] = ContextVar("retained slots", default=None)


def retained_slots() -> RetainedSlots | None:
    """Returns the file of the job that starts; None if its slots end with their driver."""
    return _retained.get()


@contextmanager
def retaining_slots(retained: RetainedSlots | None) -> Iterator[None]:
    """Context in which the slots of the job that starts outlive their driver."""
    before = _retained.set(retained)
    try:
        yield
    finally:
        _retained.reset(before)
