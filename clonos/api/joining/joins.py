"""Joins of two streams: what users give to them, checked, and the steps that follow from it."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any, Final, Literal, Unpack

from clonos.api.checks.function_checks import check_function
from clonos.api.checks.wrong_ends import check_streams
from clonos.api.columns.column_checks import check_joined_keys, check_key
from clonos.api.common import Common, CommonWithEffects
from clonos.api.graph_errors import InvalidJob
from clonos.api.key_by import KeyBy, checked_key
from clonos.api.step import Exchange, StepInput
from clonos.api.steps import GraphBuilder
from clonos.api.windows import Tumbling
from clonos.operators.event_time.durations import Duration, duration_ns
from clonos.operators.event_time.in_order import MergeOrdered, NumberInput
from clonos.operators.facts import Definition, plain
from clonos.operators.joins.join_facts import as_of, join, lookup
from clonos.operators.joins.match_rules import AsOfRules, Between, Direction, How, MatchRule, SameWindow
from clonos.operators.steps.context import GIVE_TIMESTAMPS
from clonos.operators.tags import Tag

Closed = Literal["both", "left", "right", "neither"]

BOUND: Final = 'Bounds are lengths of time such as "-1h", 0 or "30min", the lower one first.'
ZERO: Final = re.compile(r"0+(\.0*)?\s*(ms|s|min|h|d)?")


class JoinOptions(CommonWithEffects, total=False):
    """Options of ``join`` that do not change the type of its results."""

    between: tuple[Duration, Duration] | None
    closed: Closed
    window: Tumbling | None
    ttl: Duration | None
    late: Tag[Any] | None


def keyed_sides(left: GraphBuilder, right: GraphBuilder, on: Any, step: str) -> tuple[GraphBuilder, GraphBuilder]:
    """Partitions both streams by their keys.

    Raises: InvalidJob: ``on`` is neither fields nor a pair of fields or functions.
    """
    check_streams(step, (right,))
    keys = (on, on) if isinstance(on, str | list) else on
    is_pair = isinstance(keys, tuple) and len(keys) == 2
    if not is_pair or not all(map(_is_key, keys)):
        raise InvalidJob(
            step,
            f"gets on={on!r:.80}",
            'Give a field that both streams have, such as on="order", a list of such fields, or a pair of fields, lists'
            ' or functions: on=("order", "order_id"), on=(left_key, right_key).',
        )
    if len({len(key) if isinstance(key, list) else 1 for key in keys if not callable(key)}) > 1:
        raise InvalidJob(step, f"gets on={on!r:.80}", "Give as many fields of the left stream as of the right one.")
    return _keyed(left, keys[0], step, "left"), _keyed(right, keys[1], step, "right")


def _is_key(key: Any) -> bool:
    if isinstance(key, list):
        return bool(key) and all(isinstance(each, str) for each in key)
    return isinstance(key, str) or callable(key)


def _keyed(stream: GraphBuilder, key: Any, step: str, side: str) -> GraphBuilder:
    checked = checked_key(step, (*key,) if isinstance(key, list) else (key,))
    key_by = KeyBy(stream._graph.reserve_name(f"{step}-{side}-key", None), checked, False)
    check_key(stream._graph, stream._inputs, step, key_by.fields)
    return GraphBuilder(stream._graph, stream._inputs_by(Exchange.HASH, key_by))


def join_step(
    left: GraphBuilder,
    right: GraphBuilder,
    *,
    how: str,
    select: Callable[[Any, Any], Any] | None,
    between: tuple[Duration, Duration] | None = None,
    closed: Closed = "both",
    window: Tumbling | None = None,
    ttl: Duration | None = None,
    late: Tag[Any] | None = None,
    **common: Unpack[CommonWithEffects],
) -> tuple[StepInput, ...]:
    """Adds a join of two keyed streams: see ``Stream.join``.

    Raises: InvalidJob: the streams or the arguments do not fit.
    """
    step = common.get("name") or "join"
    kind = checked_how(step, how, tuple(How))
    check_select(step, select, kind.gives_pairs)
    rule, text = _rule(step, between, closed, window, ttl)
    sides = (left, right)
    have_times = [each._graph.have_same_times(step, each._inputs) for each in sides]
    is_timed = all(have_times)
    if not is_timed and ttl is None:
        raise timestamps_missing(step, have_times)
    if late is not None and not is_timed:
        raise InvalidJob(step, "gets late=, and its streams have no timestamps", GIVE_TIMESTAMPS)
    definition = partial(
        join, rule=rule, match=text, how=kind, select=select, late=_late_tag(step, late), is_timed=is_timed
    )
    return joined_step(left, right, "join", definition, common)


def as_of_step(
    left: GraphBuilder,
    right: GraphBuilder,
    *,
    direction: str = "backward",
    tolerance: Duration | None = None,
    how: str,
    select: Callable[[Any, Any], Any] | None,
    late: Tag[Any] | None = None,
    **common: Unpack[CommonWithEffects],
) -> tuple[StepInput, ...]:
    """Adds an as-of join of two keyed streams: see ``Stream.join_as_of``.

    Raises: InvalidJob: the streams or the arguments do not fit.
    """
    step = common.get("name") or "join_as_of"
    kind = checked_how(step, how, (How.LEFT, How.INNER))
    check_select(step, select, True)
    if direction not in tuple(Direction):
        raise InvalidJob(
            step, f"gets direction={direction!r:.80}", f"Give one of {', '.join(map(repr, map(str, Direction)))}."
        )
    if direction != Direction.BACKWARD and tolerance is None:
        raise InvalidJob(
            step,
            f"looks {direction}, and has no tolerance: it would wait for ever",
            'Give the greatest distance, such as tolerance="1h".',
        )
    have_times = [each._graph.have_same_times(step, each._inputs) for each in (left, right)]
    if not all(have_times):
        raise timestamps_missing(step, have_times)
    tolerance_ns = None if tolerance is None else bound_ns(tolerance)
    rules = AsOfRules(Direction(direction), tolerance_ns, kind is How.INNER)
    definition = partial(as_of, rules=rules, select=select, late=_late_tag(step, late))
    return joined_step(left, right, "join_as_of", definition, common)


def lookup_step(
    left: GraphBuilder,
    table: GraphBuilder,
    *,
    how: str,
    select: Callable[[Any, Any], Any] | None,
    **common: Unpack[CommonWithEffects],
) -> tuple[StepInput, ...]:
    """Adds a lookup of records in a keyed table: see ``Stream.lookup``.

    Raises: InvalidJob: the arguments do not fit.
    """
    step = common.get("name") or "lookup"
    kind = checked_how(step, how, (How.LEFT, How.INNER))
    check_select(step, select, True)
    has_times, _ = (each._graph.have_same_times(step, each._inputs) for each in (left, table))
    definition = partial(lookup, is_inner=kind is How.INNER, select=select, has_times=has_times)
    return joined_step(left, table, "lookup", definition, common)


def merge_step(streams: tuple[GraphBuilder, ...], late: Tag[Any] | None, common: Common) -> tuple[StepInput, ...]:
    """Adds an ordered merge of streams: see ``Stream.merge_ordered``.

    Raises: InvalidJob: a stream has no timestamps, or belongs to another job.
    """
    step = common.get("name") or "merge_ordered"
    check_streams(step, streams)
    graph = streams[0]._graph
    late_tag = _late_tag(step, late)
    inputs: tuple[StepInput, ...] = ()
    for number, stream in enumerate(streams):
        if stream._graph is not graph:
            raise InvalidJob(step, "merges streams of two jobs", "Both must come from one Job.")
        if not graph.have_same_times(step, stream._inputs):
            raise InvalidJob(step, "merges a stream without timestamps by time", GIVE_TIMESTAMPS)
        upstreams = {graph.steps[each.step].parallelism for each in stream._inputs}
        parallelism = upstreams.pop() if len(upstreams) == 1 else None
        marked = graph.add(
            "merge_input", stream._inputs, {"parallelism": parallelism}, plain(partial(NumberInput, number))
        )
        inputs += (StepInput(marked.number),)
    definition = partial(MergeOrdered.facts, late=late_tag, inputs=len(streams))
    added = graph.add("merge_ordered", inputs, common, definition)
    return (StepInput(added.number),)


def joined_step(
    left: GraphBuilder, right: GraphBuilder, kind: str, definition: Definition, common: Common
) -> tuple[StepInput, ...]:
    """Adds a step of two inputs with keys that may be equal.

    Raises: InvalidJob: the streams belong to two jobs, their keys are never equal, or an option cannot be used.
    """
    if left._graph is right._graph:
        inputs = left._inputs, right._inputs
        keys = list(map(left._graph.key_columns, inputs))
        check_joined_keys(left._graph, common.get("name") or kind, inputs, keys)
    return two_input_step(left, right, kind, definition, common)


def _late_tag(step: str, late: Any) -> str | None:
    """Returns the name of the side output of a step for late records, if it is given.

    Raises: InvalidJob: it is no tag.
    """
    if late is None:
        return None
    if not isinstance(late, Tag):
        raise InvalidJob(step, f"gets late={late!r:.80}", 'Give it a tag: late=Tag("late").')
    return late.name


def checked_how(step: str, how: str, allowed: tuple[How, ...]) -> How:
    """Returns the kind of a join.

    Raises: InvalidJob: there is no such kind.
    """
    if how not in allowed:
        raise InvalidJob(step, f"gets how={how!r:.80}", f"Give one of {', '.join(map(repr, map(str, allowed)))}.")
    return How(how)


def check_select(step: str, select: Any, gives_pairs: bool) -> None:
    """Checks the function that makes a result of a pair.

    Raises: InvalidJob: it cannot be called for a result, or the join gives no pairs.
    """
    if select is None:
        return
    if not callable(select):
        raise InvalidJob(step, f"gets select={select!r:.80}", "Give a function select(left, right).")
    if not gives_pairs:
        raise InvalidJob(
            step, "gives records of the left stream, and gets select=", "Leave select out, and call map on the result."
        )
    check_function("join", step, select, ("left", "right"))


def timestamps_missing(step: str, have_times: list[bool]) -> InvalidJob:
    """Creates the error for a join by time of streams without timestamps."""
    which = "streams" if not any(have_times) else f"a {'right' if have_times[0] else 'left'} stream"
    return InvalidJob(step, f"joins {which} without timestamps by time", GIVE_TIMESTAMPS)


def _rule(step: str, between: Any, closed: str, window: Any, ttl: Duration | None) -> tuple[MatchRule, str]:
    """Returns the rule of a join, and its text for the plan."""
    given = [each is not None for each in (between, window, ttl)]
    if sum(given) != 1:
        raise InvalidJob(
            step,
            "gets more than one of between, window and ttl"
            if any(given)
            else "has no bound in time, so it would keep every record for ever",
            'Give one of between=("-1h", "1h"), window=Tumbling("1h") and ttl="1d".',
        )
    if closed not in ("both", "left", "right", "neither"):
        raise InvalidJob(step, f"gets closed={closed!r:.80}", "Give 'both', 'left', 'right' or 'neither'.")
    if window is not None:
        if not isinstance(window, Tumbling):
            raise InvalidJob(step, f"gets window={window!r:.80}", 'Give Tumbling("1h"), or between=("-1h", "1h").')
        if window.timezone or window.time == "processing":
            problem = "joins in windows of a time zone or of processing time"
            raise InvalidJob(step, problem, "Give size and offset: its windows follow event time, in UTC.")
        return SameWindow(window.size_ns, window.offset_ns), str(window)
    if ttl is not None:
        ttl_ns = duration_ns(ttl)
        return Between(-ttl_ns, ttl_ns), f"within {ttl_ns} ns"
    if not isinstance(between, tuple) or len(between) != 2:
        raise InvalidJob(step, f"gets between={between!r:.80}", BOUND)
    lower_ns = bound_ns(between[0]) + (closed in ("right", "neither"))
    upper_ns = bound_ns(between[1]) - (closed in ("left", "neither"))
    if lower_ns > upper_ns:
        raise InvalidJob(step, f"gets between={between!r:.80}, in which nothing lies", BOUND)
    return Between(lower_ns, upper_ns), f"{lower_ns} to {upper_ns} ns"


def bound_ns(given: Any) -> int:
    """Converts a length of time that may be zero or negative, such as "-1h", to nanoseconds.

    Raises: InvalidDuration: it is none.
    """
    if isinstance(given, str):
        text = given.strip()
        sign, size = (-1, text[1:]) if text.startswith("-") else (1, text)
        return 0 if ZERO.fullmatch(size.strip()) else sign * duration_ns(size)
    if isinstance(given, (int, float, timedelta)) and not isinstance(given, bool):
        zero = timedelta(0) if isinstance(given, timedelta) else 0
        if given == zero:
            return 0
        return -duration_ns(-given) if given < zero else duration_ns(given)  # type: ignore[operator]
    return duration_ns(given)


def two_input_step(
    first: GraphBuilder,
    second: GraphBuilder,
    kind: str,
    definition: Definition,
    common: Common,
) -> tuple[StepInput, ...]:
    """Adds a step whose operator is a ``TwoInputOperator``, and returns the input that reads its results.

    Raises: InvalidJob: the streams belong to two jobs, or an option cannot be used.
    """
    graph = first._graph
    if second._graph is not graph:
        raise InvalidJob(common.get("name") or kind, "joins streams of two jobs", "Both must come from one Job.")
    inputs = (*first._inputs, *second._inputs)
    step = graph.add(kind, inputs, common, definition, second_from=len(first._inputs))
    return (StepInput(step.number),)
