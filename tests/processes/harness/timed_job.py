"""A job in event time with a window, a join and sessions, and a dumb twin that has its outputs from the whole input.

Orders and shipments come out of order: most within the bound of their source, some later, but within the lateness of
the windows, and a few far too late.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from clonos import Session, Tag, Timestamps, Tumbling, Window, WindowResult
from clonos.agg import count, sum_
from clonos.connectors import files
from tests.processes.harness.gated_source import Gate, GatedNumbers

BASE_S: Final = 1_690_000_000
LATENESS_S, WINDOW_S, GAP_S, APART_S = 20, 20, 3.7, 5
OUT_OF_ORDER_S: Final = {"order": 3, "shipment": 10}
"""Bounds of the two sources in seconds."""
STEP: Final = 200
"""Records of each split that are let in between two kills: 100 seconds of event time in all splits of a source."""
OUTPUTS: Final = ("totals", "late_orders", "matches", "late_matches", "sessions")
LATE_ORDERS: Final = Tag[Any]("late_orders")
LATE_MATCHES: Final = Tag[Any]("late_matches")

Row = dict[str, Any]


def disorder_s(number: int) -> int:
    """Seconds by which the timestamp of a record lies behind that of a record in order."""
    if number % 40 == 39:
        return 300
    return 14 + number % 9 if number % 15 == 7 else number * 7_919 % OUT_OF_ORDER_S["order"]


def order(number: int) -> Row:
    """The order that a number stands for."""
    at = BASE_S + number / 2 - disorder_s(number)
    return {"kind": "order", "order": number, "customer": number % 7, "amount": number * 31 % 101, "at": at}


def shipment(number: int) -> Row:
    """The shipment that a number stands for: never late, some of one order, some of none."""
    at = BASE_S + number / 2 - number * 13 % OUT_OF_ORDER_S["shipment"]
    return {"kind": "shipment", "id": number, "order": number + number * 31 % 9 - 4, "at": at, "line": number // 10 % 4}


def time_of_order(number: int) -> float:
    return float(order(number)["at"])


def time_of_shipment(number: int) -> float:
    return float(shipment(number)["at"])


def total(window: WindowResult[int, Any]) -> Row:
    return {"customer": window.key, "until": window.end.timestamp(), **window.value}


def match(left: Row | None, right: Row | None) -> Row:
    return {"order": left and left["order"], "id": right and right["id"]}


def session(line: int, window: Window, found: list[Row]) -> list[Row]:
    ids = sorted(each["id"] for each in found)
    return [{"line": line, "start": window.start.timestamp(), "ids": ids}]


class TimedJob:
    """orders -> windows by customer; orders and shipments -> interval join; shipments -> sessions by line."""

    def __init__(self, job: Any, folder: Path) -> None:
        """Adds the steps to ``job``, a ``Job`` or its graph. Outputs are folders in ``folder``."""
        self.job = job
        self._folder = folder
        self._gates = [Gate(folder / "orders gate"), Gate(folder / "shipments gate")]
        self.reach = 0
        orders, shipments = (
            job.source(
                GatedNumbers(gate), name=f"{kind}s", timestamps=Timestamps(of, out_of_order=OUT_OF_ORDER_S[kind])
            ).map(row)
            for gate, kind, of, row in (
                (self._gates[0], "order", time_of_order, order),
                (self._gates[1], "shipment", time_of_shipment, shipment),
            )
        )
        windows = orders.key_by("customer").window(Tumbling(WINDOW_S), lateness=LATENESS_S, late=LATE_ORDERS)
        totals = windows.aggregate(total=sum_("amount"), orders=count(), name="window")
        apart = (f"-{APART_S}s", f"{APART_S}s")
        matches = orders.join(
            shipments, on="order", between=apart, how="full", select=match, late=LATE_MATCHES, name="join"
        )
        sessions = shipments.key_by("line").window(Session(GAP_S)).apply(session, name="session")
        found = (
            totals.map(total),
            totals.side_output(LATE_ORDERS),
            matches,
            matches.side_output(LATE_MATCHES),
            sessions,
        )
        for name, stream in zip(OUTPUTS, found, strict=True):
            stream.sink(files.jsonl(folder / name), name=name)

    def advance(self) -> None:
        """Lets each split read a step further."""
        self.reach += STEP
        for gate in self._gates:
            gate.open_to(self.reach)

    def end(self) -> None:
        """Ends the input where it is."""
        for gate in self._gates:
            gate.end(self.reach)

    def outputs(self) -> dict[str, list[Row]]:
        """The committed rows of each output."""
        return {name: list(files.read_committed(self._folder / name)) for name in OUTPUTS}


def check(outputs: dict[str, list[Row]], records: int) -> None:
    """Checks the outputs of a job whose sources have read ``records`` each against those of the dumb twin."""
    orders, shipments = list(map(order, range(records))), list(map(shipment, range(records)))
    on_time = _without_late(orders, outputs["late_orders"], OUT_OF_ORDER_S["order"] + LATENESS_S)
    _equal(_last_results(outputs["totals"]), _totals(on_time))
    joined = _without_late([*orders, *shipments], outputs["late_matches"], OUT_OF_ORDER_S["order"])
    _equal(outputs["matches"], _matches(joined))
    _equal(outputs["sessions"], _sessions(shipments))


def _equal(found: Iterable[Row], wanted: Iterable[Row]) -> None:
    assert Counter(map(repr, found)) == Counter(map(repr, wanted))


def _without_late(rows: list[Row], late: list[Row], behind_s: float) -> list[Row]:
    """Checks that late records are records of the input, once each, and further behind than the bound."""
    rest = Counter(map(repr, rows))
    rest.subtract(map(repr, late))
    assert set(rest.values()) <= {0, 1}
    assert late, "the input has records that are far too late"
    assert {row["kind"] for row in late} == {"order"}
    assert min(disorder_s(row["order"]) for row in late) > behind_s
    return [row for row in rows if rest[repr(row)]]


def _last_results(totals: list[Row]) -> list[Row]:
    """The result of each window that has most orders. Some windows have several, each with more orders."""
    last: dict[tuple[int, float], Row] = {}
    counted = Counter((row["customer"], row["until"], row["orders"]) for row in totals)
    assert set(counted.values()) == {1}
    for row in sorted(totals, key=lambda row: int(row["orders"])):
        last[row["customer"], row["until"]] = row
    assert len(last) < len(totals), "the input has records within the lateness"
    return list(last.values())


def _totals(orders: list[Row]) -> list[Row]:
    windows: dict[tuple[int, float], list[int]] = {}
    for row in orders:
        until = row["at"] // WINDOW_S * WINDOW_S + WINDOW_S
        windows.setdefault((row["customer"], until), []).append(row["amount"])
    return [
        {"customer": customer, "until": until, "total": sum(amounts), "orders": len(amounts)}
        for (customer, until), amounts in windows.items()
    ]


def _matches(rows: list[Row]) -> list[Row]:
    orders, shipments = ([row for row in rows if row["kind"] == kind] for kind in ("order", "shipment"))
    by_order: dict[int, list[Row]] = {}
    for row in shipments:
        by_order.setdefault(row["order"], []).append(row)
    pairs = [
        (left, right)
        for left in orders
        for right in by_order.get(left["order"], ())
        if abs(right["at"] - left["at"]) <= APART_S
    ]
    lefts, rights = {left["order"] for left, _ in pairs}, {right["id"] for _, right in pairs}
    found = [match(left, right) for left, right in pairs]
    found += [match(left, None) for left in orders if left["order"] not in lefts]
    return found + [match(None, right) for right in shipments if right["id"] not in rights]


def _sessions(shipments: list[Row]) -> list[Row]:
    found: list[Row] = []
    for line in sorted({row["line"] for row in shipments}):
        last_s = float("-inf")
        for row in sorted((row for row in shipments if row["line"] == line), key=time_of):
            if row["at"] - last_s >= GAP_S:
                found.append({"line": line, "start": row["at"], "ids": []})
            found[-1]["ids"].append(row["id"])
            last_s = row["at"]
    return [{**each, "ids": sorted(each["ids"])} for each in found]


def time_of(row: Row) -> float:
    return float(row["at"])
