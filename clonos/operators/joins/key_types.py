"""Types of the keys of a join. A str never equals an int, so sides with such keys match nothing, without an error."""

from __future__ import annotations

from typing import Any, Final

from clonos.core.ports.recorder import Recorder
from clonos.operators.warn_once import WarnOnce

KEY_CHARACTERS_MAX: Final = 60


class KeyTypes:
    """Lookout of a join for sides whose keys have unequal types; warns once, and not in a replay."""

    __slots__ = ("_keys", "_step", "_warning")

    def __init__(self, step: str, recorder: Recorder) -> None:
        self._step = step
        self._warning = WarnOnce(step, recorder)
        self._keys: dict[bool, Any] | None = {}
        """The first key of each side, by whether it is the left one; None when both are known."""

    def see(self, is_left: bool, key: Any) -> None:
        """Takes a key of a side, and compares the first ones of both."""
        if self._keys is None or key is None:
            return
        self._keys.setdefault(is_left, key)
        if len(self._keys) < 2:
            return
        left, right = self._keys[True], self._keys[False]
        self._keys = None
        if not _may_be_equal(left, right):
            self._warning.warn(lambda: _text(self._step, left, right))


def _may_be_equal(left: Any, right: Any) -> bool:
    if left is None or right is None:
        return True
    if type(left) is tuple and type(right) is tuple:
        return len(left) == len(right) and all(map(_may_be_equal, left, right))
    return type(left) is type(right)


def _text(step: str, left: Any, right: Any) -> str:
    return (
        f"the step {step} joins the key {_shown(left)} of the left stream with {_shown(right)} of the right one:"
        " keys of different types never match. Convert one of them in on=(..., ...)."
    )


def _shown(key: Any) -> str:
    return f"{key!r:.{KEY_CHARACTERS_MAX}} ({_type_of(key)})"


def _type_of(key: Any) -> str:
    if type(key) is tuple:
        return f"tuple of {', '.join(map(_type_of, key))}"
    return type(key).__name__
