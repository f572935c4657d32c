"""``clonos demo --agents``: agents that refund orders while their tasks are killed, and the verdict.

The model answers each time otherwise, so a question that is asked again gives another refund. The verdict compares what
the server has logged with the output, and shares no code with the runtime.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from clonos.connectors import files, values
from clonos.core.log.call_outcomes import CallNeverHappened
from clonos.core.model.errors import JobError
from clonos.demo.demo_server import DemoServerProcess
from clonos.demo.demo_verdict import committed_rows
from clonos.demo.kills import KillKind, Kills, step_of
from clonos.demo.show import PAGE_SECONDS, DemoOptions, demo_folder, job_options, page_of, watch
from clonos.demo.stoppable import Stoppable
from clonos.job import Job
from clonos.job.live_table import LiveTable
from clonos.status import TaskState
from clonos_services import ai, http

AGENTS: Final = "agents"
KILLS: Final = 5
CUSTOMERS: Final = 40
CAPACITY: Final = 16
ORDERS_MAX: Final = 1_000_000
CREDIT_WINDOW: Final = "1KiB"
"""Bytes of orders that wait in front of an agent: a barrier comes after them."""

NOT_FOUND: Final = 404
SERVER: Final = "clonos.demo.agents_server"


@dataclass(frozen=True, slots=True)
class AgentsVerdict:
    """Counts over all orders. ``questions_repeated``: requests of the model beyond one for each question."""

    orders: int
    questions: int
    questions_repeated: int
    refunds: int
    refunded_twice: int
    lost: int
    duplicated: int
    contradicted: int

    @property
    def is_clean(self) -> bool:
        """Returns whether no refund was made twice, and no reply is lost, twice there, or other than its refund."""
        return self.refunded_twice == self.lost == self.duplicated == self.contradicted == 0


def judge_agents(entries: Iterable[dict[str, Any]], rows: Iterable[dict[str, Any]]) -> AgentsVerdict:
    """Compares the entries of the server's log with the rows of the output."""
    questions, refunds = Counter[str](), list[dict[str, Any]]()
    for entry in entries:
        if entry["kind"] == "refund":
            refunds.append(entry)
        else:
            questions[entry["key"]] += 1
    made = Counter(entry["order"] for entry in refunds)
    texts = {f"{entry['cents']} cents for order {entry['order']}" for entry in refunds}
    replied = list(rows)
    shown = Counter(row["order"] for row in replied)
    return AgentsVerdict(
        orders=len(shown),
        questions=len(questions),
        questions_repeated=questions.total() - len(questions),
        refunds=len(refunds),
        refunded_twice=len(refunds) - len(made),
        lost=len(made.keys() - shown.keys()),
        duplicated=len(replied) - len(shown),
        contradicted=sum(row["reply"] not in texts for row in replied),
    )


def agents_job(url: str, output: Path, stop: Path, **options: Any) -> Job:
    """Creates the job, which takes orders until the file ``stop`` exists."""

    def find_refund(key: str, order: int, cents: int) -> str:
        found = http.get(f"{url}/refunds/{key}")
        if found.status_code == NOT_FOUND:
            raise CallNeverHappened
        return refunded(**found.raise_for_status().json())

    @ai.tool(effect=True, reconcile=find_refund)
    def refund(order: int, cents: int, idempotency_key: str) -> str:
        """Refund an order."""
        sent = http.post(
            f"{url}/refunds", json={"order": order, "cents": cents}, headers={"Idempotency-Key": idempotency_key}
        )
        return refunded(**sent.raise_for_status().json())

    helper = ai.agent(
        ai.chat("demo", base_url=f"{url}/v1"),
        tools=[refund],
        instructions="Refund each order.",
        history_max=3,
        text=str,
        select=lambda order, reply: {"order": order, "reply": reply.text},
    )
    job = Job("demo-agents", **options)
    orders = job.source(Stoppable(values(range(ORDERS_MAX)), stop), name="orders", parallelism=1)
    replies = orders.key_by(lambda order: order % CUSTOMERS).stateful_map_async(
        helper, name=AGENTS, capacity=CAPACITY, log_calls=True, effects=True, parallelism=2
    )
    replies.sink(files.jsonl(str(output)), name="replies")
    return job


def refunded(order: int, cents: int) -> str:
    """Returns what the tool says of a refund."""
    return f"{cents} cents for order {order}"


def run_agents_demo(options: DemoOptions, console: Console) -> bool:
    """Runs the demo; returns whether no refund was made twice, and no reply was lost, duplicated or contradicted.

    Raises: JobError: an option is of the other demo.
    """
    if options.pattern is not None or options.lines is not None or options.kills:
        raise JobError("--agents has no --input, --lines and --kills: it kills tasks of agents.")
    seconds = options.seconds if options.seconds is not None else PAGE_SECONDS if options.has_page else 0.0
    with demo_folder(options.keep) as folder, ExitStack() as stack:
        serve = stack.enter_context(page_of(options)) if options.has_page else None
        log, output, stop = folder / "requests.jsonl", folder / "output" / "replies", folder / "stop"
        with closing(DemoServerProcess(log, SERVER, "")) as server:
            console.print(f"{CUSTOMERS} customers ask agents for refunds; the model is at {server.url}/v1")
            given = {**job_options(options, folder), "credit_window": CREDIT_WINDOW}
            job = agents_job(server.url, output, stop, **given)
            kills = Kills([KillKind.MAP] * (0 if options.has_page else KILLS), agents_of)
            with LiveTable(console) as display, closing(job.start()) as handle:
                if serve is not None:
                    display.show_event(f"the page, where you can kill tasks: {serve(handle)}")
                events = watch(handle, display, kills, seconds, stop)
        entries = [json.loads(line) for line in log.read_text("utf-8").splitlines()]
        verdict = judge_agents(entries, (row.record for row in committed_rows(output)))
    show_agents_verdict(console, verdict, len({kill.at_ns for kill in events.kills}))
    if options.json_file is not None:
        options.json_file.write_text(json.dumps(asdict(verdict)), "utf-8")
    return verdict.is_clean


def agents_of(_kind: KillKind, tasks: Sequence[TaskState]) -> list[TaskState]:
    """Chooses the task of the agents that has lived longest."""
    return sorted((task for task in tasks if step_of(task.name) == AGENTS), key=lambda task: task.incarnation)[:1]


def show_agents_verdict(console: Console, verdict: AgentsVerdict, kills: int) -> None:
    """Prints the verdict."""
    table = Table(title="Verdict", title_justify="left", show_header=False)
    for name, count in (("kills", kills), *asdict(verdict).items()):
        table.add_row(name.replace("_", " "), f"{count:,}")
    console.print(table)
    console.print("correct: no refund was made twice" if verdict.is_clean else "WRONG")
