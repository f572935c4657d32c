"""Driver of a job: the coordinator's thread, its sockets, and the slots that it orders.

Only this thread calls the coordinator's machine. Progress is passed to ``listener`` and the end to ``result``; ``ask``
queries the machine from other threads.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from threading import Thread, current_thread
from typing import TypeVar

import cloudpickle

from clonos.core.checkpoint.checkpoint_metadata import CheckpointMetadata
from clonos.core.coordinator.coordinator import Coordinator
from clonos.core.coordinator.coordinator_effects import (
    Alarm,
    CommitOutput,
    DeleteObjects,
    DivideState,
    Effect,
    JobDone,
    JobFailed,
    RecoveryEvent,
    ReleaseSlot,
    RequestSlots,
    Send,
    SlotsRefused,
    StoodDown,
    WithdrawRequests,
    WriteMetadata,
)
from clonos.core.coordinator.coordinator_events import (
    Begin,
    Event,
    Received,
    SlotGone,
    SlotRefused,
    SlotUnreachable,
    StopRequested,
    Ticked,
)
from clonos.core.model.errors import EnvironmentFault
from clonos.core.model.ids import COORDINATOR, SlotId
from clonos.core.ports.redaction import Redact
from clonos.core.wire.admission import check_for_coordinator
from clonos.core.wire.capture_messages import CapturedElements, CapturedLog
from clonos.core.wire.control_messages import ONCE_PER_STEP, PRINTED, Completed, Logged, Peeked, Register, Warned
from clonos.core.wire.messages import Message
from clonos.core.wire.printable import escaped, indented
from clonos.core.wire.stack_messages import StacksShown
from clonos.core.wire.trace_messages import StepsTraced, TracedStep
from clonos.io.net.curve import new_keys
from clonos.io.net.frames import slot_name
from clonos.io.net.listening import Binding
from clonos.io.net.peers import PeerAddress
from clonos.io.net.rate_limited_log import RateLimitedLog, logger_of
from clonos.io.net.transport import AddressRewriter, Transport
from clonos.io.process.fault_points import armed
from clonos.io.process.pickling import source_files
from clonos.io.process.processes import ProcessSlots
from clonos.io.process.retained_slots import RetainedSlots
from clonos.io.process.slot_provider import Listener, SlotEnded, SlotProvider
from clonos.io.store.store import CheckpointStore
from clonos.io.system.entropy import random_bytes
from clonos.io.system.last_sign import last_sign_ns, remove_sign
from clonos.io.system.open_files import raise_files_limit
from clonos.io.system.wall_clock import SlewedClock
from clonos.operators.connector_contract import TransactionalSink
from clonos.operators.job_image import JobImage
from clonos_standby.driver.abandoned_output import Lives
from clonos_standby.driver.background_io import BackgroundIo, Divide
from clonos_standby.driver.captures import Captures
from clonos_standby.driver.epoch_recorder import EpochRecorder, Recording
from clonos_standby.driver.epoch_writing import CapturedJob
from clonos_standby.driver.failed_epoch import FailedEpoch
from clonos_standby.driver.peeks import Peeks
from clonos_standby.driver.printed_lines import PRINTED_LINES
from clonos_standby.driver.shown_stacks import ShownStacks
from clonos_standby.driver.slot_orders import SlotOrders
from clonos_standby.inbox import Inbox
from clonos_standby.launch_spec import SWITCH_INTERVAL_S, SlotLaunchSpec
from clonos_standby.slot import run_slot

logger = logging.getLogger("clonos.coordinator")

LINES_OF_SLOT_MAX = 1_000
"""Lines of one slot in the driver's log in ten seconds. A slot limits itself too, so only a faulty slot reaches
this."""

PRINTED_OF_TASK_MAX = 10_000
"""Lines that the code of one task prints on the driver's terminal in ten seconds."""

ALARMS_MAX = 100
"""Alarms in the driver's log in ten seconds."""

TRIED_AGAIN = ("; trying again", "; a later one replaces it")
"""Ends of alarms that come again and again while a system is away: the log has each kind once a minute."""
TRIED_AGAIN_EVERY_S = 60.0

RELEASE_TIMEOUT_S = 5.0
"""Seconds that slots have to exit after the job's end, before the provider ends them."""

Progress = Alarm | RecoveryEvent | SlotsRefused
JobEnd = JobDone | JobFailed | StoodDown
Answer = TypeVar("Answer")


@dataclass(frozen=True)
class DriverPlan:
    """Configuration of a driver. ``launch_spec``: template; address, key and token are set for each slot.

    ``store``: open, with its term in ``begin``. ``provider``: creates the slot provider for a listener.
    ``address_rewriter``: maps addresses for the driver's connections. ``retained``: file of slots that outlive the
    driver, those of an earlier driver among them. ``divide``: divides the state of a cut. ``epochs``: folder for the
    epoch of a task whose code ends the job; None: none is kept. ``recording``: which epochs are recorded while the job
    runs; None: none. ``redact``: changes what records have. ``records_code``: whether they have the job.
    """

    image: JobImage
    begin: Begin
    store: CheckpointStore
    launch_spec: SlotLaunchSpec
    binding: Binding
    provider: Callable[[Listener], SlotProvider]
    listener: Callable[[Progress], None]
    divide: Divide
    address_rewriter: AddressRewriter | None = None
    retained: RetainedSlots | None = None
    epochs: Path | None = None
    recording: Recording | None = None
    redact: Redact | None = None
    records_code: bool = True


class Driver:
    """Driver of one job. ``start`` begins the job; ``result`` is its end. ``close`` ends everything, including a
    running job."""

    def __init__(self, plan: DriverPlan) -> None:
        self._plan = plan
        self._options = plan.image.options
        self._coordinator = Coordinator(plan.image.plan, self._options)
        self._clock = SlewedClock()
        self._transport = Transport(
            COORDINATOR,
            plan.binding,
            new_keys(),
            silence_ms=self._options.lease_ms,
            admits_unknown=True,
            address_rewriter=plan.address_rewriter,
        )
        self._inbox = Inbox(self._transport.wake)
        self._orders = SlotOrders(plan.retained)
        self._events: list[Event] = []
        self._is_closing = False
        self._log = RateLimitedLog(logger)
        self._alarms = RateLimitedLog(logger, ALARMS_MAX)
        self._tried_again_s: dict[str, float] = {}  # when a kind of alarm was logged last
        self._slots_log = RateLimitedLog(logger, LINES_OF_SLOT_MAX)
        self._printed = RateLimitedLog(logger, PRINTED_OF_TASK_MAX)
        self._steps_to_warn_of = {node.step for vertex in plan.image.vertices for node in vertex.nodes}
        self.result: Future[JobEnd] = Future()
        sinks = {v: s for v, s in plan.image.sinks.items() if isinstance(s, TransactionalSink)}
        faults = armed(plan.launch_spec.fault_points)
        self.peeks = Peeks(self.ask, self._transport.send, self.result.done)
        self.stacks = ShownStacks(self.ask, self._transport.send)
        packed = plan.launch_spec.image
        sources = source_files(packed) if plan.records_code else ()
        begin = plan.begin
        job = CapturedJob(plan.image, packed, begin.job_id, begin.versions, sources, plan.redact, plan.records_code)
        store_url = plan.launch_spec.store_url
        self.captures = Captures(self.ask, self._transport.send, lambda: CheckpointStore(store_url), job)
        self.failed_epoch = FailedEpoch(self.captures, plan.epochs, self._end_failed)
        self._on_traced: Callable[[tuple[TracedStep, ...]], None] = lambda _: None
        self._recorder: EpochRecorder | None = None
        if plan.recording is not None:
            self._recorder = EpochRecorder(self.captures, plan.recording, self._inbox.put, self._perform_all)
        self._background_io = BackgroundIo(
            plan.store, sinks, plan.begin.job_id, self._clock.now_ns, self.post, self._inbox, plan.divide, faults
        )
        self._provider = plan.provider(self._on_slot_ended)
        self._take_over()
        self._thread = Thread(target=self._run, name="coordinator", daemon=True)

    def _take_over(self) -> None:
        """Takes over the slots of an earlier driver that live."""
        retained = self._plan.retained
        if retained is None or not isinstance(self._provider, ProcessSlots):
            return
        for each in retained.record.slots:
            slot, register = each.register.slot, each.register
            self._transport.add_peer(PeerAddress(slot, register.data_address, register.control_address, b""))
            if (number := self._provider.adopt(each)) is None:
                self._events.append(SlotGone(slot, "its process has ended", self._clock.now_ns()))
            else:
                self._orders.add(number, register.token, slot)

    # ------------------------------------------------------------------ for any thread

    def start(self) -> None:
        """Starts the job."""
        sys.setswitchinterval(SWITCH_INTERVAL_S)
        raise_files_limit()
        self._thread.start()

    @property
    def has_ended(self) -> bool:
        """Whether the job has ended with all its slots."""
        return self.result.done() and not self._thread.is_alive()

    def stop(self, drain: bool, ends_start: bool = False) -> None:
        """Ends the job: with a final checkpoint if ``drain`` is True, else at once. Before the tasks run, a stop with
        ``ends_start`` ends the start; any other one with a final checkpoint waits until they run."""
        self.post(StopRequested(drain, self._clock.now_ns(), ends_start))

    def ask(self, question: Callable[[Coordinator], Answer]) -> Answer:
        """Returns the answer of ``question``, which is called with the coordinator in its own thread while that
        runs."""
        if not self._thread.is_alive() or current_thread() is self._thread:
            return question(self._coordinator)
        answer: Future[Answer] = Future()
        self._inbox.put(self._answer, question, answer)
        while True:
            try:
                return answer.result(timeout=0.1)
            except TimeoutError:
                if not self._thread.is_alive() and not answer.done():
                    return question(self._coordinator)

    def _answer(self, question: Callable[[Coordinator], Answer], answer: Future[Answer]) -> None:
        try:
            answer.set_result(question(self._coordinator))
        except Exception as error:  # noqa: BLE001 raised again in the thread of the caller
            answer.set_exception(error)

    def close(self) -> None:
        """Ends all slots and threads, and waits for them."""
        self._inbox.put(self._abandon)
        if self._thread.ident is not None:
            self._thread.join()
        else:
            self._close_all()

    def _abandon(self) -> None:
        self._is_closing = True

    def trace(self, listener: Callable[[tuple[TracedStep, ...]], None]) -> None:
        """Calls ``listener`` with the steps that traced records have passed, in the coordinator's thread: it must
        neither wait nor raise."""
        self._on_traced = listener

    def post(self, event: Event) -> None:
        """Lets the coordinator handle an event; may be called by any thread."""
        self._inbox.put(self._append_event, event)

    def _append_event(self, event: Event) -> None:
        """Appends an event to the list that is handled next; runs in the coordinator's thread."""
        self._events.append(event)

    def _on_slot_ended(self, ended: SlotEnded) -> None:
        self._inbox.put(self._handle_slot_end, ended)

    # ------------------------------------------------------------------ the thread

    def _run(self) -> None:
        try:
            self._handle([replace(self._plan.begin, now_ns=self._clock.now_ns())])
            self._loop(lambda: self._is_closing or self.result.done())
            if self.result.done():  # else the job was abandoned, and the provider ends slots that were not released
                deadline_s = time.monotonic() + RELEASE_TIMEOUT_S
                self._loop(lambda: not self._orders.running() or time.monotonic() > deadline_s)
        except BaseException as error:
            if not self.result.done():
                self.result.set_exception(error)
            else:
                logger.exception("the coordinator failed after the job had ended")
        finally:
            self._close_all()

    def _loop(self, has_ended: Callable[[], bool]) -> None:
        tick_s = self._options.heartbeat_ms / 2_000
        due_s = time.monotonic()
        is_busy = False
        while not has_ended():
            now_s = time.monotonic()
            if now_s >= due_s:
                due_s = now_s + tick_s
                self._transport.tick()
                for log in (self._log, self._alarms, self._slots_log, self._printed):
                    log.tick()
                self._events.append(Ticked(self._clock.now_ns()))
            self._transport.poll(0 if is_busy else (due_s - now_s) * 1e3, self)
            is_busy = self._inbox.drain()
            if self._events:
                events, self._events = self._events, []
                self._handle(events)

    def _close_all(self) -> None:
        self.failed_epoch.close()
        if self._recorder is not None:
            self._recorder.close(self._inbox.drain)
        self._provider.close()
        self._background_io.close()
        self._inbox.close()
        self._transport.close()
        for log in (self._log, self._alarms, self._slots_log, self._printed):
            log.close()
        if not self.result.done():
            self.result.cancel()

    # ------------------------------------------------------------------ TransportEvents

    def on_message(self, sender: SlotId, message: Message, payload: bytes | memoryview) -> None:
        """Handles a message of a slot. Raises: MessageMalformed when no slot may send it to a coordinator."""
        if isinstance(message, Logged):
            self._log_line(sender, message)
        elif isinstance(message, Peeked):
            self.peeks.on_peeked(sender, message)
        elif isinstance(message, StacksShown):
            self.stacks.on_shown(sender, message)
        elif isinstance(message, StepsTraced):
            self._on_traced(message.steps)
        elif isinstance(message, CapturedLog | CapturedElements):
            self.captures.on_captured(sender, message, payload)
        elif isinstance(message, Warned):
            fields = dict(message.fields)
            line = message.text if "task" in fields else f"{self._coordinator.describe_slot(sender)}: {message.text}"
            rest = {name: value for name, value in fields.items() if name != "task"}
            kind, where = f"warnings of {slot_name(sender)}", {"task": fields.get("task", ""), "fields": rest}
            if self._slots_log.log(kind, logging.WARNING, f"{line} {rest or ''}".rstrip(), extra=where):
                self._plan.listener(Alarm(escaped(line), message.fields))
        else:
            self._coordinator.check(sender, message)
            check_for_coordinator(self._coordinator.plan_of(message), sender, message)
            if not isinstance(message, Register) or self._admit(message):
                self._events.append(Received(sender, message, self._clock.now_ns()))  # type: ignore[arg-type]

    def _log_line(self, sender: SlotId, message: Logged) -> None:
        place = self._coordinator.describe_slot(sender)  # a faulty slot could name another task in each line
        writer = message.task or place
        where = {"task": message.task, "incarnation": message.incarnation, "epoch": message.epoch, "line": message.text}
        if message.logger == PRINTED:
            line = f"[{writer}] {message.text}"
            self._printed.log(
                f"printed lines of {place}", min(message.level, logging.CRITICAL), line, PRINTED_LINES, where
            )
            return
        if message.logger.startswith(ONCE_PER_STEP):  # each of its tasks may have sent the warning
            step = message.logger.removeprefix(ONCE_PER_STEP)
            if step not in self._steps_to_warn_of:
                return
            self._steps_to_warn_of.remove(step)
        level = min(message.level, logging.CRITICAL)
        self._slots_log.log(f"lines of {place}", level, f"{writer}: {message.text}", logger_of(message.logger), where)

    def _admit(self, register: Register) -> bool:
        """Returns True when this driver launched the slot or took it over."""
        if not self._orders.take(register):
            what = f"the registration of {slot_name(register.slot)} on {register.host} is refused: its token is invalid"
            self._log.warning("refused registrations", what)
            return False
        self._transport.add_peer(
            PeerAddress(register.slot, register.data_address, register.control_address, register.public_key)
        )
        self._update_admission()
        return True

    def _update_admission(self) -> None:
        """Admits unknown keys only while a requested slot has not registered."""
        self._transport.admit_unknown(self._orders.has_unregistered())

    def on_peer_gone(self, slot: SlotId) -> None:
        """Reports to the coordinator that no process listens at the slot's address any more."""
        now_ns = self._clock.now_ns()
        self._events.append(SlotUnreachable(slot, now_ns, self._alive_ns(slot, now_ns)))

    def on_peer_back(self, slot: SlotId) -> None:
        """Does nothing: the slot's next message shows that it is reachable."""

    # ------------------------------------------------------------------ slots

    def _handle_slot_end(self, ended: SlotEnded) -> None:
        order = self._orders.end(ended.order)
        if order is None:
            return
        self._update_admission()
        reason = ended.reason or "its process has ended"
        if order.slot is None:
            self._events.append(SlotRefused(reason, self._clock.now_ns()))
        else:
            self._transport.disconnect(order.slot)  # else the connections of dead slots would use up file descriptors
            now_ns = self._clock.now_ns()
            self._events.append(SlotGone(order.slot, reason, now_ns, self._alive_ns(order.slot, now_ns)))
            remove_sign(order.slot)

    @staticmethod
    def _alive_ns(slot: SlotId, now_ns: int) -> int:
        """Returns when a slot of this machine gave its last sign of life, by the clock of ``now_ns``; 0: unknown."""
        sign_ns = last_sign_ns(slot)
        return 0 if sign_ns is None else now_ns - (time.monotonic_ns() - sign_ns)

    def _order(self, avoid_domains: tuple[str, ...]) -> None:
        token = random_bytes(16).hex()
        launch_spec = replace(
            self._plan.launch_spec,
            coordinator_address=self._transport.control_address,
            coordinator_key=self._transport.public_key,
            token=token,
        )
        try:
            number = self._provider.order(cloudpickle.dumps(partial(run_slot, launch_spec)), avoid_domains)
        except EnvironmentFault as error:
            self.post(SlotRefused(str(error), self._clock.now_ns()))
            return
        self._orders.add(number, token)
        self._update_admission()

    # ------------------------------------------------------------------ effects

    def _handle(self, events: list[Event]) -> None:
        """Handles events and performs the effects. Slots are ordered last: a process that starts takes processor time
        from the slots that wait for the next view."""
        before = self._coordinator.completed
        effects = sorted(self._coordinator.handle(*events), key=lambda effect: isinstance(effect, RequestSlots))
        if self._recorder is not None and self._is_recorded(self._recorder, before, events, effects):
            return
        if not self.failed_epoch.takes(effects, self._coordinator.plan):
            self._perform_all(effects)

    def _is_recorded(
        self, recorder: EpochRecorder, before: CheckpointMetadata, events: list[Event], effects: list[Effect]
    ) -> bool:
        """Lets an epoch be recorded that has ended. Returns whether the effects wait for it."""
        after = self._coordinator.completed
        if any(isinstance(event, Begin) for event in events):
            recorder.begin(after)
        elif after.checkpoint != before.checkpoint:
            recorder.reach(before, after, self._coordinator.plan)
        return recorder.takes(effects)

    def _end_failed(self, effects: list[Effect]) -> None:
        """Ends a job by the failure of a task whose epoch has been read. Any thread may call this."""
        self._inbox.put(self._perform_all, effects)

    def _perform_all(self, effects: list[Effect]) -> None:
        for effect in effects:
            self._perform(effect)

    def _lives(self) -> Lives:
        view = self._coordinator.view
        return Lives(0 if view is None else view.number, self._coordinator.generation, self._coordinator.highest)

    def _perform(self, effect: Effect) -> None:
        match effect:
            case Send(slot, Completed() as completed) if self._recorder is not None:
                if (passed := self._recorder.hold.passed(completed)) is not None:
                    self._transport.send(slot, passed)
            case Send(slot, message):
                self._transport.send(slot, message)
            case RequestSlots(count, avoid_domains):
                for _ in range(count):
                    self._order(avoid_domains)
            case WithdrawRequests():
                self._orders.withdraw(self._provider.withdraw)
                self._update_admission()
            case ReleaseSlot(slot, reason):
                logger.info("%s is released: %s", slot_name(slot), indented(reason) or "the job is done")
            case WriteMetadata():
                self._background_io.write_metadata(effect)
            case CommitOutput():
                self._background_io.commit_output(effect, self._lives())
            case DivideState():
                self._background_io.divide_state(effect)
            case DeleteObjects():
                self._background_io.delete_objects(effect)
            case Alarm(text, fields, is_routine):
                level = logging.INFO if is_routine else logging.WARNING
                if text.endswith(TRIED_AGAIN) and not is_due(text, self._tried_again_s, time.monotonic()):
                    level = logging.DEBUG
                self._alarms.log(
                    "alarms", level, f"{text} {dict(fields) or ''}".rstrip(), extra={"fields": dict(fields)}
                )
                self._plan.listener(effect)
            case RecoveryEvent() | SlotsRefused():
                self._plan.listener(effect)
            case JobDone() | JobFailed() | StoodDown():
                if not self.result.done():
                    self.result.set_result(effect)


def is_due(text: str, logged_s: dict[str, float], now_s: float) -> bool:
    """Returns whether an alarm is to be logged: ``TRIED_AGAIN_EVERY_S`` after the last alarm that differs in numbers at
    most. ``logged_s``: when a kind was logged last, which this changes."""
    kind = "".join(character for character in text if not character.isdigit())
    if now_s - logged_s.get(kind, -TRIED_AGAIN_EVERY_S) < TRIED_AGAIN_EVERY_S:
        return False
    logged_s[kind] = now_s
    return True
