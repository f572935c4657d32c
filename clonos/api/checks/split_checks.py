"""Checks of ``split_hot_keys=``: whether the records of a key can be aggregated in parts, and merged."""

from __future__ import annotations

from typing import Any, Final, cast

from clonos.api.common import Common, CommonOfSplit
from clonos.api.graph_errors import InvalidJob
from clonos.operators.aggregates.aggregate import Aggregation
from clonos.operators.aggregates.partial import split_reason
from clonos.operators.emission_times import Emission

LEAVE_OUT: Final = "Leave split_hot_keys= out."


def taken_split(step: str, common: Common) -> bool:
    """Takes ``split_hot_keys`` out of the options of a step, and returns it.

    Raises: InvalidJob: it is no bool.
    """
    return checked_split(step, cast(CommonOfSplit, common).pop("split_hot_keys", False))


def checked_split(step: str, is_split: object) -> bool:
    """Returns ``split_hot_keys``. Raises: InvalidJob: it is no bool."""
    if not isinstance(is_split, bool):
        raise InvalidJob(step, f"has split_hot_keys={is_split!r:.80}", "Give True or False.")
    return is_split


def check_split_emission(step: str, emit: Emission) -> None:
    """Checks that a split step does not promise results for single records. Raises: InvalidJob: it does."""
    if emit.count is not None:
        raise InvalidJob(
            step,
            f"has split_hot_keys=True and emit={emit}, and parts of several records give no result for one of them",
            'Give emit=changes(), every("5s") or at_end().',
        )


def check_split(step: str, aggregation: Aggregation[Any, Any], reason: str = "", *, has_effects: bool = False) -> None:
    """Checks that a step can be split. ``reason``: why it cannot, if that is known.

    Raises: InvalidJob: it cannot.
    """
    if reason := reason or split_reason(aggregation):
        advice = "Give merge=, or leave split_hot_keys= out." if "merge=" in reason else LEAVE_OUT
        raise InvalidJob(step, f"has split_hot_keys=True, but {reason}", advice)
    if has_effects:
        raise InvalidJob(
            step,
            "has split_hot_keys=True and effects=True, and its functions would run in the tasks of the step before it",
            LEAVE_OUT,
        )
