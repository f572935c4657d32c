"""The agent on DBOS with a database of SQLite: ``python -m ... URL FOLDER CONVERSATIONS TURNS OPEN``."""

from __future__ import annotations

import sys
from typing import Any

from dbos import DBOS, SetWorkflowID

from benchmarks.agents.shop import ask, note_process, order_of, pay_back, question, result

url, folder, conversations, turns, capacity = sys.argv[1:]
DBOS(config={"name": "agents", "system_database_url": f"sqlite:///{folder}/dbos.sqlite", "log_level": "ERROR"})


@DBOS.step()
def asked(messages: list[dict[str, Any]]) -> dict[str, Any]:
    return ask(url, messages)


@DBOS.step()
def refunded(order: str, key: str) -> int:
    return pay_back(url, order, key)


@DBOS.workflow()
def converse(customer: str) -> str:
    note_process(folder)
    messages = []
    for turn in range(int(turns)):
        messages.append(question(customer, turn))
        messages.append(asked(messages))
        messages.append(result(messages[-1], refunded(order_of(messages[-1]), f"{customer}-{turn}")))
        messages.append(asked(messages))
    return str(messages[-1]["content"])


def main() -> None:
    DBOS.launch()
    DBOS.register_queue("talks", worker_concurrency=int(capacity), polling_interval_sec=0.1)
    handles = []
    for number in range(int(conversations)):
        with SetWorkflowID(f"c{number}"):
            handles.append(DBOS.enqueue_workflow("talks", converse, f"c{number}"))
    for handle in handles:
        handle.get_result()
    DBOS.destroy()


if __name__ == "__main__":
    main()
