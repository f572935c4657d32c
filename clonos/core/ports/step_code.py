"""Port by which a stack says which step runs: the code of all steps runs below a frame of a ``StepCode``."""

from __future__ import annotations

from types import FrameType
from typing import Final

PACKAGE: Final = "clonos"


class StepCode:
    """Base of what runs the code of a step. One of its methods is on the stack, or one of an object that has it as
    ``guard``."""

    __slots__ = ("step",)

    def __init__(self, step: str) -> None:
        """Takes the name of the step."""
        self.step = step


def step_of(frame: FrameType | None) -> str:
    """Returns the name of the innermost step on the stack; "" if there is none."""
    outer = frame
    while outer is not None:
        if package_of(outer) == PACKAGE:
            owner = outer.f_locals.get("self")
            guard = getattr(owner, "guard", owner)
            if isinstance(guard, StepCode):
                return guard.step
        outer = outer.f_back
    return ""


def package_of(frame: FrameType) -> str:
    """Returns the top-level package of the code of a frame."""
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]
