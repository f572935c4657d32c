"""Joins of random graphs, and other steps of two inputs."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from datetime import timedelta
from functools import partial
from random import Random
from typing import Any

from clonos.api.stream import Stream
from clonos.api.windows import Tumbling
from clonos.operators.state.state_descriptors import MapState, ValueState
from clonos_chaos.jobs.fuzz_chain import KEYS
from clonos_chaos.jobs.graphs.graph_rows import LATE, GraphStep, Item, Row, check, key_of_row, marked, micros, name_of
from clonos_chaos.jobs.window_jobs import MS

KINDS = ("inner", "left", "right", "full", "semi", "anti")
DELAY_MS = 30


class Joining(GraphStep):
    """Join by key and time; its results are pairs, or left rows."""

    uses_rights = True

    def __init__(self, stage: int, rng: Random) -> None:
        super().__init__(stage, rng)
        self.how = rng.choice(KINDS)
        lower = rng.choice((-40, -15, 0, 15))
        self.lower, self.upper = lower, lower + rng.choice((0, 10, 45))
        self.closed = rng.choice(("both", "left", "right", "neither")) if self.upper > self.lower else "both"
        self.window = rng.choice((0, 0, 20, 50))

    def build(self, rows: Stream[Row], late: list[Stream[Row]]) -> Stream[Row]:
        options: dict[str, Any] = {"between": (f"{self.lower}ms", f"{self.upper}ms"), "closed": self.closed}
        if self.window:
            options = {"window": Tumbling(f"{self.window}ms")}
        if self.how not in ("semi", "anti"):
            options["select"] = partial(_pair, self.stage)
        join: Any = rows.join
        joined: Stream[Any] = join(
            self.rights_of(rows),
            on=(key_of_row, key_of_row),
            how=self.how,
            late=LATE,
            parallelism=self.parallelism,
            **options,
        )
        late.append(joined.side_output(LATE))
        return joined if "select" in options else joined.map(partial(_marked_as, self.stage, self.how))

    def twin(self, items: list[Item]) -> list[Item]:
        rights, found = self.right_twin(items), []
        matches: set[int] = set()
        for left, left_ns in items:
            met = [
                place
                for place, (right, right_ns) in enumerate(rights)
                if key_of_row(left) == key_of_row(right) and self._meets(left_ns, right_ns)
            ]
            matches.update(met)
            if self.how in ("semi", "anti"):
                if bool(met) is (self.how == "semi"):
                    found.append((_marked_as(self.stage, self.how, left), left_ns))
                continue
            pairs = [(_pair(self.stage, left, rights[place][0]), max(left_ns, rights[place][1])) for place in met]
            if not met and self.how in ("left", "full"):
                pairs = [(_pair(self.stage, left, None), left_ns)]
            found += pairs
        if self.how in ("right", "full"):
            alone = [item for place, item in enumerate(rights) if place not in matches]
            found += [(_pair(self.stage, None, right), right_ns) for right, right_ns in alone]
        return found

    def _meets(self, left_ns: int, right_ns: int) -> bool:
        if self.window:
            return left_ns // (self.window * MS) == right_ns // (self.window * MS)
        lower = self.lower * MS + (self.closed in ("right", "neither"))
        upper = self.upper * MS - (self.closed in ("left", "neither"))
        return lower <= right_ns - left_ns <= upper


class Timed:
    """Process function that shows the timestamp of each row in it."""

    def process(self, row: Row, context: Any) -> None:
        context.emit((*row, micros(context.timestamp)))


class AsOf(GraphStep):
    """As-of join that shows the time of the version of each left row; which of several with that time is open."""

    uses_rights = True

    def __init__(self, stage: int, rng: Random) -> None:
        super().__init__(stage, rng)
        self.direction = rng.choice(("backward", "forward", "nearest"))
        self.tolerance = rng.choice((20, 60)) if self.direction != "backward" or rng.random() < 0.5 else None
        self.how = rng.choice(("left", "left", "inner"))

    def build(self, rows: Stream[Row], late: list[Stream[Row]]) -> Stream[Row]:
        timed: Stream[Any] = self.rights_of(rows).process(Timed)
        join: Any = rows.join_as_of
        joined: Stream[Any] = join(
            timed,
            on=(key_of_row, key_of_row),
            direction=self.direction,
            tolerance=None if self.tolerance is None else f"{self.tolerance}ms",
            how=self.how,
            select=partial(_versioned, self.stage),
            late=LATE,
            parallelism=self.parallelism,
        )
        late.append(joined.side_output(LATE).map(_untimed))
        return joined

    def twin(self, items: list[Item]) -> list[Item]:
        rights: dict[int, list[int]] = {key: [] for key in range(KEYS)}
        for row, time_ns in sorted(self.right_twin(items), key=lambda item: item[1]):
            rights[key_of_row(row)].append(time_ns)
        found = []
        for row, time_ns in items:
            times = rights[key_of_row(row)]
            before, after = times[: bisect_right(times, time_ns)][-1:], times[bisect_left(times, time_ns) :][:1]
            near = {"backward": before, "forward": after, "nearest": before + after}[self.direction]
            version = min(near, key=lambda right_ns: abs(right_ns - time_ns), default=None)
            if version is not None and self.tolerance is not None and abs(version - time_ns) > self.tolerance * MS:
                version = None
            if version is not None or self.how == "left":
                shown = None if version is None else micros(version)
                found.append((marked(row, self.stage, shown), time_ns))
        return found


class LookingUp(GraphStep):
    """Enrichment by a table that is a stream: each row leaves as it came, with what the table has for its key."""

    uses_rights = True

    def build(self, rows: Stream[Row], late: list[Stream[Row]]) -> Stream[Row]:
        on = (key_of_row, key_of_row)
        return rows.lookup(self.rights_of(rows), on=on, select=_looked_up, parallelism=self.parallelism)


class RuledBranches:
    """Process function with broadcast state: passes rows on; rows of the other stream are the rules."""

    rules = MapState[int, int]("rules")

    def process_first(self, row: Row, context: Any) -> None:
        rules = context.broadcast_state(self.rules)
        check(all(number == rule for number, rule in rules.items()), lambda: f"the rules are {dict(rules)}")
        context.emit(row)

    def process_second(self, row: Row, context: Any) -> None:
        context.broadcast_state(self.rules)[row[0]] = row[0]


class Broadcasting(GraphStep):
    """Rules that are broadcast while the job runs: each row leaves as it came."""

    uses_rights = True

    def build(self, rows: Stream[Row], late: list[Stream[Row]]) -> Stream[Row]:
        rules = self.rights_of(rows).broadcast()
        first: Any = rows.key_by(key_of_row) if self.every % 2 else rows
        ruled: Stream[Row] = first.connect(rules).process(RuledBranches, parallelism=self.parallelism)
        return ruled


class Delaying:
    """Process function of two inputs that holds every third number back by a timer in event time."""

    held = ValueState[list[tuple[int, Row]]]("held", default=[])

    def process_first(self, row: Row, context: Any) -> None:
        if row[0] % 3:
            context.emit(row)
            return
        due = context.timestamp + timedelta(milliseconds=DELAY_MS)
        held = context.state(self.held)
        held.value = [*held.value, (micros(due), row)]
        context.set_event_timer(due)

    process_second = process_first

    def on_event_timer(self, timestamp: Any, context: Any) -> None:
        held = context.state(self.held)
        for due, row in held.value:
            if due == micros(timestamp):
                context.emit(row)
        held.value = [each for each in held.value if each[0] != micros(timestamp)]


class ConnectedBranches(GraphStep):
    """Two branches that one process function takes, which holds rows back."""

    def build(self, rows: Stream[Row], late: list[Stream[Row]]) -> Stream[Row]:
        odd, even = rows.split(_is_odd)
        connected = odd.key_by(key_of_row).connect(even.key_by(key_of_row))
        return connected.process(Delaying, parallelism=self.parallelism)

    def twin(self, items: list[Item]) -> list[Item]:
        return [(row, time_ns if row[0] % 3 else time_ns // 1_000 * 1_000 + DELAY_MS * MS) for row, time_ns in items]


def _is_odd(row: Row) -> bool:
    return row[0] % 2 == 1


def _pair(stage: int, left: Row | None, right: Row | None) -> Row:
    row = right if left is None else left
    assert row is not None, "a pair has a left or a right row"
    return row[0], ((stage, name_of(left), name_of(right)),)


def _marked_as(stage: int, how: str, row: Row) -> Row:
    return marked(row, stage, how)


def _versioned(stage: int, left: Row, right: Any) -> Row:
    check(right is None or key_of_row(left) == key_of_row(right), lambda: f"{right} is no version of {left}")
    return marked(left, stage, None if right is None else right[2])


def _untimed(row: Any) -> Row:
    return row[0], row[1]


def _looked_up(left: Row, right: Row | None) -> Row:
    check(right is None or key_of_row(left) == key_of_row(right), lambda: f"{right} is no row for {left}")
    return left
