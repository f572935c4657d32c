"""The agent on LangGraph with a checkpointer of SQLite: ``python -m ... URL FOLDER CONVERSATIONS TURNS OPEN``."""

from __future__ import annotations

import operator
import sqlite3
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Any, TypedDict

from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph

from benchmarks.agents.shop import ask, note_process, order_of, pay_back, question, result

url, folder, conversations, turns, capacity = sys.argv[1:]


class Talk(TypedDict):
    customer: str
    turn: int
    messages: Annotated[list[dict[str, Any]], operator.add]


def plan(talk: Talk) -> dict[str, Any]:
    asking = question(talk["customer"], talk["turn"])
    return {"messages": [asking, ask(url, [*talk["messages"], asking])]}


def refund(talk: Talk) -> dict[str, Any]:
    call = talk["messages"][-1]
    return {"messages": [result(call, pay_back(url, order_of(call), f"{talk['customer']}-{talk['turn']}"))]}


def answer(talk: Talk) -> dict[str, Any]:
    return {"messages": [ask(url, talk["messages"])], "turn": talk["turn"] + 1}


def main() -> None:
    graph = StateGraph(Talk)
    graph.add_node("plan", plan)
    graph.add_node("refund", refund)
    graph.add_node("answer", answer)
    graph.add_edge(START, "plan")
    graph.add_edge("plan", "refund")
    graph.add_edge("refund", "answer")
    graph.add_conditional_edges("answer", lambda talk: END if talk["turn"] >= int(turns) else "plan")
    saver = SqliteSaver(sqlite3.connect(f"{folder}/langgraph.sqlite", check_same_thread=False))
    agent = graph.compile(checkpointer=saver)

    def converse(customer: str) -> str:
        note_process(folder)
        config: Any = {"configurable": {"thread_id": customer}, "recursion_limit": 1_000}
        known = agent.get_state(config)
        begun = {"customer": customer, "turn": 0, "messages": []}
        if known.values.get("turn") != int(turns):
            agent.invoke(None if known.next else begun, config, durability="sync")
        return str(agent.get_state(config).values["messages"][-1]["content"])

    with ThreadPoolExecutor(int(capacity)) as pool:
        list(pool.map(converse, [f"c{n}" for n in range(int(conversations))]))


if __name__ == "__main__":
    main()
