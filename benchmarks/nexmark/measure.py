"""Benchmark: Nexmark's queries, in events per second of processor time of all processes, beside other systems.

No figure is printed of a run whose result differs from DuckDB's over the same events. Flink's results are compared
once for each query, over fewer events; its measured runs write to nowhere.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks.harness.ab_session import Session
from benchmarks.harness.isolated_run import ROOT
from benchmarks.harness.result_counter import WrongResult
from benchmarks.nexmark import bare, clonos_side, curves, generator
from benchmarks.nexmark.generator import Events, prepared
from benchmarks.nexmark.jobs import columns
from benchmarks.nexmark.jvm_peer import JvmPeer
from benchmarks.nexmark.one_run import Cost
from benchmarks.nexmark.oracle import Oracle
from benchmarks.nexmark.queries import LEFT_OUT, QUERIES, Query
from benchmarks.peers.running import PeerFailed, PeerMissing

BUILD: Final = ROOT / "build"
EVENTS_ROWS: Final = 1_000_000
EVENTS_QUICK: Final = 200_000
EVENTS_OF_FLINK: Final = Events(10_000, per_s=500)
"""Events over which Flink's results are compared: twenty seconds, and few rows, each of which Python gets from the JVM.
"""

EVENTS_EMPTY: Final = 200
"""Events of a job whose cost is the fixed one of a job."""

EVENTS_OF_SPARK: Final = Events(50_000, per_s=500)
"""Events over which Spark's results are compared: in a hundred seconds, since it does not emit the last windows."""

WARM_RUNS: Final = 5
EVENTS_WARM: Final = generator.EVENTS
"""Most events of a run that warms a peer up or tries a setting; longer runs are measured only."""

FIXED_RUNS: Final = 3

MINI_BATCH: Final = {
    "table.exec.mini-batch.enabled": "true",
    "table.exec.mini-batch.allow-latency": "500 ms",
    "table.exec.mini-batch.size": "20000",
    "table.optimizer.distinct-agg.split.enabled": "true",
}
HAS_MINI_BATCH: Final = frozenset({"q4", "q9", "q16", "q17", "q18", "q19", "q20", "q3"})
"""Queries with operators that Flink can run on mini-batches; windows have no other way."""

_ROW_NUMBER: Final = "its streams have no ROW_NUMBER"
SPARK_CANNOT: Final = {
    "q4": "its streams have no average of a highest price that changes",
    "q9": _ROW_NUMBER,
    "q12": "its clock stands still in a micro-batch, so its windows are other ones",
    "q16": "its streams do not count distinct values",
    "q19": _ROW_NUMBER,
}
SPARK_DIFFERS: Final = {
    "q5": "Spark: one of equal counts; its last windows are not emitted",
    "q7": "Spark: one of equal bids; its last windows are not emitted",
    "q8": "Spark: its last windows are not emitted",
    "q11": "Spark: its last sessions are not emitted",
    "q17": "Spark: one change a key and micro-batch",
    "q18": "Spark: one change a key and micro-batch",
}

LONG: Final = 1.5
"""Least cost of a run, in fixed costs of a job, for a figure without the fixed cost: shorter runs differ by chance."""

GOALS: Final = {
    **dict.fromkeys(("q0", "q1", "q2"), ">= 1.5"),
    "q3": ">= 2",
    "q4": ">= 8",
    **dict.fromkeys(("q5", "q12"), ">= 10"),
    **dict.fromkeys(("q7", "q8"), ">= 5"),
    "q11": ">= 6",
    **dict.fromkeys(("q17", "q18"), ">= 3.5"),
    **dict.fromkeys(("q19", "q20"), ">= 3"),
}
GOAL_ROWS: Final = ">= 0.5"


@dataclass
class Measuring:
    """One call: the events, and the peers that run."""

    session: Session
    shape: str
    events: Path
    count: int
    oracle: Oracle
    stack: ExitStack
    empty: Path
    warm: Path
    """Events of the runs that warm a peer up."""

    run: Callable[..., Cost] = clonos_side.run
    peers: dict[str, JvmPeer] = field(default_factory=dict)

    def label(self, query: Query) -> str:
        """Returns the name of a query in this shape: that in columns is the plain one."""
        return query.name if self.shape == "columns" else f"{query.name} {self.shape}"

    def rates(self, costs: list[Cost], fixed_s: float = 0.0) -> list[float]:
        """Returns events per second of processor time, without a fixed cost if given."""
        return [self.count / max(cost.cpu_s - fixed_s, 1e-3) for cost in costs]

    def warm_rate(self, cost: Cost) -> float:
        """Returns events per second of processor time of a run that warms up."""
        return min(self.count, EVENTS_WARM) / cost.cpu_s


def run(session: Session) -> None:
    """Measures the chosen queries against each selected side."""
    shape = "rows" if session.rows else "columns"
    count = session.events or (EVENTS_QUICK if session.is_quick else EVENTS_ROWS if session.rows else generator.EVENTS)
    events = prepared(Events(count), BUILD)
    session.progress(f"{count:,} events are in {events}")
    for name, reason in LEFT_OUT.items():
        if name in session.queries or len(session.queries) == len(QUERIES):
            session.leave_out(name, reason)
    with ExitStack() as stack:
        empty = prepared(Events(EVENTS_EMPTY), BUILD)
        warm = prepared(Events(min(count, EVENTS_WARM)), BUILD)
        measuring = Measuring(session, shape, events, count, Oracle(events), stack, empty, warm)
        for query in QUERIES.values():
            if query.name in session.queries:
                measure_query(measuring, query)
    if session.experiments:
        curves.run(session)


def measure_query(measuring: Measuring, query: Query) -> None:
    """Measures a query against each selected side."""
    session, name = measuring.session, measuring.label(query)
    rows_after = columns.ROWS_BEHIND.get(query.name, "") if measuring.shape == "columns" else ""
    session.note(name, "; ".join(filter(None, (query.differs, rows_after))))
    session.figure(f"{name}, load average before", os.getloadavg()[0], "")
    job = partial(measuring.run, query, measuring.shape, measuring.events, measuring.oracle)
    try:
        fixed_s = min(_empty_job(measuring, query).cpu_s for _ in range(FIXED_RUNS))
        session.figure(f"{name}, fixed cost of a job", fixed_s, "s")
        if session.experiments:
            _logging(measuring, name, job)
            return
        if "bare" in session.against:
            _against_bare(measuring, query, job, fixed_s)
        peers = [side for side in ("flink", "spark") if any(one.startswith(side) for one in session.against)]
        for side in peers:
            _against_peer(measuring, query, job, fixed_s, side)
        if not peers and "bare" not in session.against:
            _record(measuring, name, "", [job() for _ in range(session.pairs)], fixed_s)
    except (clonos_side.RunFailed, WrongResult) as error:  # reported at the end; the other queries are still measured
        session.fail(name, error)
    session.figure(f"{name}, load average after", os.getloadavg()[0], "")


def _empty_job(measuring: Measuring, query: Query) -> Cost:
    return measuring.run(query, measuring.shape, measuring.empty, Oracle(measuring.empty))


def _record(measuring: Measuring, name: str, side: str, costs: list[Cost], fixed_s: float) -> None:
    of = f"{name}, {side}" if side else name
    measuring.session.figure(of, statistics.median(measuring.rates(costs)), "events/cpu-s")
    if _is_long(costs, fixed_s):
        measuring.session.figure(f"{of} net", statistics.median(measuring.rates(costs, fixed_s)), "events/cpu-s")
    wall = statistics.median(measuring.count / cost.seconds for cost in costs)
    measuring.session.figure(f"{of} by the clock", wall, "events/s")


def _is_long(costs: list[Cost], fixed_s: float) -> bool:
    """Returns whether runs cost at least ``LONG`` times the fixed cost."""
    return min(cost.cpu_s for cost in costs) >= LONG * fixed_s


def _compare(
    measuring: Measuring,
    name: str,
    ours: list[Cost],
    others: list[Cost],
    fixed_s: float,
    fixed_of_other_s: float,
    goal: str = "",
) -> None:
    session = measuring.session
    session.compared(name, measuring.rates(ours), measuring.rates(others), goal)
    if _is_long(ours, fixed_s) and _is_long(others, fixed_of_other_s):
        net = measuring.rates(ours, fixed_s), measuring.rates(others, fixed_of_other_s)
        session.compared(f"{name} net", *net, goal)
    else:
        session.leave_out(f"{name} net", f"a run costs less than {LONG:g} times the fixed cost: use more events")


def _in_turn(
    measuring: Measuring, name: str, one: Callable[[], Cost], other: Callable[[], Cost]
) -> tuple[list[Cost], list[Cost]]:
    found: tuple[list[Cost], list[Cost]] = ([], [])
    for pair in range(measuring.session.pairs):
        for side, costs in zip((one, other), found, strict=True):
            costs.append(side())
        rates = " and ".join(f"{measuring.rates(costs)[-1] / 1e6:.2f}" for costs in found)
        load = os.getloadavg()[0]
        measuring.session.progress(f"{name}: pair {pair + 1}: {rates} M events/cpu-s at load {load:.1f}")
    return found


def _against_bare(measuring: Measuring, query: Query, job: Callable[[], Cost], fixed_s: float) -> None:
    session, name = measuring.session, f"{measuring.label(query)}/bare"
    if query.name not in bare.LOOPS:
        session.leave_out(name, "there is no loop by hand for it")
        return

    def loop() -> Cost:
        results, cost = bare.run(query.name, measuring.events)
        measuring.oracle.check(query, results)
        return cost

    ours, others = _in_turn(measuring, name, job, loop)
    _compare(measuring, name, ours, others, fixed_s, 0.0)
    _record(measuring, measuring.label(query), "", ours, fixed_s)
    _record(measuring, measuring.label(query), "bare", others, 0.0)


def _against_peer(measuring: Measuring, query: Query, job: Callable[[], Cost], fixed_s: float, side: str) -> None:
    """Compares a query with Flink or Spark, whose compiler is warm."""
    session, name = measuring.session, f"{measuring.label(query)}/{side}"
    if side == "spark" and query.name in SPARK_CANNOT:
        session.leave_out(name, SPARK_CANNOT[query.name])
        return
    try:
        if side not in measuring.peers:
            measuring.peers[side] = JvmPeer(side)
            measuring.stack.callback(measuring.peers[side].close)
        peer = measuring.peers[side]
        if side == "flink":
            run_peer = partial(peer.run, query, settings=_warmed(measuring, peer, query))
        else:
            few = prepared(EVENTS_OF_SPARK, BUILD)
            Oracle(few).check_spark(query, peer.rows(query, few))
            session.note(name, SPARK_DIFFERS.get(query.name, ""))
            run_peer = partial(peer.run, query)
            _warm_up(measuring, peer, query, side)
        fixed_of_peer_s = min(run_peer(measuring.empty).cpu_s for _ in range(FIXED_RUNS))
        session.figure(f"{name}, fixed cost of the peer's", fixed_of_peer_s, "s")
        ours, others = _in_turn(measuring, name, job, partial(run_peer, measuring.events))
    except PeerMissing as missing:
        session.leave_out(name, str(missing))
        return
    except PeerFailed as error:
        session.fail(name, error)
        return
    goal = "" if side == "spark" else GOALS.get(query.name, "") if measuring.shape == "columns" else GOAL_ROWS
    _compare(measuring, name, ours, others, fixed_s, fixed_of_peer_s, goal)
    _record(measuring, measuring.label(query), "", ours, fixed_s)
    _record(measuring, measuring.label(query), side, others, fixed_of_peer_s)


def _warm_up(measuring: Measuring, peer: JvmPeer, query: Query, side: str) -> list[Cost]:
    runs = [peer.run(query, measuring.warm) for _ in range(WARM_RUNS)]
    rates = ", ".join(f"{measuring.warm_rate(run) / 1e6:.2f}" for run in runs)
    measuring.session.progress(f"{query.name}: warm-up runs of {side}: {rates} M events/cpu-s")
    return runs


def _warmed(measuring: Measuring, flink: JvmPeer, query: Query) -> dict[str, str]:
    """Compares Flink's result, warms it up, and tries mini-batches; returns the better settings."""
    few = prepared(EVENTS_OF_FLINK, BUILD)
    Oracle(few).check_flink(query, flink.rows(query, few))
    runs = _warm_up(measuring, flink, query, "flink")
    if query.name not in HAS_MINI_BATCH:
        return {}
    tried = [flink.run(query, measuring.warm, MINI_BATCH) for _ in range(2)][-1]
    is_better = tried.cpu_s < runs[-1].cpu_s
    rate = measuring.warm_rate(tried)
    measuring.session.figure(f"{query.name}, flink with mini-batches", rate, "events/cpu-s")
    measuring.session.note(
        f"{query.name}, flink", f"runs with{'' if is_better else 'out'} mini-batches, which is better"
    )
    return dict(MINI_BATCH) if is_better else {}


def _logging(measuring: Measuring, name: str, job: Callable[..., Cost]) -> None:
    """Compares a query with causal logging and without."""
    label = f"{name}, logged/not"
    logged, unlogged = _in_turn(measuring, label, job, partial(job, causal_logging=False))
    measuring.session.compared(label, measuring.rates(logged), measuring.rates(unlogged))
