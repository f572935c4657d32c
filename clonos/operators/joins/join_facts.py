"""Facts of steps that join two inputs by key, over rows or over columns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from clonos.operators.aggregates.aggregate import UserFunction
from clonos.operators.columnar.joins.join_form import JoinForm
from clonos.operators.columnar.row_forms import JOIN_TIME
from clonos.operators.event_time.timestamps import TimestampColumn
from clonos.operators.facts import Facts, KnownInputs, facts_of, with_form
from clonos.operators.joins.as_of import AsOfJoin
from clonos.operators.joins.buffered_join import ClockJoin, EventJoin
from clonos.operators.joins.join import Lookup
from clonos.operators.joins.match_rules import AsOfRules, How, Keys, MatchRule
from clonos.operators.kinds.object_results import Select
from clonos.operators.kinds.object_sides import ObjectJoinKind
from clonos.operators.operator import Operator


def join(
    given: KnownInputs, rule: MatchRule, match: str, how: How, select: Select | None, late: str | None, is_timed: bool
) -> Facts:
    """Returns the facts of a join. ``match``: the text of ``rule``. ``is_timed``: by timestamps, else by the clock."""
    arguments: dict[str, Any] = {"rule": rule, "how": how, **({"late": late} if is_timed else {})}
    make: Callable[..., Any] = partial(EventJoin if is_timed else ClockJoin, **arguments)
    facts = replace(
        _facts(given, partial(make, given.step, ObjectJoinKind(select)), select, late),
        has_times=is_timed,
        passes_records=not how.gives_pairs,
        gives_pairs=how.gives_pairs and select is None,
        state=(("how", str(how)), ("match", match if is_timed else f"{match} by the clock")),
    )
    if (keys := _keys(given)) is None:
        return facts
    has_join_time = how.gives_pairs and is_timed
    form = JoinForm(
        keys,
        make,
        select=select,
        pair_times=TimestampColumn(JOIN_TIME) if has_join_time else given.timestamp_column if is_timed else None,
        may_lack=(how.keeps(False), how.keeps(True)) if how.gives_pairs else None,
        has_join_time=has_join_time,
    )
    return _with_form(facts, form)


def as_of(given: KnownInputs, rules: AsOfRules, select: Select | None, late: str | None) -> Facts:
    """Returns the facts of an as-of join."""
    tolerance = "none" if rules.tolerance_ns is None else f"{rules.tolerance_ns} ns"
    make: Callable[..., Any] = partial(AsOfJoin, rules=rules, late=late)
    facts = replace(
        _facts(given, partial(make, given.step, ObjectJoinKind(select)), select, late),
        has_times=True,
        state=(("direction", str(rules.direction)), ("tolerance", tolerance)),
    )
    if (keys := _keys(given)) is None:
        return facts
    time, may_lack = given.timestamp_column, (False, not rules.is_inner)
    return _with_form(facts, JoinForm(keys, make, select=select, pair_times=time, may_lack=may_lack))


def lookup(given: KnownInputs, is_inner: bool, select: Select | None, has_times: bool) -> Facts:
    """Returns the facts of a lookup. ``has_times``: the left stream has timestamps."""
    make: Callable[..., Any] = partial(Lookup, is_inner=is_inner)
    facts = replace(_facts(given, partial(make, given.step, ObjectJoinKind(select)), select, None), has_times=has_times)
    if (keys := _keys(given)) is None:
        return facts
    time, may_lack = given.timestamp_column if has_times else None, (False, not is_inner)
    return _with_form(facts, JoinForm(keys, make, False, select, time, may_lack))


def _facts(given: KnownInputs, make: Callable[[], Operator], select: Select | None, late: str | None) -> Facts:
    return replace(
        facts_of(make, given),
        calls=() if select is None else (UserFunction(select, ("left", "right")),),
        runs_user_code=select is not None,
        side_tags=() if late is None else (late,),
        gives_pairs=select is None,
    )


def _keys(given: KnownInputs) -> Keys | None:
    """Returns the columns of both keys; None if the key of a side has none, or as many as the other one has."""
    left, right = given.keys
    return (left, right) if left and len(left) == len(right) else None


def _with_form(facts: Facts, form: JoinForm) -> Facts:
    return replace(with_form(facts, form), timestamp_column=form.pair_times if form.emits_columns else None)
