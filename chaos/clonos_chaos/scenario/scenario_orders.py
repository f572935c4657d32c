"""Shipped job that places an order for each record, in one of three modes, and its oracle.

    read -> order (POST) -> files (transactional)

``plain``: a recorded call, repeated under its idempotency key. ``intent``: announced and made at most once; a call in
doubt raises in user code. ``reconcile``: announced too; a call in doubt is looked up at the service. The service logs
every order under its key and cannot tell a repeated order from a new one, so that a repeat counts.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from clonos.connectors import files
from clonos.core.log.call_outcomes import CallInDoubt, CallNeverHappened
from clonos.core.model.errors import JobError
from clonos.job import Job
from clonos_chaos.scenario.scenario_gate import SOURCES, Gated
from clonos_chaos.scenario.scenario_oracle import Findings, committed_rows, service_log
from clonos_services import http

MODES: Final = ("plain", "intent", "reconcile")
CALL_TIMEOUT_S: Final = 5.0
NOT_FOUND: Final = 404
IN_DOUBT: Final = -1
"""Answer recorded for a call in doubt."""

Row = dict[str, Any]


class Orders:
    """Functions of the job. ``url``: of the service."""

    def __init__(self, url: str, mode: str) -> None:
        self.url, self.mode = url, mode

    def order(self, record: tuple[int, int]) -> Row:
        """Places the order of a record."""
        source, offset = record
        try:
            reply = self._post({"step": "order", "source": source, "offset": offset})
        except CallInDoubt:
            return {"source": source, "offset": offset, "answer": IN_DOUBT}
        return {"source": source, "offset": offset, "answer": int(reply.json()["answer"])}

    def _post(self, order: dict[str, Any]) -> http.Response:
        if self.mode == "plain":
            return http.post(self.url, params=order, timeout=CALL_TIMEOUT_S, retries=0, intent=False)
        reconcile = self.find if self.mode == "reconcile" else None
        return http.post(self.url, params=order, timeout=CALL_TIMEOUT_S, retries=0, reconcile=reconcile)

    def find(self, key: str, _request: http.HttpRequest) -> http.Response:
        """Looks up an order by its key. Raises CallNeverHappened: there is none."""
        reply = http.get(self.url, params={"by_key": key}, timeout=CALL_TIMEOUT_S)
        if reply.status_code == NOT_FOUND:
            raise CallNeverHappened
        return reply.raise_for_status()


def ordered(folder: Path, url: str, *, mode: str, records: int = 0, per_second: float = 0.0) -> Job:
    """Makes the job. The runner admits at most ``records``, ``per_second``. Raises JobError: the mode is unknown."""
    if mode not in MODES:
        raise JobError(f"the job 'ordered' has the mode {mode!r}, expected one of {', '.join(MODES)}.")
    assert records >= 0 <= per_second, (records, per_second)
    job, orders = Job("ordered", parallelism=1), Orders(url, mode)
    read = job.source(Gated(folder), name="read").rebalance()
    placed = read.map(orders.order, name="order", effects=mode != "plain")
    placed.rebalance().map(_as_it_is, name="pass_on").sink(files.jsonl(str(folder / "output")), name="files")
    return job


def _as_it_is(row: Row) -> Row:
    return row


def judge_orders(folder: Path) -> Findings:
    """Judges the output in a run's folder; the gate file has the number of admitted records."""
    of_each = int((folder / "gate").read_text("utf-8").split()[0])
    expected = {(source, offset) for source in range(SOURCES) for offset in range(of_each)}
    return judge(expected, list(committed_rows(folder / "output")), service_log(folder / "calls.jsonl"))


def judge(expected: set[tuple[int, int]], rows: list[Row], log: Iterable[Row]) -> Findings:
    """Checks that each order is once in the output, with the service's answer; counts repeated orders."""
    findings = Findings(records=len(expected))
    answers: dict[tuple[int, int], list[int]] = defaultdict(list)
    keys: dict[tuple[int, int], set[str]] = defaultdict(set)
    for line in log:
        place = (line["source"], line["offset"])
        answers[place].append(line["answer"])
        keys[place].add(line["key"])
    findings.calls = sum(map(len, answers.values()))
    findings.calls_repeated = findings.calls - len(answers)
    findings.keys_changed = sum(len(found) > 1 for found in keys.values())
    counted = Counter((row["source"], row["offset"]) for row in rows)
    findings.lost = len(expected - counted.keys())
    findings.duplicated = sum(counted.values()) - len(counted)
    findings.contradicted = len(counted.keys() - expected)
    findings.by_sink["files"] = {"rows": len(rows), "lost": findings.lost, "duplicated": findings.duplicated}
    last: dict[int, int] = {}
    for row in rows:
        place, given = (row["source"], row["offset"]), answers[row["source"], row["offset"]]
        findings.disordered += row["offset"] < last.get(row["source"], -1)
        last[row["source"]] = row["offset"]
        if row["answer"] == IN_DOUBT:
            findings.calls_in_doubt += 1
        elif row["answer"] not in given:
            findings.contradicted += 1
            findings.note("contradicted", f"{place} has the answer {row['answer']}, which was never given to it")
        elif given[-1] != row["answer"]:
            findings.calls_needless += 1
            findings.note("calls_needless", f"{place} was ordered {len(given)} times, and an earlier answer has left")
    return findings
