"""A replay of a folder with all that a user may ask: changed code, another place, a condition to stop at."""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from clonos.core.model.errors import JobError
from clonos.core.model.options import Options
from clonos.core.model.plan import Plan
from clonos.io.process.pickling import pack
from clonos.operators.job_image import JobImage
from clonos.replay.change_place import place_of_change
from clonos.replay.changed_code import ResultChanges, changes, outcome_by_record
from clonos.replay.debugging import StoppingHook, without_frames
from clonos.replay.elsewhere import TRIES_MAX, other_processes, outcome_elsewhere
from clonos.replay.epoch import Epoch
from clonos.replay.loading import image_of, load_epoch
from clonos.replay.output_comparison import EpochComparison, compared
from clonos.replay.record_condition import condition_of
from clonos.replay.replay_report import ReplayReport
from clonos.replay.replaying import Replayed, replay_epoch, task_named
from clonos_services.stand_ins import HttpAnswer, Services, StandIns

if TYPE_CHECKING:
    from clonos.job import Job


class ChannelsChanged(JobError):
    """Changed code has another plan around the task, so the recorded input does not fit."""

    task: str
    was: str
    now: str

    def __str__(self) -> str:
        return (
            f"the changed job has other channels at {self.task}: they were {self.was}, and are {self.now}."
            " A replay with --code takes changed functions and settings of steps, not other steps in front of the task"
            " or behind it."
        )


def replay(
    folder: str | os.PathLike[str],
    code: Job | str | None = None,
    *,
    allow: Iterable[str] = (),
    elsewhere: bool = False,
    at: str | None = None,
    before_failure: bool = False,
    go_on: bool = False,
    http: HttpAnswer | None = None,
    services: Services | None = None,
    trust: bool = False,
    anyway: bool = False,
) -> ReplayReport:
    """Replays the record of an epoch in this process, cut off from the world, and compares what it emits.

    Args:
        folder: of the record.
        code: changed code, as a Job or as ``FILE[:NAME]``: the results of the recorded code are compared with its
            results. None compares the output of the recorded code with the recorded digests. If the record has no
            code, this is the recorded code.
        allow: what user code may ask isolation: "time", "random", "network", "processes", "files".
        elsewhere: compares with replays in up to 8 other processes, each with another hash seed, with two time zones
            and another folder, until one differs.
        at: opens the debugger in front of a record: ``record=N``, ``key=K``, ``step=NAME`` or an expression.
        before_failure: opens the debugger in front of the record that raised.
        go_on: goes on where the log ends, with the rest of the recorded input. A call without a stand-in ends it.
        http, services: stand-ins for ``go_on``, as for ``crash_test``.
        trust, anyway: see ``load_epoch``.

    Raises: RecordRefused, RecordDamaged, TaskNotInJob, ChannelsChanged, JobError: it cannot begin. Errors of user code
        are in the report.
    """
    epoch, code = with_code(load_epoch(folder, trust=trust, anyway=anyway), code)
    if not go_on and (http is not None or services):
        raise JobError("http and services answer calls behind the end of the log: give go_on=True with them")
    stand_ins = StandIns(http, services or {}) if go_on else None
    hook = hook_of(epoch, code, allow, at, before_failure)
    return report_on(epoch, code, frozenset(allow), elsewhere=elsewhere, hook=hook, go_on=stand_ins)


def with_code(epoch: Epoch, code: Job | str | None) -> tuple[Epoch, Job | str | None]:
    """Returns a record that has its code, and the changed code. A record without code takes what is given as its own.

    Raises: RecordRefused: there is none. JobError, TaskNotInJob: the given code has not this job.
    """
    if epoch.has_code:
        return epoch, code
    if code is None or epoch.head.options is None:
        image_of(epoch)
        raise AssertionError("a record without code is refused")
    image = _compiled(code, epoch.head.options, dict(epoch.head.widths))
    task_named(image.plan, epoch.task)
    return epoch._replace(image=pack(image)), None


def hook_of(
    epoch: Epoch, code: Job | str | None, allow: Iterable[str], at: str | None, before_failure: bool
) -> StoppingHook | None:
    """Returns the hook that opens the debugger, None if it is not asked for. See ``replay``.

    Raises: JobError: the condition is none, or nothing failed.
    """
    if at is not None:
        return StoppingHook(condition_of(at))
    if not before_failure:
        return None
    image = None if code is None else changed_image(epoch, code)
    first = replay_epoch(epoch, image=image, allowed=frozenset(allow))
    if first.number is None:
        raise JobError(f"--before-failure: {_why_nowhere(first, epoch)}.")
    return StoppingHook(condition_of(f"record={first.number}"))


def _why_nowhere(replayed: Replayed, epoch: Epoch) -> str:
    if replayed.user_error is None:
        return "the replay did not fail at a record"
    advice = without_frames(replayed.user_error, epoch.head.failure)
    return advice or "the record that raised is not known; --pdb shows where it raised"


def report_on(
    epoch: Epoch,
    code: Job | str | None,
    allowed: frozenset[str],
    *,
    elsewhere: bool = False,
    hook: StoppingHook | None = None,
    go_on: StandIns | None = None,
    tries_max: int = TRIES_MAX,
) -> ReplayReport:
    """Replays an epoch and returns the report, see ``replay``. ``tries_max``: other processes for ``elsewhere``.

    Raises: JobError: two of ``code``, ``elsewhere`` and ``go_on``.
    """
    if go_on is not None and (code is not None or elsewhere):
        raise JobError("go_on continues the recorded code, and code and elsewhere compare it: give one of them")
    if code is not None and elsewhere:
        raise JobError("code and elsewhere compare the results with those of different replays: give one of them")
    if elsewhere and epoch.head.options is not None:
        raise JobError("elsewhere replays the record in another process, so the record has to have its code")
    notes = [*_notes(epoch), *([CODE_GIVEN] if epoch.head.options is not None else [])]
    image = None if code is None else changed_image(epoch, code)
    if image is None:
        replayed = replay_epoch(epoch, allowed=allowed, hook=hook, records_results=elsewhere, go_on=go_on)
        found = None
        if elsewhere and not replayed.was_quit:
            found = _compared_elsewhere(epoch, replayed, allowed, tries_max, notes)
        report = ReplayReport(epoch, replayed, compared(epoch, replayed), found, notes=notes)
    else:
        recorded = replay_epoch(epoch, allowed=allowed, records_results=True)
        changed = replay_epoch(epoch, image=image, allowed=allowed, hook=hook, records_results=True)
        if not ReplayReport(epoch, recorded, compared(epoch, recorded)).is_as_recorded:
            notes.append(RECORDED_CODE_DIFFERS)
        was = outcome_by_record(epoch, None, allowed, recorded)
        now = outcome_by_record(epoch, image, allowed, changed)
        found = changes(was, now, place_of_change(recorded, changed))
        report = ReplayReport(epoch, changed, EpochComparison(0, 0, [], []), found, True, notes)
    if hook is not None:
        notes += hook.condition.notes()
    return report


def _compared_elsewhere(
    epoch: Epoch, replayed: Replayed, allowed: frozenset[str], tries_max: int, notes: list[str]
) -> ResultChanges:
    """Compares a replay with replays in other processes, up to the first with another outcome."""
    mine = outcome_by_record(epoch, None, allowed, replayed)
    others = other_processes(os.environ.get("PYTHONHASHSEED", ""), tries_max)
    found = ResultChanges(0, 0, [])
    for number, other in enumerate(others, 1):
        found = changes(mine, outcome_elsewhere(str(epoch.folder), other, allowed))
        if found.differing:
            notes.append(
                f"'was': the replay in this process. 'is': process {number} of at most {len(others)}, with {other} and"
                " another folder"
            )
            return found
    if not found.results:
        notes.append("there is nothing to compare: the epoch has no result")
        return found
    notes.append(f"equal in {len(others)} other processes and folders, from {others[0]} to {others[-1]}")
    return found


RECORDED_CODE_DIFFERS: Final = (
    "'was' is a replay of the recorded code, which does not repeat what the live task did: clonos replay without --code"
    " shows where"
)


def _notes(epoch: Epoch) -> list[str]:
    seed = os.environ.get("PYTHONHASHSEED", "") if sys.flags.hash_randomization else "0"
    if epoch.hash_seed and seed != epoch.hash_seed:
        return [f"the job had PYTHONHASHSEED={epoch.hash_seed}, this process has another: orders of sets may differ"]
    return [HASHES_UNKNOWN] if epoch.head.versions.get("hash_seed") and not epoch.hash_seed else []


CODE_GIVEN: Final = "the record has no code: what ran is the job that was given"

HASHES_UNKNOWN: Final = (
    "the record does not have the hash seed of the job, whose tasks were threads of a process that had drawn its own:"
    ' the order of sets may differ in each replay. Run the job with slots="process", or set PYTHONHASHSEED'
)


def changed_image(epoch: Epoch, code: Job | str) -> JobImage:
    """Returns the compiled job of changed code, at the widths of the record.

    Raises: JobError: the file has no such job. TaskNotInJob, ChannelsChanged: it does not fit the record.
    """
    before = image_of(epoch)
    found: JobImage = pickle.loads(pack(_compiled(code, before.options, before.plan.widths)))  # noqa: S301  packed here
    was, now = _channels(before.plan, epoch.task), _channels(found.plan, epoch.task)
    if was != now:
        raise ChannelsChanged(epoch.task, "; ".join(was), "; ".join(now))
    return found


def _compiled(code: Job | str, options: Options, widths: Mapping[str, int]) -> JobImage:
    """Compiles a job with the options and the widths of the record."""
    from clonos.job.description import graph_of
    from clonos.job.script.job_file import load_job

    image = graph_of(load_job(code) if isinstance(code, str) else code).compile(options)
    own = {vertex.name: widths[vertex.name] for vertex in image.plan.vertices if vertex.name in widths}
    return replace(image, plan=image.plan.with_widths(own))


def _channels(plan: Plan, name: str) -> list[str]:
    """Returns the channels of a task with their numbers, as texts."""
    task = task_named(plan, name)
    return [
        f"{channel.id}: {plan.task_name(channel.sender)} to"
        f" {'the sink' if channel.receiver is None else plan.task_name(channel.receiver)}"
        for channel in (*plan.inputs[task], *plan.outputs[task])
    ]
