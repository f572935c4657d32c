"""The autoscaler: a pure function from what it remembers and the load of a window to what it decides.

It sees in the load whether a change was made, and is told of a refusal. So a dry run decides as a real one
on the same load, and a change by hand counts as one of its own.

A group of vertices that forward edges connect has one width, and one line of advice with its reason in a sentence.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from math import ceil, inf
from typing import Final

from clonos.core.model.plan import Plan
from clonos.core.scaling.arrivals import Arrivals, with_arrivals
from clonos.core.scaling.demand import Growth, at_most, capacity_per_s, growths, needed_width
from clonos.core.scaling.load import NANOSECONDS_PER_S, Load

PROCESSORS_FULL_SHARE: Final = 0.9
WINDOWS_PER_HOUR: Final = 120
"""Windows in which a job has the changes of an hour: shorter ones let it follow the load faster."""

FAILURES_MAX: Final = 4
"""Changes in a row that did not help, after which the time for which the direction is closed grows no more."""

HOT_KEY_ADVICE: Final = "; where the step aggregates, split_hot_keys=True divides it, else take a finer key"


class ScalingPolicy(StrEnum):
    """Aim for which the widths of a job are chosen."""

    THROUGHPUT = "throughput"  # to keep up with what arrives
    LAG = "lag"  # and to work off what waits outside
    LATENCY = "latency"  # and to keep the latency below a target


class ScalingDirection(StrEnum):
    """Direction of a change of the width."""

    UP = "up"
    DOWN = "down"


@dataclass(frozen=True, slots=True)
class ScalingGroup:
    """Vertices with one width. ``name``: of the step that the user named."""

    name: str
    vertices: tuple[int, ...]
    width_min: int
    width_max: int
    splits: int | None = None  # of a source that finds no new ones: more tasks than splits have nothing to read

    def __post_init__(self) -> None:
        assert 1 <= self.width_min <= self.width_max, self

    def bounded(self, width: int) -> tuple[int, str]:
        """Returns the nearest width that the group may have, and why it is another one; "" if it is not."""
        if self.splits is not None and width > self.splits and self.splits < self.width_max:
            return max(self.splits, self.width_min), _few_splits(self.splits)
        if width > self.width_max:
            return self.width_max, f"{self.width_max} is the most that it may have"
        if width < self.width_min:
            return self.width_min, f"{self.width_min} is the fewest that it may have"
        return width, ""


@dataclass(frozen=True, slots=True)
class ScalingSettings:
    """Settings of the autoscaler."""

    policy: ScalingPolicy = ScalingPolicy.LAG
    latency_target_ms: float = inf
    catch_up_s: float = 120.0  # in which lag is to be worked off
    window_s: float = 30.0
    windows_up: int = 2  # in a row that need more tasks, before there are more
    seconds_down: float = 600.0  # in which each window needs fewer tasks, before there are fewer
    target_share: float = 0.7  # of the time in which the busiest task may work; above it more are needed
    soon_share: float = 0.55  # above it more are taken when other steps need more
    target_share_down: float = 0.5  # with which fewer are enough
    spare_share_min: float = 0.25  # of the tasks that a change saves at least
    growth_min: float = 1.5  # a change up multiplies by at least this, so that a slow rise takes few changes
    factor_max: int = 4  # a change multiplies or divides by at most this
    rescales_per_hour: int = 6
    effect_share_min: float = 1 / 3  # of the predicted gain; below it a change has not helped
    refused_s: float = 600.0  # for which a direction is closed in which the job did not make a change
    closed_s: float = 1_800.0  # for which a direction is closed in which a change did not help, the first time

    @property
    def changes_s(self) -> float:
        """Time in seconds in which ``rescales_per_hour`` are made at most: an hour with windows of 30 seconds."""
        return WINDOWS_PER_HOUR * self.window_s

    @property
    def windows_down(self) -> int:
        """Windows in a row that need fewer tasks, before there are fewer."""
        return ceil(self.seconds_down / self.window_s)


@dataclass(frozen=True, slots=True)
class Trial:
    """Change whose effect is to be judged: its widths, and what the vertex that needs it can take before and after."""

    width: int
    wanted: int
    vertex: str
    capacity_per_s: float
    predicted_per_s: float


@dataclass(frozen=True, slots=True)
class Closed:
    """ScalingDirection in which a group is not changed for some time, and why."""

    until_ns: int
    reason: str
    is_refused: bool = False  # the job did not make the change


@dataclass(frozen=True, slots=True)
class GroupMemory:
    """Facts that the autoscaler remembers of one group."""

    width: int = 0
    windows_short: int = 0  # in a row that needed more tasks
    spare: tuple[int, ...] = ()  # what the last windows needed, all of them clearly fewer tasks than there are
    asked: Trial | None = None  # by the last decision
    trial: Trial | None = None  # that the job has made
    windows_since_change: int = 0
    back_to: int | None = None  # width with which the job can do as much, because the last change did not help
    failures: int = 0  # changes up in a row that did not help
    shrunk_at_ns: int | None = None
    closed: Mapping[ScalingDirection, Closed] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ScalingMemory:
    """Facts that the autoscaler remembers. ``changes_ns``: when widths have changed in the last hour."""

    groups: Mapping[str, GroupMemory] = field(default_factory=dict)
    changes_ns: tuple[int, ...] = ()
    end_ns: int = 0  # of the last window
    arrivals: Mapping[str, Arrivals] = field(default_factory=dict)  # at the sources, by vertex


@dataclass(frozen=True, slots=True)
class Advice:
    """Sentence about what a group needs. ``wanted``: the width that it should have now."""

    group: str
    width: int
    wanted: int
    sentence: str


@dataclass(frozen=True, slots=True)
class Decision:
    """Advice for each group; ``widths``: of the groups that should change now, together in one change."""

    advice: tuple[Advice, ...]

    @property
    def widths(self) -> dict[str, int]:
        """Widths of the groups that should change now."""
        return {each.group: each.wanted for each in self.advice if each.wanted != each.width}


@dataclass(frozen=True, slots=True)
class AskedWidths:
    """Widths that a function of the user asks for, by group. ``by``: its name. ``failure``: why it gave none, as a
    clause."""

    by: str
    widths: Mapping[str, int]
    failure: str = ""


@dataclass(frozen=True, slots=True)
class Need:
    """Tasks that a group needs by one window. ``vertex``: of its vertices, which needs most."""

    up: float  # tasks, at the share of the time above which more are needed; inf: one key alone fills a task
    soon: float  # tasks that will be needed if the load goes on to rise, when others are added anyway
    down: float  # at the share with which fewer are enough
    vertex: str
    growth: Growth


class Autoscaler:
    """The function and what does not change: the plan, the groups that may change, and the settings."""

    def __init__(self, plan: Plan, groups: tuple[ScalingGroup, ...], settings: ScalingSettings) -> None:
        self._plan, self._groups, self._settings = plan, groups, settings

    def step(
        self, memory: ScalingMemory, load: Load, asked: AskedWidths | None = None
    ) -> tuple[ScalingMemory, Decision]:
        """Returns what is remembered after a window, and what should be done.

        ``asked``: what a function of the user decides. It has its own thresholds and judges the effect itself: only the
        bounds, the limit of changes in an hour and refusals hold for it.
        """
        load, arrivals = with_arrivals(load, memory.arrivals)
        needs = self._needs(memory, load)
        is_next = load.end_ns - memory.end_ns < 2 * self._settings.window_s * NANOSECONDS_PER_S
        span_ns = round(self._settings.changes_s * NANOSECONDS_PER_S)
        changes_ns = tuple(at_ns for at_ns in memory.changes_ns if load.end_ns - at_ns < span_ns)
        groups: dict[str, GroupMemory] = {}
        for group in self._groups:
            before, width = memory.groups.get(group.name, GroupMemory()), self._width(group, load)
            if before.width not in (0, width) and load.end_ns not in changes_ns:
                changes_ns = (*changes_ns, load.end_ns)
            if not is_next:  # something recovered meanwhile
                before = replace(before, windows_short=0, spare=())
            observed = self._judged(group, _observed(before, width, load.end_ns), needs[group.name], load)
            groups[group.name] = self._counted(observed, needs[group.name], load)
        memory = ScalingMemory(groups, changes_ns, load.end_ns, arrivals)
        if asked is not None:
            return self._step_asked(memory, asked)
        wanted = self._wanted(memory, needs, load)
        advice, tried = [], {}
        for group in self._groups:
            to = wanted.get(group.name, groups[group.name].width)
            advice.append(self._advice(group, memory, needs[group.name], load, to))
            tried[group.name] = replace(groups[group.name], asked=self._trial(group, needs[group.name], load, to))
        return replace(memory, groups=tried), Decision(tuple(advice))

    def needed(self, memory: ScalingMemory, load: Load) -> dict[str, int | None]:
        """Returns how many tasks each group needs for a load; None if it cannot be told or no number is enough."""
        needs = self._needs(memory, with_arrivals(load, memory.arrivals)[0])
        return {name: None if need is None or need.up == inf else int(need.up) for name, need in needs.items()}

    def after_refusal(self, memory: ScalingMemory, widths: Mapping[str, int], at_ns: int, reason: str) -> ScalingMemory:
        """Returns what is remembered after a change to ``widths`` was not made, for ``reason``, a clause: it counts as
        one, and its groups do not change in its direction for a while.
        """
        until_ns = at_ns + round(self._settings.refused_s * NANOSECONDS_PER_S)
        groups = {}
        for name, group in memory.groups.items():
            closed = dict(group.closed)
            if name in widths:
                way = ScalingDirection.UP if widths[name] > group.width else ScalingDirection.DOWN
                closed[way] = Closed(until_ns, reason, is_refused=True)
            groups[name] = replace(group, windows_short=0, spare=(), asked=None, back_to=None, closed=closed)
        return replace(memory, groups=groups, changes_ns=(*memory.changes_ns, at_ns))

    def after_delay(self, memory: ScalingMemory) -> ScalingMemory:
        """Returns what is remembered after a change was not made because another one was under way: it says nothing
        about the load or the job, so it does not count, and no direction is closed.
        """
        return replace(memory, groups={name: replace(group, asked=None) for name, group in memory.groups.items()})

    def after_interruption(self, memory: ScalingMemory, at_ns: int) -> ScalingMemory:
        """Returns what is remembered after a change was given up because a task failed: it counts as one, since each
        attempt costs a pause, but says nothing about the next one, so no direction is closed.
        """
        return replace(self.after_delay(memory), changes_ns=(*memory.changes_ns, at_ns))

    # ------------------------------------------------------------------ widths that a function of the user asks for

    def _step_asked(self, memory: ScalingMemory, asked: AskedWidths) -> tuple[ScalingMemory, Decision]:
        advice, groups = [], {}
        for group in self._groups:
            mine = memory.groups[group.name]
            to, sentence = self._answer(group, mine, memory, asked)
            advice.append(Advice(group.name, mine.width, to, sentence))
            groups[group.name] = GroupMemory(width=mine.width, closed=mine.closed)
        return replace(memory, groups=groups), Decision(tuple(advice))

    def _answer(
        self, group: ScalingGroup, mine: GroupMemory, memory: ScalingMemory, asked: AskedWidths
    ) -> tuple[int, str]:
        """Returns the width that a group should have now, and the sentence about it."""
        width, now = mine.width, tasks_text(mine.width)
        if asked.failure:
            return width, f"{now}: {asked.failure}"
        found = asked.widths.get(group.name)
        if found is None:
            return width, f"{now}: {asked.by} asks for no change"
        to, limit = group.bounded(found)
        if to == width:
            verb = "is" if width == 1 else "are"
            return (
                width,
                f"{now}: {asked.by} asks for {found}, but {limit}"
                if limit
                else f"{now} {verb} what {asked.by} asks for",
            )
        way = ScalingDirection.UP if to > width else ScalingDirection.DOWN
        obstacle = ""
        if way in mine.closed:
            obstacle = f"the change was not made: {mine.closed[way].reason}"
        elif len(memory.changes_ns) >= self._changes_max(way):
            obstacle = self._often(memory)
        if obstacle:
            return width, f"{now}: {asked.by} asks for {found}, but {obstacle}"
        return to, f"{now} to {to}: {asked.by} asks for {found}{f', and {limit}' if limit else ''}"

    def _changes_max(self, way: ScalingDirection) -> int:
        """Returns how many changes an hour has: half of them are for more tasks alone."""
        most = self._settings.rescales_per_hour
        return most if way is ScalingDirection.UP else (most + 1) // 2

    # ------------------------------------------------------------------ needs

    def _width(self, group: ScalingGroup, load: Load) -> int:
        return load.vertices[self._plan.vertices[group.vertices[0]].name].width

    def _needs(self, memory: ScalingMemory, load: Load) -> dict[str, Need | None]:
        settings = self._settings
        catch_up_s = inf if settings.policy is ScalingPolicy.THROUGHPUT else settings.catch_up_s
        found = growths(self._plan, load, catch_up_s, self._widths_max(memory, load))
        needs = {group.name: self._need(group, load, found) for group in self._groups}
        if settings.policy is ScalingPolicy.LATENCY and (load.latency_ms or 0.0) > settings.latency_target_ms:
            self._add_for_latency(needs, load)
        return needs

    def _widths_max(self, memory: ScalingMemory, load: Load) -> dict[str, int]:
        """Returns the largest width of each vertex that it may have now."""
        found = {name: vertex.width for name, vertex in load.vertices.items()}
        for group in self._groups:
            closed = memory.groups.get(group.name, GroupMemory()).closed.get(ScalingDirection.UP)
            if _is_full(load) or (closed is not None and closed.until_ns > load.end_ns):
                continue
            width_max = group.width_max if group.splits is None else min(group.width_max, group.splits)
            found.update((self._plan.vertices[number].name, width_max) for number in group.vertices)
        return found

    def _need(self, group: ScalingGroup, load: Load, found: list[Growth | None]) -> Need | None:
        needs = []
        for number in group.vertices:
            vertex, growth = self._plan.vertices[number], found[number]
            if growth is None:
                return None
            here = load.vertices[vertex.name]
            settings = self._settings
            shares = (settings.target_share, settings.soon_share, settings.target_share_down)
            up, soon, down = (needed_width(here, growth, share, vertex.is_source) for share in shares)
            needs.append(Need(up, soon, down, vertex.name, growth))
        most = max(needs, key=lambda need: (need.up, need.down))
        return replace(
            most, up=max(most.up, group.width_min), down=max(group.width_min, *(need.down for need in needs))
        )

    def _add_for_latency(self, needs: dict[str, Need | None], load: Load) -> None:
        """Asks for one task more where the busiest task of all works."""
        known = {name: need for name, need in needs.items() if need is not None}
        if known:
            name, need = max(known.items(), key=lambda item: load.vertices[item[1].vertex].busy_share)
            more = load.vertices[need.vertex].width + 1
            needs[name] = replace(need, up=max(need.up, more), down=max(need.down, more))

    # ------------------------------------------------------------------ what a window changes

    def _judged(self, group: ScalingGroup, before: GroupMemory, need: Need | None, load: Load) -> GroupMemory:
        """Judges a change in the second window after it: the first has what was under way."""
        open_ = {way: closed for way, closed in before.closed.items() if closed.until_ns > load.end_ns}
        found = replace(before, closed=open_)
        trial = found.trial
        if trial is None or need is None or found.windows_since_change < 1:
            return found
        found = replace(found, trial=None)
        can = capacity_per_s(load.vertices[trial.vertex])
        promised = trial.predicted_per_s - trial.capacity_per_s
        if found.width <= trial.width or need.up <= found.width:
            return found
        if can - trial.capacity_per_s >= promised * self._settings.effect_share_min:
            return replace(found, failures=0)
        failures = min(found.failures + 1, FAILURES_MAX)
        closed = Closed(self._closed_until(load, failures), self._why_it_did_not_help(group, trial, load))
        enough = max(trial.width, ceil(trial.width * can / trial.capacity_per_s))
        gives_back = enough <= found.width * (1.0 - self._settings.spare_share_min)
        back_to = enough if gives_back else None
        return replace(found, closed={**open_, ScalingDirection.UP: closed}, failures=failures, back_to=back_to)

    def _closed_until(self, load: Load, times: int = 1) -> int:
        """Returns until when a direction is closed: twice as long each time."""
        return load.end_ns + round(self._settings.closed_s * (1 << (times - 1)) * NANOSECONDS_PER_S)

    def _why_it_did_not_help(self, group: ScalingGroup, trial: Trial, load: Load) -> str:
        here = load.vertices[trial.vertex]
        if group.splits is not None and here.width > group.splits:
            return _few_splits(group.splits)
        if _is_full(load):
            return "the processors of its hosts are full"
        if here.hot_key:
            share = f"{here.hot_key_share:.0%} of what its busiest task gets"
            return f"the key {here.hot_key} alone is {share}{HOT_KEY_ADVICE}"
        return "each task does less than before, so something outside of the job limits them together"

    def _counted(self, before: GroupMemory, need: Need | None, load: Load) -> GroupMemory:
        """Counts the windows in a row that need more tasks, and those that need fewer."""
        if need is None or before.windows_since_change < 1:
            return replace(before, windows_short=0, spare=())
        if need.up > before.width:
            found = replace(before, windows_short=before.windows_short + 1, spare=())
            shrunk_ns = before.shrunk_at_ns
            if shrunk_ns is not None and load.end_ns - shrunk_ns < self._settings.seconds_down * NANOSECONDS_PER_S:
                reason = "it needed more tasks again soon after it had fewer"
                closed = {**found.closed, ScalingDirection.DOWN: Closed(self._closed_until(load), reason)}
                found = replace(found, closed=closed, shrunk_at_ns=None)
            return found
        found = replace(before, windows_short=0)
        if need.down >= before.width or need.down > before.width * (1.0 - self._settings.spare_share_min):
            return replace(found, spare=())
        return replace(found, spare=(*before.spare, int(need.down))[-self._settings.windows_down :])

    # ------------------------------------------------------------------ what should change

    def _wanted(self, memory: ScalingMemory, needs: Mapping[str, Need | None], load: Load) -> dict[str, int]:
        """Returns the widths that should change now: all that are too small, if one has been for long enough, else all
        that are too large for long enough.
        """
        settings, count = self._settings, len(memory.changes_ns)
        if count >= self._changes_max(ScalingDirection.UP):
            return {}
        back = {name: group.back_to for name, group in memory.groups.items() if group.back_to is not None}
        if back:
            return back
        is_due = any(
            memory.groups[group.name].windows_short >= settings.windows_up
            and self._wider(group, memory.groups[group.name], needs[group.name], load) is not None
            for group in self._groups
        )
        if is_due:
            return {
                group.name: wider
                for group in self._groups
                if (wider := self._wider(group, memory.groups[group.name], needs[group.name], load)) is not None
            }
        if count >= self._changes_max(ScalingDirection.DOWN):
            return {}
        return self._fewer(memory)

    def _fewer(self, memory: ScalingMemory) -> dict[str, int]:
        """Returns the widths of the groups that need fewer tasks, for half of the time at least, when one has for all
        of it, and none needs fewer and fewer.
        """
        settings = self._settings
        half = (settings.windows_down + 1) // 2
        spare = {
            name: group.spare
            for name, group in memory.groups.items()
            if len(group.spare) >= half and ScalingDirection.DOWN not in group.closed
        }
        falls = any(max(needs) * (1.0 - settings.spare_share_min) > max(needs[-half:]) for needs in spare.values())
        if falls or not any(len(needs) >= settings.windows_down for needs in spare.values()):
            return {}
        return {
            name: max(*needs, ceil(memory.groups[name].width / settings.factor_max)) for name, needs in spare.items()
        }

    def _wider(self, group: ScalingGroup, memory: GroupMemory, need: Need | None, load: Load) -> int | None:
        """Returns the width of a group that needs more tasks, or will do soon; None if it may not have them."""
        if need is None or need.up == inf or ScalingDirection.UP in memory.closed or _is_full(load):
            return None
        if max(need.up, need.soon) <= memory.width:
            return None
        settings, width = self._settings, memory.width
        by_step = width + 1 if settings.policy is ScalingPolicy.LATENCY else ceil(width * settings.growth_min)
        found = at_most((need.up, by_step), min(group.width_max, width * settings.factor_max))
        if group.splits is not None:
            found = min(found, group.splits)
        return found if found > width else None

    def _trial(self, group: ScalingGroup, need: Need | None, load: Load, width: int) -> Trial | None:
        now = self._width(group, load)
        if need is None or width == now:
            return None
        here = load.vertices[need.vertex]
        return Trial(now, width, need.vertex, capacity_per_s(here), capacity_per_s(here, width))

    # ------------------------------------------------------------------ sentences

    def _advice(self, group: ScalingGroup, memory: ScalingMemory, need: Need | None, load: Load, wanted: int) -> Advice:
        width = memory.groups[group.name].width
        return Advice(group.name, width, wanted, self._sentence(group, memory, need, load, wanted))

    def _sentence(self, group: ScalingGroup, memory: ScalingMemory, need: Need | None, load: Load, wanted: int) -> str:
        mine = memory.groups[group.name]
        now = tasks_text(mine.width)
        if need is None:
            return f"{now}: nothing is processed while more waits, so nothing can be told"
        here = load.vertices[need.vertex]
        asks = here.records_in_per_s * need.growth.catching_up
        if self._plan.vertices[group.vertices[0]].is_source and here.lag_records is None and wanted > mine.width:
            return (
                f"{now} to {wanted}: the busiest reads {here.busy_share:.0%} of the time, and what waits is not known"
            )
        can = capacity_per_s(here)
        takes = "" if can == inf or not can else f", and {now} can take {can:,.0f}/s"
        if wanted > mine.width:
            if self._knows_lag(load):
                return f"{now} to {wanted}: {asks:,.0f} records/s are to be processed{takes}"
            return f"{now} to {wanted}: the sources could give it {asks:,.0f} records/s{takes}"
        if mine.back_to is not None and wanted < mine.width:
            return f"{now} to {wanted}: the last change did not help, because {mine.closed[ScalingDirection.UP].reason}"
        if wanted < mine.width:
            return (
                f"{now} to {wanted}: {asks:,.0f} records/s for {_time(self._settings.seconds_down)} need no more{takes}"
            )
        if need.up > mine.width:
            return f"{now}: more are needed, but {self._why_not_wider(group, memory, need, load)}"
        if mine.spare:
            return f"{now}: {max(mine.spare)} would do, but {self._why_not_narrower(mine, memory)}"
        verb = "is" if mine.width == 1 else "are"
        return f"{now} {verb} right: the busiest works {here.busy_share:.0%} of the time"

    def _often(self, memory: ScalingMemory) -> str:
        span = self._settings.changes_s
        return f"the job has changed {len(memory.changes_ns)} times in the last {_time(span)}"

    def _knows_lag(self, load: Load) -> bool:
        sources = [vertex.name for vertex in self._plan.vertices if vertex.is_source]
        return all(load.vertices[name].lag_records is not None for name in sources)

    def _why_not_wider(self, group: ScalingGroup, memory: ScalingMemory, need: Need, load: Load) -> str:
        mine, here = memory.groups[group.name], load.vertices[need.vertex]
        if need.up == inf:
            share = here.busy_share * here.hot_key_share
            what = f"the key {here.hot_key} alone takes {share:.0%} of the time of one task"
            return f"they do not help: {what}{HOT_KEY_ADVICE}"
        if ScalingDirection.UP in mine.closed:
            closed = mine.closed[ScalingDirection.UP]
            return f"the {'change was not made' if closed.is_refused else 'last change did not help'}: {closed.reason}"
        if group.splits is not None and mine.width >= group.splits:
            return _few_splits(group.splits)
        if mine.width >= group.width_max:
            return f"{group.width_max} is the most that it may have"
        if _is_full(load):
            return "the processors of its hosts are full"
        if len(memory.changes_ns) >= self._changes_max(ScalingDirection.UP):
            return self._often(memory)
        return "not for long enough yet"

    def _why_not_narrower(self, mine: GroupMemory, memory: ScalingMemory) -> str:
        if ScalingDirection.DOWN in mine.closed:
            closed = mine.closed[ScalingDirection.DOWN]
            return f"the change was not made: {closed.reason}" if closed.is_refused else closed.reason
        if len(memory.changes_ns) >= self._changes_max(ScalingDirection.DOWN):
            return self._often(memory)
        return "not for long enough yet"


def _observed(before: GroupMemory, width: int, now_ns: int) -> GroupMemory:
    """Returns what is remembered of a group after its width was seen."""
    if before.width in (0, width):
        return replace(before, width=width, windows_since_change=before.windows_since_change + 1)
    is_own = before.asked is not None and before.asked.wanted == width  # a change by hand opens all directions again
    return GroupMemory(
        width=width,
        trial=before.asked if is_own else None,
        failures=before.failures if is_own else 0,
        shrunk_at_ns=now_ns if width < before.width and before.back_to is None else None,
        closed=before.closed if is_own else {},
    )


def _is_full(load: Load) -> bool:
    return (load.processors_share or 0.0) > PROCESSORS_FULL_SHARE


def _time(seconds: float) -> str:
    if seconds == 3_600:
        return "hour"
    return f"{seconds / 60:g} min" if seconds % 60 == 0 else f"{seconds:g} s"


def _few_splits(splits: int) -> str:
    return f"the source has only {splits} {'split' if splits == 1 else 'splits'}"


def tasks_text(width: int) -> str:
    """Returns a number of tasks in words."""
    return "1 task" if width == 1 else f"{width} tasks"
