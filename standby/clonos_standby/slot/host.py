"""A slot's process: the I/O thread that owns its sockets and its machine, and the threads around it.

Everything that the other threads report comes through the inbox as an event and is handled here, in order. The machine
decides what the slot does. The process itself decides three things: to repeat its registration until a view comes, to
end itself when no coordinator was reachable for ``orphan_after``, and (in ``store_thread``, ``sink_thread``) how
often a failed call to the store or to a sink is retried before the machine learns of it.
"""

from __future__ import annotations

import gc
import logging
import os
import pickle
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from clonos.core.model.ids import COORDINATOR, SlotId
from clonos.core.ports.recorder import confined_services
from clonos.core.ports.slot_effects import Effect
from clonos.core.slot.slot import Slot
from clonos.core.slot.slot_events import Event, HeartbeatDue, MessageReceived, PeerBack, PeerGone
from clonos.core.values import get_ready_for_columns
from clonos.core.wire.admission import check_for_slot
from clonos.core.wire.channel_messages import Batch, ChannelHandshake, Position
from clonos.core.wire.control_messages import Logged, Peek, Register, View
from clonos.core.wire.messages import Message
from clonos.core.wire.replication_messages import AppendAck, AppendLog
from clonos.core.wire.stack_messages import SampleTask, ShowThreads
from clonos.io.local.local_folder import LocalFolder, default_root, sweep
from clonos.io.net.curve import new_keys
from clonos.io.net.frames import slot_name
from clonos.io.net.listening import towards
from clonos.io.net.peers import PeerAddress
from clonos.io.net.transport import Transport
from clonos.io.process.fault_points import FaultPoints, armed, delivered
from clonos.io.store.store import CheckpointStore
from clonos.io.system.collections_paused import collect_rarely
from clonos.io.system.entropy import random_bytes
from clonos.io.system.last_sign import SignOfLife
from clonos.io.system.open_files import raise_files_limit
from clonos.io.system.wall_clock import SlewedClock
from clonos.operators.job_image import JobImage
from clonos_services.http_settings import use_common_settings
from clonos_standby.inbox import Inbox
from clonos_standby.launch_spec import SWITCH_INTERVAL_S, SlotLaunchSpec, versions
from clonos_standby.slot.effect_executor import EffectExecutor
from clonos_standby.slot.log_forwarding import forwarded
from clonos_standby.slot.story_files import called_by_signal, traced, write_story
from clonos_standby.slot.surroundings import SlotSurroundings

logger = logging.getLogger("clonos.slot")

NANOSECONDS_PER_MS = 1_000_000


class SlotHost:
    """``TransportEvents`` for the sockets, events for the machine. ``run`` returns when the slot has ended.

    ``left``: names of its threads whose user code has not returned then.
    """

    def __init__(
        self,
        launch_spec: SlotLaunchSpec,
        domain: str,
        slot_id: SlotId,
        folder: LocalFolder,
        has_to_end: Callable[[], bool] = lambda: False,
    ) -> None:
        self._launch_spec, self._domain, self.id, self._folder = launch_spec, domain, slot_id, folder
        self._has_to_end = has_to_end
        self.left: list[str] = []
        self._faults = armed(launch_spec.fault_points)
        image: JobImage = pickle.loads(launch_spec.image)  # noqa: S301 from the driver, which is trusted
        use_common_settings(image.http)  # after the modules of the job, which may have set others
        if image.has_columns:
            get_ready_for_columns()
        self._options = image.options
        self._clock = SlewedClock()
        self._born_ns = self._last_message_ns = time.monotonic_ns()
        self._tick_ns = self._options.heartbeat_ms * NANOSECONDS_PER_MS
        self._register_ns = 0
        binding = towards(launch_spec.binding, launch_spec.coordinator_address)
        if binding.folder:
            binding = replace(binding, folder=str(folder.path))
        self._transport = Transport(
            slot_id,
            binding,
            new_keys(),
            silence_ms=self._options.lease_ms,
            address_rewriter=launch_spec.address_rewriter,
            compress=self._options.compress,
        )
        self._transport.add_peer(
            PeerAddress(COORDINATOR, "", launch_spec.coordinator_address, launch_spec.coordinator_key)
        )
        self._sign = SignOfLife(slot_id)
        self._inbox = Inbox(self._transport.wake)
        self._context = context = SlotSurroundings(self.handle, self._inbox, image, self._clock, self._faults)
        self._slot = Slot(slot_id, image.plan, self._options, context.new_mirror)
        self._step: Callable[[Event], list[Effect]] = self._slot.step
        self._end_trace: Callable[[], None] = lambda: None
        store = CheckpointStore(launch_spec.store_url)
        self._executor = EffectExecutor(slot_id, context, self._transport, folder, store)
        self._performers = self._executor.performers

    # ------------------------------------------------------------------ the life

    def run(self) -> str:
        """Runs until the slot is released or is an orphan; returns the reason of its end."""
        try:
            self._step, self._end_trace = traced(self._slot, self._launch_spec.slot_trace)  # its warning is forwarded
            with called_by_signal(lambda: self._inbox.put(write_story, self._slot, self._folder.root)):
                return self._live()
        finally:
            self._close()

    def _live(self) -> str:
        ticks_ns = time.monotonic_ns()
        is_busy = False
        while self._executor.ending is None:
            now_ns = time.monotonic_ns()
            self._sign.give(now_ns)
            if now_ns >= ticks_ns:
                self._tick(now_ns)
                ticks_ns = now_ns + self._tick_ns
            self._transport.poll(0 if is_busy else (ticks_ns - now_ns) / NANOSECONDS_PER_MS, self)
            is_busy = self._inbox.drain()
        return self._executor.ending

    def _tick(self, now_ns: int) -> None:
        if self._has_to_end():
            self._end("its job has ended")
            return
        if not self._slot.view.number and now_ns >= self._register_ns:
            self._register_ns = now_ns + self._options.heartbeat_ms * NANOSECONDS_PER_MS
            self._register()
        self._transport.tick()
        self.handle(HeartbeatDue(now_ns))
        self._executor.look_for_hangs(now_ns)
        self._end_if_orphan(now_ns)

    def _end_if_orphan(self, now_ns: int) -> None:
        """Ends the process when no coordinator was reachable for ``orphan_after_ms``, or when none had accepted the
        registration ``slots_wait_ms + orphan_after_ms`` after the start."""
        options = self._options
        if self._transport.is_open(COORDINATOR):
            self._last_message_ns = now_ns
        elif now_ns - self._last_message_ns > options.orphan_after_ms * NANOSECONDS_PER_MS:
            self._end(f"no coordinator for {options.orphan_after_ms} ms")
        unwanted_ms = options.slots_wait_ms + options.orphan_after_ms
        if not self._slot.view.number and now_ns - self._born_ns > unwanted_ms * NANOSECONDS_PER_MS:
            self._end(f"no coordinator has taken it for {unwanted_ms} ms")

    def _end(self, reason: str) -> None:
        self._executor.ending = reason

    def _register(self) -> None:
        message = Register(
            slot=self.id,
            domain=self._domain,
            host=socket.gethostname(),
            data_address=self._transport.data_address,
            control_address=self._transport.control_address,
            public_key=self._transport.public_key,
            token=self._launch_spec.token,
            pid=os.getpid(),
            versions=versions(),
        )
        self._transport.send(COORDINATOR, message)

    def _close(self) -> None:
        self._inbox.close()
        self.left = self._executor.close()
        self._end_trace()
        self._transport.close()
        self._sign.close()

    # ------------------------------------------------------------------ TransportEvents

    def on_message(self, sender: SlotId, message: Message, payload: bytes | memoryview) -> None:
        """Passes a message to the machine. Peers of a new view are admitted before it, others removed after it."""
        if self._faults is not None:
            self._reach_delivered(self._faults, message)
        if sender == COORDINATOR and isinstance(message, View) and message.number > self._slot.view.number:
            check_for_slot(self._slot.plan_of(message), sender, message)  # before its peers are let in
            for address in message.slots:
                if address.slot != self.id:
                    self._transport.add_peer(
                        PeerAddress(address.slot, address.data_address, address.control_address, address.public_key)
                    )
            self.handle(MessageReceived(sender, message, payload))
            self._transport.retain_peers({COORDINATOR, *(address.slot for address in message.slots)})
            return
        if sender == COORDINATOR and isinstance(message, ShowThreads | SampleTask):
            self._executor.show_stacks(message)
            return
        if sender == COORDINATOR and isinstance(message, Peek):
            self._executor.peek(message)  # the task may be one of another plan, which has no such step
            return
        self.handle(MessageReceived(sender, message, payload))

    def _reach_delivered(self, faults: FaultPoints, message: Message) -> None:
        if not isinstance(
            message, Batch | Position | ChannelHandshake | AppendLog | AppendAck
        ):  # those of channels are too many
            task = getattr(message, "task", None)
            faults.reach(delivered(str(message.__struct_config__.tag)), self._context.name_of(task), f"{self.id:x}")

    def on_peer_gone(self, slot: SlotId) -> None:
        """Reports a peer whose connection broke for good."""
        if slot != COORDINATOR:
            self.handle(PeerGone(slot))

    def on_peer_back(self, slot: SlotId) -> None:
        """Reports a peer whose broken connection is open again."""
        self.handle(PeerBack(slot))

    # ------------------------------------------------------------------ the machine

    def handle(self, event: Event) -> None:
        """Steps the machine and performs the effects that it returns.

        Raises: MessageMalformed, when the event is a message that the machine refuses.
        """
        performers, effects = self._performers, self._step(event)
        if self._slot.plan is not self._context.image.plan:
            self._context.adopt(self._slot.plan)
        for each in effects:
            performers[type(each)](each)

    def log(self, message: Logged) -> None:
        """Sends a line to the driver's log. Any thread may call this."""
        self._inbox.put(self._transport.send, COORDINATOR, message)


def run_slot(launch_spec: SlotLaunchSpec, domain: str) -> None:
    """Runs a slot in this process until it ends; its threads have ended and its sockets are closed then."""
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    raise_files_limit()
    gc.freeze()  # what is imported stays
    collect_rarely()
    slot_id, folder = _identity(launch_spec)
    try:
        host = SlotHost(launch_spec, domain, slot_id, folder)
        with (
            forwarded(launch_spec.log_level, slot_id, host.log, launch_spec.root_log_level),
            confined_services(),
        ):
            reason = host.run()
        left = f"; still running: {', '.join(host.left)}" if host.left else ""
        logger.info("%s has ended: %s%s", slot_name(slot_id), reason or "released", left)
    finally:
        folder.close()


def run_slot_in_thread(launch_spec: SlotLaunchSpec, domain: str, has_to_end: Callable[[], bool]) -> None:
    """Runs a slot in a thread of the driver until it ends. Settings of the process stay as they are, and what user code
    logs and prints goes where that of the driver goes."""
    slot_id, folder = _identity(launch_spec)
    try:
        host = SlotHost(launch_spec, domain, slot_id, folder, has_to_end)
        host.run()
        for name in host.left:
            logger.warning(
                "the thread %s goes on after the end of its slot, because its user code does not return", name
            )
    finally:
        folder.close()


def _identity(launch_spec: SlotLaunchSpec) -> tuple[SlotId, LocalFolder]:
    """Returns the id of a new slot and its local folder."""
    root = Path(launch_spec.folder_root) if launch_spec.folder_root else default_root()
    sweep(root)
    slot_id = SlotId(int.from_bytes(random_bytes(8), "little") >> 1 or 1)
    return slot_id, LocalFolder(root, f"{slot_id:016x}")
