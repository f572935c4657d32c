"""Start of a job, or of a new generation at a resume: slots register before any task runs (protocol 6 and 8)."""

from __future__ import annotations

from dataclasses import replace

import msgspec

from clonos.core.checkpoint.checkpoint_metadata import (
    PlanChanged,
    check_resumable,
    metadata_of_start,
    parts_by_vertex,
)
from clonos.core.coordinator import checkpoint_machine, failure_detector, view_machine
from clonos.core.coordinator.checkpoint_ledger import Ledger
from clonos.core.coordinator.coordinator_effects import (
    Alarm,
    CommitOutput,
    Ending,
    JobFailed,
    ReleaseSlot,
    RequestSlots,
    Send,
    SlotsRefused,
)
from clonos.core.coordinator.coordinator_events import Begin, Received, StopRequested, Ticked
from clonos.core.coordinator.coordinator_state import (
    Closing,
    CoordinatorState,
    FirstOutput,
    Listening,
    Running,
    Starting,
)
from clonos.core.coordinator.failover import (
    by_surplus,
    install_view,
    request_missing,
    slots_wanted,
    update_life,
    withdraw_requests,
)
from clonos.core.coordinator.failure_detector import NANOSECONDS
from clonos.core.model.errors import Blame
from clonos.core.model.ids import SlotId, view_number
from clonos.core.model.progress import TaskCounter
from clonos.core.placement.assignment import NO_ASSIGNMENT, Assignment, Readiness, place
from clonos.core.placement.placement_rules import broken_rules, rules_of
from clonos.core.wire.control_messages import Register, Release, SlotAddress, TaskStatus

ASK_ELSEWHERE_EVERY_MS = 2_000
"""Interval at which slots in another domain are requested while all registered slots share one domain."""

FIRST_PAUSE_NS = 250_000_000
"""Pause between the first checkpoint of a new job and the second, if the first had no output."""


def begin(state: CoordinatorState, event: Begin) -> None:
    """Starts the job, or resumes it from a checkpoint, in a new generation."""
    if event.resume is not None and event.resume.widths:
        state.adopt_plan(event.resume)
    plan = state.plan
    state.term, state.job_id = event.term, event.job_id
    state.versions, state.can_spread = dict(event.versions), event.can_spread
    state.rules = rules_of(plan, state.options.placement, event.driver_host)
    state.slots_needed = event.slots_needed or slots_wanted(state, len(state.plan.tasks))
    start = metadata_of_start(plan, event.job_id, event.term)
    completed = event.resume or start
    assert completed.job_id == event.job_id, f"job {event.job_id} cannot resume job {completed.job_id}"
    try:
        check_resumable(plan, completed)
    except PlanChanged as error:
        state.fail(JobFailed(error.blame, str(error)))
        return
    completed = msgspec.structs.replace(completed, plan=start.plan)
    generation = view_number(event.term, 1)  # number of the first view, which no earlier generation has
    no_incarnations = (None,) * len(plan.tasks)
    highest = completed.highest_checkpoint
    options = state.options
    ledger = Ledger(
        *(plan, event.term, generation, no_incarnations, highest, (), {}, completed, event.retained, ()),
        retained_max=options.checkpoints_retained,
        failures_max=options.checkpoint_failures_max,
    )
    state.checkpoints = checkpoint_machine.Collecting(ledger)
    state.views = view_machine.Unformed(event.term, event.job_id)
    parts = parts_by_vertex(plan, completed)
    if parts:  # the dead coordinator may not have committed them, and repeating is harmless
        state.checkpoints = checkpoint_machine.Publishing(ledger, 1, None)
        state.emit(CommitOutput(completed.checkpoint, parts))
    if completed.checkpoint > 0 and completed.is_final:
        state.phase = Closing()
    elif event.awaits_slots:
        lease_ns = state.limits.lease_ns
        ends_ns = state.awake_ns + lease_ns, state.awake_ns + 2 * lease_ns
        state.phase = Listening(*ends_ns, None, event.named, event.registers, event.only_adopts)
    else:
        await_slots(state)


def await_slots(state: CoordinatorState) -> None:
    """Requests slots for a new generation, and starts it when they are there."""
    state.phase = Starting(state.awake_ns, state.awake_ns)
    request_missing(state)
    _start_if_ready(state)


# ------------------------------------------------------------------ registration


def register(state: CoordinatorState, event: Received) -> None:
    """Registers a new slot, or ignores the repetition of its registration."""
    message = event.message
    assert isinstance(message, Register)
    if message.slot in state.addresses:
        return
    reason = _why_refused(state, message)
    if reason:
        state.emit(Alarm(reason))
        state.emit(Send(message.slot, Release(message.slot, reason)), ReleaseSlot(message.slot, reason))
        state.lives[message.slot] = failure_detector.Dead(reason)
        if isinstance(state.phase, Starting):  # the other slots will differ too
            state.fail(JobFailed(Blame.ENVIRONMENT, reason))
        return
    state.slots_requested = max(0, state.slots_requested - 1)
    state.refusals = 0
    state.lives[message.slot] = failure_detector.Alive(state.awake_ns)
    state.registers[message.slot] = message
    state.addresses[message.slot] = SlotAddress(
        message.slot, message.domain, message.data_address, message.control_address, message.public_key
    )
    state.is_placement_due = True
    if isinstance(state.phase, Starting):
        _start_if_ready(state)


def _why_refused(state: CoordinatorState, message: Register) -> str:
    found = dict(message.versions)
    wrong = [
        _difference(name, found[name], state.versions[name])
        for name in sorted(found.keys() & state.versions.keys())
        if found[name] != state.versions[name]
    ]
    if not wrong:
        return ""
    return (
        f"process {message.pid} on {message.host} is refused: it has {', '.join(wrong)}. All processes of a job need"
        " the driver's: ship an environment to the executors (spark.archives or a container image), and set"
        " PYSPARK_PYTHON."
    )


def _difference(name: str, found: str, expected: str) -> str:
    if name == "hash_seed":  # a secret: this text is logged
        return "another hash_seed (PYTHONHASHSEED)"
    return f"{name} {found} instead of {expected}"


# ------------------------------------------------------------------ first view


def _start_if_ready(state: CoordinatorState) -> None:
    assert isinstance(state.phase, Starting)
    if len(state.addresses) < state.slots_needed or not state.slots_needed:
        return
    if _has_to_spread(state) or rules_broken_at_start(state, frozenset()):
        if state.slots_requested == 0:
            _ask_elsewhere(state, state.phase)
        return
    _start(state)


def _has_to_spread(state: CoordinatorState) -> bool:
    wants_others = state.can_spread and any(target.standbys or target.keepers for target in state.targets)
    return wants_others and len({address.domain for address in state.addresses.values()}) < 2


def _ask_elsewhere(state: CoordinatorState, phase: Starting) -> None:
    """Requests slots in other domains: all share one, or the rules of tasks do not hold. Releases surplus slots."""
    has_asked = phase.asked_elsewhere_ns > phase.begun_ns
    if has_asked and state.awake_ns - phase.asked_elsewhere_ns < ASK_ELSEWHERE_EVERY_MS * NANOSECONDS:
        return
    wanted = {state.rules.host_of(task) for task in state.plan.tasks} - {""}
    hosts = state.hosts()
    fitting = [a.slot for _, a in sorted(state.addresses.items()) if {a.domain, hosts.get(a.domain, "")} & wanted]
    others = [slot for slot in sorted(state.addresses) if slot not in fitting]
    for slot in others[max(0, state.slots_needed - len(fitting)) :]:
        state.release(slot, "its domain has enough slots, and one in another domain is requested")
    found = {address.domain for address in state.addresses.values()}
    domains = tuple(sorted(domain for domain in found if not {domain, hosts.get(domain, "")} & wanted))
    count = max(1, state.slots_needed // 2)
    state.slots_requested += count
    state.phase = replace(phase, asked_elsewhere_ns=max(state.awake_ns, phase.begun_ns + 1))
    state.emit(RequestSlots(count, domains))


def _start(state: CoordinatorState) -> None:
    """Issues the first view. Releases surplus slots, from the domain that has the most."""
    while len(state.addresses) > state.slots_needed:
        ranked = by_surplus(state)
        fitting = (slot for slot in ranked if not rules_broken_at_start(state, frozenset([slot])))
        state.release(next(fitting, ranked[0]), "there are enough slots")
    withdraw_requests(state)
    domains = state.domains()
    plan = state.plan
    assignment = first_assignment(state, frozenset())
    addresses = tuple(state.addresses[slot] for slot in domains)
    state.phase = Running()
    state.due_ns = state.awake_ns
    if not state.is_draining:
        state.due_ns += state.options.checkpoint_every_ms * NANOSECONDS
    is_new = state.completed.checkpoint == 0
    if is_new and any(vertex.is_transactional for vertex in plan.vertices):
        state.first_output = FirstOutput()
    start = state.ledger.generation, state.completed, assignment, addresses, state.completed.widths
    install_view(state, view_machine.StartJob(*start))


# ------------------------------------------------------------------ the first output of a new job


def note_first_record(state: CoordinatorState, status: TaskStatus) -> None:
    """Makes the first checkpoint of a new job due when a transactional sink has a record, because only a checkpoint
    makes output visible."""
    if state.first_output is None or state.first_output.since_ns is not None:
        return
    if not state.plan.vertices[state.plan.vertex_of[status.task]].is_transactional:
        return
    if any(name is TaskCounter.RECORDS_IN and count for name, count in status.counters):
        state.first_output.since_ns = state.awake_ns
        state.due_ns = min(state.due_ns, state.awake_ns)


def hasten_checkpoint(state: CoordinatorState) -> None:
    """Shortens the pause after a checkpoint of a new job that had no output. The pauses double up to the interval."""
    since_ns = None if state.first_output is None else state.first_output.since_ns
    if since_ns is not None and isinstance(state.checkpoints, checkpoint_machine.Collecting):
        pause_ns = max(FIRST_PAUSE_NS, state.awake_ns - since_ns)
        state.due_ns = min(state.due_ns, state.awake_ns + pause_ns)


# ------------------------------------------------------------------ while slots are awaited


def wait_for_slots(state: CoordinatorState, _event: Ticked) -> None:
    """Starts the job, requests more slots, or gives up, at a tick while slots are awaited."""
    assert isinstance(state.phase, Starting)
    check_slots(state)
    waited_ns = state.awake_ns - state.phase.begun_ns
    if waited_ns >= state.options.slots_wait_ms * NANOSECONDS:
        if len(state.addresses) >= state.slots_needed:
            if broken := rules_broken_at_start(state, frozenset()):
                refuse_rules(state, broken)
                return
            _start(state)  # the view's alarm says what the missing domain costs
        else:
            refuse(state, len(state.addresses))
        return
    if len(state.addresses) >= state.slots_needed:
        if _has_to_spread(state) or rules_broken_at_start(state, frozenset()):
            _ask_elsewhere(state, state.phase)
        else:
            _start(state)
    else:
        request_missing(state)


def refuse(state: CoordinatorState, got: int) -> None:
    """Fails the job, because too few slots registered in time."""
    needed = state.slots_needed
    text = (
        f"the job needs {needed} slots (one per task, and spare ones) and got {got} within"
        f" {state.options.slots_wait_ms} ms."
    )
    if state.refusals:
        text += f"\n{state.refusals} could not be started. Remove the cause of the last failure: {state.refusal}"
    else:
        text += " Free cores or executors, lower the parallelism, or raise slots_wait."
    state.emit(SlotsRefused(needed, got, text))
    state.fail(JobFailed(Blame.ENVIRONMENT, text))


def check_slots(state: CoordinatorState) -> None:
    """Checks the leases of all slots, usually with one comparison per slot."""
    passed = failure_detector.DetectorTick(state.awake_ns, state.limits)
    horizon_ns = state.awake_ns - state.limits.lease_ns
    for slot in list(state.addresses):
        life = state.lives[slot]
        if not isinstance(life, failure_detector.Alive) or life.last_message_ns <= horizon_ns:
            update_life(state, slot, passed)


def stop_early(state: CoordinatorState, event: StopRequested) -> None:
    """Stops the job before its first view, so that nothing can be lost; or remembers that it shall stop with a last
    checkpoint once its tasks run, if such a stop or a checkpoint is awaited."""
    is_awaited = not event.ends_start or state.is_draining or state.requests
    if event.drain and is_awaited:
        state.is_draining = True
    else:
        state.finish(Ending.ABORTED, "stopped before the job began")


# ------------------------------------------------------------------ first placement


def first_assignment(state: CoordinatorState, without: frozenset[SlotId]) -> tuple[Assignment, ...]:
    """Returns the assignment of the first view to the slots that have registered, without some of them."""
    snapshots = [entry.snapshot for entry in state.completed.tasks]
    ready = Readiness({}, {}, snapshots, state.ledger.incarnations)
    domains = {slot: domain for slot, domain in state.domains().items() if slot not in without}
    nowhere = [NO_ASSIGNMENT for _ in state.plan.tasks]
    return place(state.targets, domains, nowhere, ready, state.hosts(), state.rules)


def rules_broken_at_start(state: CoordinatorState, without: frozenset[SlotId]) -> str:
    """Returns which rules of the placement the first view would break, in words; empty if none."""
    if not state.rules.of:
        return ""
    slots = [assigned.slot for assigned in first_assignment(state, without)]
    return broken_rules(state.plan, state.rules, slots, state.domains(), state.hosts())


def refuse_rules(state: CoordinatorState, broken: str) -> None:
    """Fails the job, because no slot came where its rules want one."""
    hosts = state.hosts()
    found = sorted({hosts.get(address.domain, address.domain) for address in state.addresses.values()})
    text = (
        f"the rules of .on(...) cannot hold: {broken}. {len(state.addresses)} processes came, on"
        f" {', '.join(found)}. Correct the rule, raise spare_slots, or let the cluster start processes there."
    )
    state.fail(JobFailed(Blame.JOB, text))
