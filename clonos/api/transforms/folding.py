"""fold of streams with and without keys."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar, Unpack

from clonos.api.common import Common, CommonWithEffects
from clonos.api.emission import check_emission
from clonos.api.graph_errors import InvalidJob
from clonos.api.step import StepInput
from clonos.api.steps import GraphBuilder
from clonos.api.themes import Theme
from clonos.operators.emission_times import Emission
from clonos.operators.steps.totals import fold

if TYPE_CHECKING:
    from clonos.api.stream import Stream

T = TypeVar("T")
K = TypeVar("K")
A = TypeVar("A")


class Folding(Theme, Generic[T]):
    """Base of ``Stream`` with ``fold``."""

    def fold(
        self, initial: A, function: Callable[[A, T], A | None], *, emit: Emission, **common: Unpack[CommonWithEffects]
    ) -> Stream[A]:
        """Folds all records into one value, in one task, and emits the value as ``emit`` says and when the input ends.

        Results have no timestamps.

        Args:
            initial: the first value; the step starts with a copy of it.
            function: called with (value so far, record); returns the new value, or None if it has changed it in place.
            emit: ``each(n)``, ``every("5s")`` or ``at_end()``. At the end of the input the value is emitted if it has
                changed since.

        Raises:
            InvalidJob: ``emit`` is none of these, or ``parallelism`` is not 1.

        Example::

            orders.fold(0, lambda total, order: total + order["cents"], emit=every("5s"))
        """
        if common.get("parallelism") not in (None, 1):
            raise InvalidJob(
                common.get("name") or "fold",
                f"has the parallelism {common['parallelism']!r}, and a fold without a key has one value in one task",
                "Leave it out, or call key_by before it.",
            )
        common["parallelism"] = 1
        return self._stream(folded(self, initial, function, emit, False, common))


class KeyedFolding(Theme, Generic[K, T]):
    """Base of ``KeyedStream`` with ``fold``."""

    def fold(
        self, initial: A, function: Callable[[A, T], A | None], *, emit: Emission, **common: Unpack[CommonWithEffects]
    ) -> Stream[tuple[K, A]]:
        """Folds the records of each key into one value, and emits (key, value) as ``emit`` says and at the end.

        Results have no timestamps.

        Args:
            initial: the first value; each key starts with a copy of it.
            function: called with (value so far, record); returns the new value, or None if it has changed it in place.
            emit: ``each(n)`` for every n-th record of a key, ``every("5s")`` for all keys that have changed, in the
                order of their first change, or ``at_end()``. At the end of the input the keys that have changed since
                are emitted.

        Raises:
            InvalidJob: ``emit`` is none of these.

        Example::

            clicks.key_by("user").fold([], list.append, emit=each(10))
        """
        return self._stream(folded(self, initial, function, emit, True, common))


def folded(
    stream: GraphBuilder,
    initial: Any,
    function: Callable[[Any, Any], Any],
    emit: Emission,
    is_keyed: bool,
    common: Common,
) -> tuple[StepInput, ...]:
    """Adds a fold to a stream.

    Raises: InvalidJob: ``emit`` is no ``Emission``.
    """
    check_emission(common.get("name") or "fold", emit)
    definition = partial(fold, initial=initial, function=function, emit=emit, is_keyed=is_keyed)
    return stream._step("fold", definition, common)
