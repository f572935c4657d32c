"""The agent on Clonos, with its calls recorded as they are: ``python -m ... URL FOLDER CONVERSATIONS TURNS OPEN``."""

from __future__ import annotations

import sys
from functools import partial

from benchmarks.agents.shop import ask, note_process, order_of, pay_back, question, receipt_under, result
from clonos import CallNeverHappened, Job, files, service, values


def find(key: str, url: str, order: str) -> int:
    receipt = receipt_under(url, key)
    if receipt is None:
        raise CallNeverHappened(order)
    return receipt


@service(effect=True, reconcile=find)
def refund(url: str, order: str, idempotency_key: str = "") -> int:
    return pay_back(url, order, idempotency_key)


def converse(url: str, folder: str, turns: int, customer: str) -> str:
    note_process(folder)
    messages = []
    for turn in range(turns):
        messages.append(question(customer, turn))
        messages.append(ask(url, messages))
        messages.append(result(messages[-1], refund(url, order_of(messages[-1]))))
        messages.append(ask(url, messages))
    return str(messages[-1]["content"])


def main() -> None:
    url, folder, conversations, turns, capacity = sys.argv[1:]
    job = Job(
        "agents", checkpoint_every="1s", store=f"{folder}/store", failures_per_epoch_max=1_000, keepers=2, spare_slots=3
    )
    customers = job.source(values([f"c{n}" for n in range(int(conversations))], batch=8), name="customers")
    answers = customers.rebalance().map_async(
        partial(converse, url, folder, int(turns)),
        name="converse",
        capacity=int(capacity),
        log_calls=True,
        intercept=True,
        effects=True,
    )
    answers.sink(files.jsonl(f"{folder}/answers"))
    job.run(slots="process")


if __name__ == "__main__":
    main()
