"""The agent without an engine: ``python -m ... URL FOLDER CONVERSATIONS TURNS OPEN``. A kill loses all."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from benchmarks.agents.shop import ask, note_process, order_of, pay_back, question, result


def converse(url: str, folder: str, turns: int, customer: str) -> str:
    note_process(folder)
    messages = []
    for turn in range(turns):
        messages.append(question(customer, turn))
        messages.append(ask(url, messages))
        messages.append(result(messages[-1], pay_back(url, order_of(messages[-1]), f"{customer}-{turn}")))
        messages.append(ask(url, messages))
    return str(messages[-1]["content"])


def main() -> None:
    url, folder, conversations, turns, capacity = sys.argv[1:]
    with ThreadPoolExecutor(int(capacity)) as pool:
        list(pool.map(partial(converse, url, folder, int(turns)), [f"c{n}" for n in range(int(conversations))]))


if __name__ == "__main__":
    main()
