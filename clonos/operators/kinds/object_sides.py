"""Sides of a join whose records are Python objects. Their keys are compared as tables have them.

Nothing here loads numpy or pyarrow, which jobs of rows do not need.
"""

from __future__ import annotations

from typing import Any, Final

from clonos.core.ports.recorder import Recorder
from clonos.kernels.record_batch import RecordBatch
from clonos.operators.event_time.late_batch import LateBatch
from clonos.operators.joins.match_rules import AsOfRules, How, MatchRule
from clonos.operators.kinds.object_buffers import ObjectBuffers
from clonos.operators.kinds.object_results import ObjectResults, Select
from clonos.operators.kinds.object_side import ObjectSide
from clonos.operators.kinds.object_versions import ObjectLatest, ObjectLefts, ObjectVersions
from clonos.operators.operator import InputSide, Scope, Times, TwoInputOperator
from clonos.operators.state.state_spec import Numbers, StateKind, StateScope, StateSpec, keyed
from clonos.operators.warn_once import WarnOnce

ARRIVAL: Final = "arrival"
"""Sequence of the numbers of records."""

LEFT, RIGHT = (keyed(name, (1, 3), (Numbers(ARRIVAL, (0,)), Numbers(ARRIVAL, (1, 1)))) for name in ("left", "right"))
"""Tables of the records of a side: number -> ``Record``."""

LATEST: Final = keyed("right")
"""Table of the last right record of each key."""

UNMATCHED: Final = StateSpec(
    "unmatched", StateKind.TABLE, StateScope.REFERRING, owner=ARRIVAL, numbers=(Numbers(ARRIVAL, (0,)),)
)
"""Table of the numbers of the records that nothing has matched."""

KEY_CHARACTERS_MAX: Final = 60


class ObjectSides(ObjectResults):
    """See ``Sides``."""

    def __init__(self, join: TwoInputOperator, step: str, select: Select | None, scope: Scope) -> None:
        super().__init__(join, select)
        self._state = scope.state
        self._key_types = KeyTypes(step, scope.context.recorder)

    def of_rows(self, is_left: bool, rows: list[Any], times: Times) -> ObjectSide:
        """See ``Sides``."""
        self._key_types.see(is_left, rows[0][0])
        return ObjectSide([key for key, _ in rows], [row for _, row in rows], times)

    def of_columns(self, is_left: bool, batch: RecordBatch, key: Any, side: InputSide) -> ObjectSide | None:
        """See ``Sides``."""
        rows, batch = side.pairs_of(batch, key)
        return self.of_rows(is_left, rows, side.times_of(batch)) if rows else None

    def add_late(self, late: LateBatch, batch: ObjectSide) -> None:
        """See ``Sides``."""
        for row, timestamp_ns in zip(batch.rows, batch.instants, strict=True):
            late.add(row, timestamp_ns)

    def lefts(self) -> ObjectLefts:
        """See ``Sides``."""
        return ObjectLefts(self._state.table(LEFT))

    def versions(self, rules: AsOfRules) -> ObjectVersions:
        """See ``Sides``."""
        return ObjectVersions(self._state.table(RIGHT), rules)

    def latest(self) -> ObjectLatest:
        """See ``Sides``."""
        return ObjectLatest(self._state.table(LATEST))

    def buffers(self, rule: MatchRule, how: How, has_times: bool) -> ObjectBuffers:
        """See ``Sides``."""
        left, right, unmatched = map(self._state.table, (LEFT, RIGHT, UNMATCHED))
        return ObjectBuffers(self, (left, right), unmatched, rule, how, has_times)


class ObjectJoinKind:
    """Kind of Python objects. ``select`` makes the results of pairs."""

    def __init__(self, select: Select | None) -> None:
        self._select = select

    @property
    def as_of_specs(self) -> tuple[StateSpec, ...]:
        """See ``JoinKind``."""
        return LEFT, RIGHT

    @property
    def latest_specs(self) -> tuple[StateSpec, ...]:
        """See ``JoinKind``."""
        return (LATEST,)

    def buffer_specs(self, how: How) -> tuple[StateSpec, ...]:
        """See ``JoinKind``."""
        return LEFT, RIGHT, UNMATCHED

    def sides(self, join: TwoInputOperator, step: str, scope: Scope) -> ObjectSides:
        """See ``JoinKind``."""
        return ObjectSides(join, step, self._select, scope)


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
