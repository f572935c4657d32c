"""Nexmark's queries in Flink's SQL: ``python -m ... FOLDER``; each line of the input is a request, each answer a line.

A request has the query, the folder of events, further settings, and a file for the final rows if they are wanted.
Without that the results go nowhere. The cost is the processor time of this process and of the JVM.
"""

from __future__ import annotations

import json
import pickle
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from pyflink.common import RowKind
from pyflink.java_gateway import get_gateway
from pyflink.table import EnvironmentSettings, TableDescriptor, TableEnvironment

from benchmarks.nexmark.queries import QUERIES, SQL
from benchmarks.peers.peer_io import used_s

SETTINGS = {
    "parallelism.default": "2",
    "taskmanager.numberOfTaskSlots": "2",
    "pipeline.object-reuse": "true",
    "execution.checkpointing.interval": "1s",
    "state.backend.type": "hashmap",
    "restart-strategy.type": "none",
    "table.local-time-zone": "UTC",
}


def main() -> None:
    folder = Path(sys.argv[1])
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = answered(request, folder)
        except Exception as error:  # noqa: BLE001  # reported to the asking process
            answer = {"failed": (str(error).splitlines() or [repr(error)])[0][:500] + cause(error)}
        print(json.dumps(answer), flush=True)


def cause(error: Exception) -> str:
    """Returns the last named cause of a Java exception."""
    causes = [line for line in str(error).splitlines() if line.startswith("Caused by:")]
    return f" ({causes[-1][:500]})" if causes else ""


def answered(request: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Runs a request; returns its cost."""
    jvm = int(get_gateway().jvm.java.lang.ProcessHandle.current().pid())
    before_s, begun_s = used_s(jvm), time.monotonic()
    environment = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    settings = {**SETTINGS, "execution.checkpointing.dir": (folder / "checkpoints").as_uri(), **request["settings"]}
    for name, value in settings.items():
        environment.get_config().set(name, value)
    for command in (SQL / "flink/tables.sql").read_text("utf-8").format(path=request["events"]).split(";"):
        if "CREATE" in command:
            environment.execute_sql(command)
    table = environment.sql_query(QUERIES[request["query"]].flink_sql)
    if "rows" in request:
        Path(request["rows"]).write_bytes(pickle.dumps(final_rows(table.execute())))
    else:
        table.execute_insert(TableDescriptor.for_connector("blackhole").build()).wait()
    return {"cpu_s": used_s(jvm) - before_s, "seconds": time.monotonic() - begun_s}


def final_rows(results: Any) -> list[tuple[Any, ...]]:
    """Applies all changes; returns the rows that are left."""
    left: Counter[tuple[Any, ...]] = Counter()
    with results.collect() as rows:
        for row in rows:
            kind = row.get_row_kind()
            left[tuple(row)] += 1 if kind in (RowKind.INSERT, RowKind.UPDATE_AFTER) else -1
    assert all(count >= 0 for count in left.values()), "a row is retracted that was not there"
    return list(left.elements())


if __name__ == "__main__":
    main()
