"""Shipped job whose state grows with each record, so that a limit of memory takes effect, and its oracle.

read -> remember (by key: a block of bytes for each record) -> files (transactional)
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Final

from clonos.connectors import files
from clonos.job import Job
from clonos_chaos.scenario.scenario_gate import SOURCES, Gated
from clonos_chaos.scenario.scenario_oracle import Findings, Row, committed_rows

BLOCK_BYTES: Final = 100_000


def growing(
    folder: Path, url: str, *, block_bytes: int = BLOCK_BYTES, records: int = 0, per_second: float = 0.0
) -> Job:
    """Makes the job, which calls no service. The runner admits at most ``records``, ``per_second``."""
    assert records >= 0 <= per_second, (url, records, per_second)

    def remember(key: int, block: bytes | None, record: tuple[int, int]) -> tuple[bytes, Row]:
        source, offset = record
        return bytes(block_bytes), {"source": source, "offset": offset, "key": key, "had": len(block or b"")}

    job = Job("growing", parallelism=1)
    read = job.source(Gated(folder), name="read")
    remembered = read.key_by(lambda record: record[0] + SOURCES * record[1]).stateful_map(remember, name="remember")
    remembered.sink(files.jsonl(str(folder / "output")), name="files")
    return job


def judge_growth(folder: Path) -> Findings:
    """Judges the output in a run's folder: each admitted record once, and none that was remembered before."""
    of_each = int((folder / "gate").read_text("utf-8").split()[0])
    expected = {(source, offset) for source in range(SOURCES) for offset in range(of_each)}
    rows = list(committed_rows(folder / "output"))
    counted = Counter((row["source"], row["offset"]) for row in rows)
    findings = Findings(records=len(expected))
    findings.lost = len(expected - counted.keys())
    findings.duplicated = counted.total() - len(counted)
    findings.contradicted = len(counted.keys() - expected) + sum(row["had"] > 0 for row in rows)
    findings.by_sink["files"] = {"rows": len(rows), "lost": findings.lost, "duplicated": findings.duplicated}
    return findings
