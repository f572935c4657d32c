"""The examples of agents, approvals and cancelled calls in the documents, in worlds whose processes die."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from clonos import Event, Job, ai, collect, values
from clonos.testing import Outputs, crash_test
from tests.tidy.source import ROOT

pytestmark = pytest.mark.worlds


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with the named examples, from which modules are imported."""
    for document in ("docs/ai.md", "docs/services.md"):
        text = (ROOT / document).read_text("utf-8")
        for name, block in re.findall(r"^```python (\w+\.py)\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
            (tmp_path / name).write_text(block, "utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "agents", raising=False)  # a library has this name too
    yield tmp_path
    sys.modules.pop("agents", None)


def _example(folder: Path, name: str) -> dict[str, Any]:
    """Runs an example, and returns its names."""
    found: dict[str, Any] = {"__name__": name}
    exec(compile((folder / f"{name}.py").read_text("utf-8"), f"{name}.py", "exec"), found)  # noqa: S102  a document
    return found


def test_the_documented_test_of_an_agent_passes(folder: Path) -> None:
    _example(folder, "test_agents")["test_the_agent_refunds_a_broken_cup"]()


def test_a_documented_cancellation_ends_a_call_that_waits(folder: Path) -> None:
    def check(outputs: Outputs) -> None:
        assert outputs.rows == [{"customer": "17", "order": "a", "answer": "withdrawn: changed my mind"}]

    crash_test(_example(folder, "withdrawals")["job"], seeds=range(10), check=check)


def test_a_documented_notification_names_the_event_that_answers(folder: Path) -> None:
    def answer(request: Any) -> Any:
        if request.url.endswith("/questions"):
            assert b"close_account {'reason': 'moved'} for customer 17?" in request.body
            assert b'"close_account"' in request.body
            return {}
        tool = {"name": "close_account", "arguments": '{"reason": "moved"}'}
        calls = [{"id": "1", "type": "function", "function": tool}]
        is_done = b'"closed"' in request.body
        message = {
            "role": "assistant",
            "content": "Bye." if is_done else None,
            "tool_calls": None if is_done else calls,
        }
        return {"choices": [{"message": message}]}

    def check(outputs: Outputs) -> None:
        assert outputs.rows == ["Bye."]

    model = ai.chat("m", base_url="http://localhost:1/v1")
    tool = _example(folder, "asking")["close_account"]
    agent = ai.agent(model, tools=[tool], select=lambda _, reply: reply.text)
    job = Job("accounts")
    texts = job.source(values(["I move.", Event("close_account", True)]), parallelism=1).key_by(lambda _: "17")
    texts.stateful_map_async(agent, name="replies", log_calls=True, effects=True).sink(collect())
    crash_test(job, seeds=[1, 2], check=check, services={"close_account": Closing()}, http=answer)


class Closing:
    """Closes accounts, also those in doubt."""

    def __call__(self, reason: str, idempotency_key: str = "") -> str:
        return "closed"

    def reconcile(self, idempotency_key: str, reason: str) -> str:
        return "closed"
