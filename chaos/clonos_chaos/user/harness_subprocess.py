"""Replay in a separate Python process with other hashes and addresses: it finds code that depends on them.

Run as a program it reads a case from its standard input and writes the outputs of the step; user code prints to stderr.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from random import Random
from typing import Any, NamedTuple

from clonos.core.checkpoint.snapshot import decode_snapshot, encode_snapshot
from clonos.core.model.code_location import keep_frames, user_frames, user_frames_of
from clonos.core.model.element_kind import ElementKind
from clonos.core.model.ids import ChannelId, CheckpointId, Incarnation
from clonos.core.model.options import Options
from clonos.core.ports.operator_chain import StepFailed
from clonos.core.ports.task_port import Activation, Delivered
from clonos.core.ports.task_snapshot import Snapshot
from clonos.operators.chain import OperatorChain
from clonos.operators.job_image import JobImage
from clonos_chaos.user.harness_life import HarnessContext, Life
from clonos_chaos.user.harness_steps import Encoded
from clonos_services.http_settings import use_common_settings

HASH_SEEDS = ("1", "2")


class Case(NamedTuple):
    """Input of a replay, as bytes and numbers."""

    packed: bytes
    vertex: int
    snapshots: tuple[bytes, ...]
    log: bytes
    offset_bytes: int
    deliveries: tuple[tuple[ChannelId, ElementKind, int, int, bytes], ...]  # channel, kind, count, checkpoint, payload
    now_ns: int
    step_records: int


def case_of(life: Life, packed: bytes, vertex: int, snapshots: tuple[Snapshot, ...], step_records: int) -> Case:
    """Makes the case of an incarnation that is about to replay its pending commands."""
    deliveries = tuple(
        (command.channel, command.kind, command.count, command.checkpoint, bytes(command.payload))
        for command in life.around.commands
        if isinstance(command, Delivered)
    )
    activation = life.activation
    encoded = tuple(encode_snapshot(snapshot) for snapshot in snapshots)
    return Case(
        packed,
        vertex,
        encoded,
        activation.log,
        activation.log_offset_bytes,
        deliveries,
        life.around.now_ns,
        step_records,
    )


def replayed_elsewhere(case: Case) -> list[Encoded]:
    """Returns the outputs in another process. Raises the error raised there."""
    hash_seed = HASH_SEEDS[os.environ.get("PYTHONHASHSEED") == HASH_SEEDS[0]]
    done = subprocess.run(
        [sys.executable, "-m", __name__],
        input=pickle.dumps(case),
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        check=True,
    )
    found, error = pickle.loads(done.stdout)  # noqa: S301  from a process that was started here
    if error is not None:
        raise error
    outputs: list[Encoded] = found
    return outputs


def _replay(case: Case) -> tuple[list[Encoded], Exception | None]:
    image: JobImage = pickle.loads(case.packed)  # noqa: S301  from the process that has started this one
    use_common_settings(image.http)
    plan = image.plan
    task = next(task for task in plan.tasks if plan.vertex_of[task] == case.vertex)
    options = Options(step_records_first=case.step_records, step_records_max=case.step_records, calls_ahead_max=1)
    snapshots = [decode_snapshot(encoded, "") for encoded in case.snapshots]
    mirror: Any = None
    if snapshots:
        mirror = image.new_mirror(case.vertex)
        for snapshot in snapshots:
            mirror.apply(snapshot.changes)

    def new_chain() -> OperatorChain:
        return image.new_chain(case.vertex)

    around = HarnessContext(plan, task, options, Random(0), case.now_ns, new_chain)
    last = snapshots[-1] if snapshots else None
    activation = Activation(Incarnation(2), last, mirror, case.log, case.offset_bytes, 1, False, "harness")
    life = Life(around, activation, is_first=False)
    life.resume()
    for channel, kind, count, checkpoint, payload in case.deliveries:
        around.commands.append(Delivered(channel, kind, count, 0, CheckpointId(checkpoint), payload))
    life.resume()
    emitted = [output for emission in life.emissions for output in emission.outputs]
    outputs = [Encoded(output.channel, output.kind, output.payload) for output in emitted]
    life.stop()
    return outputs, _with_frames(life.error)


def _with_frames(error: Exception | None) -> Exception | None:
    """Returns the exception of user code with its lines, which a pickled exception loses."""
    if isinstance(error, StepFailed) and isinstance(error.__cause__, Exception):
        error = error.__cause__
    if error is not None and (frames := user_frames_of(error)):
        error.add_note(user_frames(error))
        keep_frames(error, frames)
    return error


def main() -> None:
    """Runs the program."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    case: Case = pickle.load(sys.stdin.buffer)  # noqa: S301  from the process that has started this one
    with answers:
        answers.write(pickle.dumps(_replay(case)))


if __name__ == "__main__":
    main()
