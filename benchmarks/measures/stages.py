"""The time budget of the word count and of bids: what each stage of a slot's process uses, in ns a word or record."""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path
from typing import Any, Final

import msgspec

from benchmarks.baselines import bare
from benchmarks.harness.ab_session import Session
from benchmarks.harness.result_counter import Measured
from benchmarks.harness.stage_clock import STAGES, Times
from benchmarks.workloads import keyed_job, word_job, words
from benchmarks.workloads.keyed import KeyedWorkload

REPEATS: Final = 12
BIDS: Final = 4_000_000
SHOWN_FROM_NS: Final = 0.5


def run(session: Session) -> None:
    """Measures both shapes, each compared with the processes of the bare side."""
    for shape in ("rows", "columns"):
        with tempfile.TemporaryDirectory(prefix="clonos-bench-") as name:
            words.prepare(Path(name))
            workload = words.Workload(name, REPEATS // 4 if session.is_quick else REPEATS, is_staged=True)
            session.progress(f"{shape}: {workload.words} words with a clock at each stage")
            _record_figures(session, shape, workload, word_job.run(workload, shape))
            limit = bare.run(workload, shape, word_job.targets(words.vocabulary(), workload.readers))
            session.figure(f"{shape}, source, bare process", limit.read_cpu_s * 1e9 / workload.words, "ns a word")
            session.figure(f"{shape}, count, bare process", limit.count_cpu_s * 1e9 / workload.words, "ns a word")
    with tempfile.TemporaryDirectory(prefix="clonos-bench-") as name:
        records = BIDS // 4 if session.is_quick else BIDS
        bids = KeyedWorkload(name, "bids", records, is_staged=True)
        session.progress(f"bids: {records} records with a clock at each stage")
        _record_figures(session, "bids", bids, keyed_job.run(bids))


def _record_figures(session: Session, shape: str, workload: Any, measured: Measured) -> None:
    session.figure(f"{shape}: all processes", measured.cpu_s * 1e9 / workload.words, "ns a word")
    of_role: dict[str, list[Times]] = {"source": [], "count": []}
    for path in Path(workload.folder).glob("stages-*"):
        times = msgspec.msgpack.decode(path.read_bytes(), type=Times)
        is_source = any(stage.startswith("source") for stage in times.stages)
        of_role["source" if is_source else "count"].append(times)
    for role, found in of_role.items():
        threads: Counter[str] = Counter()
        stages: Counter[str] = Counter()
        calls: Counter[str] = Counter()
        for times in found:
            for thread, used_ns in times.threads.items():
                threads[_thread_name(thread)] += used_ns
            for stage, (used_ns, count) in times.stages.items():
                stages[stage] += used_ns
                calls[stage] += count
        session.figure(f"{shape}, {role}, process", threads.total() / workload.words, "ns a word")
        for thread, used_ns in threads.most_common():
            if used_ns / workload.words >= SHOWN_FROM_NS:
                session.figure(f"{shape}, {role}, thread {thread}", used_ns / workload.words, "ns a word")
        for stage in (*STAGES, *(stage for stage in stages if stage not in STAGES)):
            if stages[stage] / workload.words >= SHOWN_FROM_NS:
                each = f"ns a word, {workload.words // calls[stage]} words a call"
                session.figure(f"{shape}, {role}, {stage}", stages[stage] / workload.words, each)


def _thread_name(name: str) -> str:
    """Removes what differs between tasks from the name of a thread."""
    if name.startswith("ZMQ"):
        return "of ZeroMQ"
    return {"python": "of the slot", "task": "of the task"}.get(name.split(" ")[0], name)
