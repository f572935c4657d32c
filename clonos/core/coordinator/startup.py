"""How a job begins: slots register before anything is activated; or a new coordinator listens to those that live."""

from __future__ import annotations

from dataclasses import replace

from clonos.core.checkpoint.checkpoint_metadata import PlanChanged, check_resumable, metadata_of_start, parts_by_vertex
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
from clonos.core.coordinator.coordinator_events import Begin, Received, StopAsked, Ticked
from clonos.core.coordinator.coordinator_state import Closing, CoordinatorState, Listening, Running, Starting
from clonos.core.coordinator.failover import (
    assignment_for,
    fall,
    install_view,
    note_progress,
    request_missing,
    update_life,
)
from clonos.core.coordinator.failure_detector import NANOSECONDS
from clonos.core.coordinator.placement import NO_ASSIGNMENT, Readiness, place
from clonos.core.model.errors import Blame
from clonos.core.model.ids import SlotId, ViewNumber, view_number
from clonos.core.wire.authorization import fits
from clonos.core.wire.control_messages import Register, Release, SlotAddress, SlotStatus, View

ASK_ELSEWHERE_EVERY_MS = 2_000
"""How often slots in another domain are asked for while all that came share one."""


def begin(state: CoordinatorState, event: Begin) -> None:
    """The job starts, or resumes from a checkpoint, with a generation of its own."""
    plan = state.plan
    state.term, state.job_id = event.term, event.job_id
    state.versions, state.can_spread = dict(event.versions), event.can_spread
    state.slots_needed = event.slots_needed or slots_wanted(state)
    start = metadata_of_start(plan, event.job_id, event.term)
    completed = event.resume or start
    assert completed.job_id == event.job_id, f"job {event.job_id} cannot resume job {completed.job_id}"
    try:
        check_resumable(plan, completed)
    except PlanChanged as error:
        state.fail(JobFailed(error.blame, str(error)))
        return
    generation = view_number(event.term, 1)  # of the view to come: no earlier life of the job has had it
    nobody = (None,) * len(plan.tasks)
    highest = completed.highest_checkpoint
    ledger = Ledger(plan, event.term, generation, nobody, highest, (), {}, completed, completed, ())
    state.checkpoints = checkpoint_machine.Collecting(ledger)
    state.views = view_machine.Unformed(event.term, event.job_id)
    parts = parts_by_vertex(plan, completed)
    if parts:  # it is not known whether the dead coordinator has committed them: a repeat is harmless
        state.checkpoints = checkpoint_machine.Publishing(ledger, 1, None)
        state.emit(CommitOutput(completed.checkpoint, parts))
    if completed.checkpoint > 0 and completed.is_final:
        state.phase = Closing()
    elif event.awaits_slots:
        lease_ns = state.limits.lease_ns
        state.phase = Listening(state.awake_ns + lease_ns, state.awake_ns + 2 * lease_ns, None)
    else:
        _await_slots(state)


def slots_wanted(state: CoordinatorState) -> int:
    """One a task; two at least where a standby or keeper has to sit somewhere else than its task."""
    has_backups = any(wish.standbys or wish.keepers for wish in state.targets)
    return max(len(state.plan.tasks), 2 if has_backups else 1)


def _await_slots(state: CoordinatorState) -> None:
    state.phase = Starting(state.awake_ns, state.awake_ns)
    request_missing(state)
    _form_if_ready(state)


# ------------------------------------------------------------------ registration


def register(state: CoordinatorState, event: Received) -> None:
    """A slot is born, or repeats that it was."""
    message = event.message
    assert isinstance(message, Register)
    if message.slot in state.addresses:
        return
    reason = _why_refused(state, message)
    if reason:
        state.emit(Alarm(reason, (("slot", message.slot), ("host", message.host))))
        state.emit(Send(message.slot, Release(message.slot, reason)), ReleaseSlot(message.slot, reason))
        state.lives[message.slot] = failure_detector.Dead(reason)
        if isinstance(state.phase, Starting):  # the others will have it too
            state.fail(JobFailed(Blame.ENVIRONMENT, reason))
        return
    state.slots_requested = max(0, state.slots_requested - 1)
    state.refusals = 0
    state.lives[message.slot] = failure_detector.Alive(state.awake_ns)
    state.registers[message.slot] = message
    state.addresses[message.slot] = SlotAddress(
        message.slot, message.domain, message.data_address, message.control_address, message.public_key
    )
    state.is_mending_due = True
    if isinstance(state.phase, Starting):
        _form_if_ready(state)


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
        f"slot {message.slot} on {message.host} is refused: it has {', '.join(wrong)}. All processes of a job need the"
        " driver's: ship an environment to the executors (spark.archives or a container image) and set PYSPARK_PYTHON."
    )


def _difference(name: str, found: str, expected: str) -> str:
    if name == "hash_seed":  # a secret: this text is logged
        return "another hash_seed (PYTHONHASHSEED)"
    return f"{name} {found} instead of {expected}"


# ------------------------------------------------------------------ forming


def _form_if_ready(state: CoordinatorState) -> None:
    assert isinstance(state.phase, Starting)
    if len(state.addresses) < state.slots_needed or not state.slots_needed:
        return
    if _has_to_spread(state):
        if state.slots_requested == 0:
            _ask_elsewhere(state, state.phase)
        return
    _form(state)


def _has_to_spread(state: CoordinatorState) -> bool:
    wants_others = state.can_spread and any(wish.standbys or wish.keepers for wish in state.targets)
    return wants_others and len({address.domain for address in state.addresses.values()}) < 2


def _ask_elsewhere(state: CoordinatorState, phase: Starting) -> None:
    """All slots share one domain: surplus ones go, and others are asked for elsewhere."""
    has_asked = phase.asked_elsewhere_ns > phase.begun_ns
    if has_asked and state.awake_ns - phase.asked_elsewhere_ns < ASK_ELSEWHERE_EVERY_MS * NANOSECONDS:
        return
    for slot in sorted(state.addresses)[state.slots_needed :]:
        state.release(slot, "there are slots enough in its domain, one elsewhere is asked for")
    domains = tuple(sorted({address.domain for address in state.addresses.values()}))
    count = max(1, state.slots_needed // 2)
    state.slots_requested += count
    state.phase = replace(phase, asked_elsewhere_ns=max(state.awake_ns, phase.begun_ns + 1))
    state.emit(RequestSlots(count, domains))


def _form(state: CoordinatorState) -> None:
    """The first view; what is more than needed is given back, from the fullest domain."""
    while len(state.addresses) > state.slots_needed:
        sizes: dict[str, int] = {}
        for address in state.addresses.values():
            sizes[address.domain] = sizes.get(address.domain, 0) + 1
        fullest = max(sizes, key=lambda domain: (sizes[domain], domain))
        state.release(max(s for s, a in state.addresses.items() if a.domain == fullest), "there are slots enough")
    state.slots_requested = 0
    domains = state.domains()
    plan = state.plan
    snapshots = [entry.snapshot for entry in state.completed.tasks]
    ready = Readiness({}, {}, snapshots, state.ledger.incarnations)
    assignment = place(state.targets, domains, [NO_ASSIGNMENT for _ in plan.tasks], ready, state.hosts())
    addresses = tuple(state.addresses[slot] for slot in domains)
    state.phase = Running()
    state.due_ns = state.awake_ns + state.options.checkpoint_every_ms * NANOSECONDS
    install_view(state, view_machine.StartJob(state.ledger.generation, state.completed, assignment, addresses))


def wait_for_slots(state: CoordinatorState, _event: Ticked) -> None:
    """Time passes while slots are awaited."""
    assert isinstance(state.phase, Starting)
    check_slots(state)
    waited_ns = state.awake_ns - state.phase.begun_ns
    if waited_ns >= state.options.slots_wait_ms * NANOSECONDS:
        if len(state.addresses) >= state.slots_needed:
            _form(state)  # what the missing domain costs is said with the view
        else:
            refuse(state, len(state.addresses))
        return
    if len(state.addresses) >= state.slots_needed:
        if _has_to_spread(state):
            _ask_elsewhere(state, state.phase)
        else:
            _form(state)
    else:
        request_missing(state)


def refuse(state: CoordinatorState, got: int) -> None:
    """Too few slots came in time."""
    needed = state.slots_needed
    text = (
        f"the job needs {needed} slots (one a task, and spare ones) and got {got} within"
        f" {state.options.slots_wait_ms} ms. Free cores or executors, lower the parallelism, or raise slots_wait."
    )
    if state.refusals:
        text += f"\n{state.refusals} could not be started, the last one since: {state.refusal}"
    state.emit(SlotsRefused(needed, got, text))
    state.fail(JobFailed(Blame.ENVIRONMENT, text))


def check_slots(state: CoordinatorState) -> None:
    """Leases by the clock. In the usual case one comparison a slot."""
    passed = failure_detector.DetectorTick(state.awake_ns, state.limits)
    horizon_ns = state.awake_ns - state.limits.lease_ns
    for slot in list(state.addresses):
        life = state.lives[slot]
        if not isinstance(life, failure_detector.Alive) or life.heard_ns <= horizon_ns:
            update_life(state, slot, passed)


def stop_early(state: CoordinatorState, _event: StopAsked) -> None:
    """Stopped before there was a view: nothing has happened, so nothing is lost."""
    state.finish(Ending.ABORTED, "stopped before the job had begun")


# ------------------------------------------------------------------ a new coordinator (protocol 9)


def on_view_reported(state: CoordinatorState, event: Received) -> None:
    """A slot says which view it has installed: the highest one heard is taken as the current one."""
    view, phase = event.message, state.phase
    assert isinstance(view, View)
    if not isinstance(phase, Listening) or not fits(view, state.plan):
        return
    if phase.heard is None or view.number > phase.heard.number:
        state.phase = replace(phase, heard=view)
    for address in view.slots:
        if address.slot == event.slot and address.slot not in state.addresses:
            _adopt(state, address)


def _adopt(state: CoordinatorState, address: SlotAddress) -> None:
    state.addresses[address.slot] = address
    state.lives[address.slot] = failure_detector.Alive(state.awake_ns)


def on_status(state: CoordinatorState, event: Received) -> None:
    """What a living slot hosts. Until it has said which view that is by, it is asked, and waited for: a slot answers an
    older view with its own."""
    phase = state.phase
    assert isinstance(event.message, SlotStatus)
    assert isinstance(phase, Listening)
    state.statuses[event.slot] = event.message
    _ask_for_view(state, phase, event.slot)


def _ask_for_view(state: CoordinatorState, phase: Listening, slot: SlotId) -> bool:
    """Asks a slot that has spoken, and not said by which view it lives; whether it had to be asked. Also one that has
    registered here may have had the dead coordinator's view on its way."""
    heard = phase.heard.number if phase.heard is not None else 0
    if slot in state.addresses and state.statuses[slot].view <= heard:
        return False
    state.emit(Send(slot, View(ViewNumber(0), 0, state.job_id, (), ())))
    return True


def listen_on(state: CoordinatorState, _event: Ticked) -> None:
    """After a lease: who has spoken lives, what is missing has failed. Whoever has not said by which view it lives is
    asked again and waited for, for another lease at most."""
    phase = state.phase
    assert isinstance(phase, Listening)
    unheard = [slot for slot in state.statuses if _ask_for_view(state, phase, slot)]
    if state.awake_ns < (phase.last_ns if unheard else phase.until_ns):
        return
    heard = phase.heard
    if heard is None or heard.generation < state.completed.generation or not state.addresses:
        _await_slots(state)
        return
    _inherit(state, heard)


def _inherit(state: CoordinatorState, heard: View) -> None:
    """Goes on with the highest view heard: (term, 1) changes only what is missing."""
    state.statuses = {slot: said for slot, said in state.statuses.items() if slot in state.addresses}
    hosting = {(slot, one.task, one.incarnation) for slot, said in state.statuses.items() for one in said.tasks}
    missing = [
        placement.task
        for placement in heard.placements
        if placement.slot not in state.addresses
        or (placement.slot, placement.task, placement.incarnation) not in hosting
    ]
    state.views = view_machine.Unformed(state.term, state.job_id, heard)
    ledger = replace(
        state.ledger, generation=heard.generation, incarnations=tuple(p.incarnation for p in heard.placements)
    )
    state.checkpoints = replace(state.checkpoints, ledger=ledger)
    state.phase = Running()
    state.due_ns = state.awake_ns + state.options.checkpoint_every_ms * NANOSECONDS
    for said in list(state.statuses.values()):
        for status in said.tasks:
            note_progress(state, status)
    fall(state, missing, "its slot was silent while the new coordinator listened")
    if not state.is_running:
        return
    domains = state.domains()
    assignment = assignment_for(state, heard, domains)
    addresses = tuple(state.addresses[slot] for slot in domains)
    install_view(state, view_machine.ViewChange(dict(state.failed_tasks), state.completed, assignment, addresses))
    request_missing(state)
