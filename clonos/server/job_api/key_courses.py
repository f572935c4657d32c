"""Course of a key through a step of a running job: what the task of the key has done since the last checkpoint.

The epoch of the task is captured into a temporary folder and replayed in a process of its own, as ``clonos replay
--key`` does: user code never runs in the process of the driver.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from clonos.core.model.errors import ClonosError
from clonos.job.handle import Handle
from clonos.operators.key_places import tasks_of_key

CAPTURE_S: Final = 10.0
REPLAY_S: Final = 30.0
COURSE_S: Final = 2 * (CAPTURE_S + REPLAY_S)
"""Seconds after which the course of a key is given up: a key may be a text or another value, in two tasks."""

MESSAGE_CHARACTERS_MAX: Final = 2_000


class CourseUnknown(ClonosError):
    """The course of a key cannot be shown. ``is_missing``: the job has no such step, or its task nothing of the key."""

    message: str
    is_missing: bool = False

    def __str__(self) -> str:
        return self.message


def course_of_key(handle: Handle, step: str, key: str) -> dict[str, Any]:
    """Returns what a key has gone through at a step since the last checkpoint, as ``KeyTimeline.to_json``.

    ``key``: as ``str`` or ``repr`` of Python shows it.

    Raises: CourseUnknown. JobError, CaptureFailed: the job has ended, or its task cannot be captured now.
    """
    refusal = CourseUnknown(f"the job {handle.graph.name} has no step {step!r:.100}.", True)
    for task in _tasks(handle, step, key):
        with TemporaryDirectory(prefix="clonos-key-") as folder:
            try:
                return _replayed(handle.capture(task, folder, CAPTURE_S), step, key)
            except CourseUnknown as error:
                refusal = error
                if not error.is_missing:
                    break
    raise refusal


def _tasks(handle: Handle, step: str, key: str) -> list[str]:
    """Returns the tasks of a step that may have a key, none if the job has no such step."""
    vertices = handle.image.vertices
    found = (number for number, each in enumerate(vertices) if any(node.step == step for node in each.nodes))
    return [task for vertex in found for task in tasks_of_key(handle.plan, vertex, key)]


def _replayed(record: Path, step: str, key: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "clonos.cli", "replay", str(record), f"--key={key}", "--format", "json"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=REPLAY_S, check=False)
    except ValueError:  # a NUL, or half of a surrogate pair
        raise CourseUnknown(f"the key {key!r:.100} cannot be passed to a command.") from None
    except subprocess.TimeoutExpired:
        raise CourseUnknown(f"the replay of {record.parent.name} has not ended within {REPLAY_S:.0f} s.") from None
    try:
        found: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        text = done.stderr.strip().removeprefix("clonos: ")[-MESSAGE_CHARACTERS_MAX:]
        raise CourseUnknown(
            text or "the replay has ended without a result.", "has nothing of the key" in text
        ) from None
    found["steps"] = [each for each in found["steps"] if each["step"] == step]
    found["states"] = [each for each in found["states"] if each["step"] == step]
    if not found["steps"] and not found["states"]:
        raise CourseUnknown(f"the step {step} has nothing of the key {key}.", True)
    return found
