"""Requests to a real server that schemathesis makes up from its OpenAPI description, in each role.

Event streams are left out, because they do not end, and so is ``POST /jobs`` with a file: the server is started without
``--allow-submit``. Half of the requests name a job that runs.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final

import hypothesis
import schemathesis
from hypothesis import strategies as st
from schemathesis.core.result import Ok

from clonos.cli.server_client import ServerClient
from tests.processes.harness.running_server import READ_TOKEN, TOKEN

ROLES: Final = {"nobody": None, "read": READ_TOKEN, "write": TOKEN, "wrong": "wrong-token-of-the-tests"}
"""Tokens by role. The wrong one is the last, because it slows down all that follow from this address."""

LEFT_OUT: Final = "/events"


@dataclass
class Fuzzed:
    """What the requests of one role had as answers. ``bodies``: different answers to requests without a right token."""

    statuses: Counter[int] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    bodies: set[bytes] = field(default_factory=set)
    changed: list[str] = field(default_factory=list)

    @property
    def count(self) -> int:
        """Number of requests."""
        return sum(self.statuses.values())


def operations(client: ServerClient) -> list[Any]:
    """Every operation of the API but event streams."""
    schema = schemathesis.openapi.from_dict(client.get("/openapi.json"))
    found = [result.ok() for result in schema.get_all_operations() if isinstance(result, Ok)]
    assert len(found) >= 15, "the description has every operation"
    return [operation for operation in found if not operation.path.endswith(LEFT_OUT)]


def cases(operation: Any) -> st.SearchStrategy[Any]:
    """Requests that agree with the description, and requests that do not."""
    modes = (schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE)
    usable = [mode for mode in modes if mode is modes[0] or varies(operation)]
    return st.one_of([operation.as_strategy(generation_mode=mode) for mode in usable])


def varies(operation: Any) -> bool:
    """Whether an operation has parameters or a body; all requests of another one are the same."""
    return bool(operation.body) or any(True for _ in operation.iter_parameters())


def fuzz(url: str, operation: Any, role: str, jobs: list[str], count: int, seed: int, found: Fuzzed) -> None:
    """Sends ``count`` requests of one operation. ``jobs``: ids that half of them name."""
    token = ROLES[role]
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}

    @hypothesis.seed(seed)
    @hypothesis.settings(
        max_examples=count,
        database=None,
        deadline=None,
        phases=[hypothesis.Phase.generate],
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    @hypothesis.given(case=cases(operation), job=st.sampled_from([*jobs, *(None for _ in jobs)]) if jobs else st.none())
    def send(case: Any, job: str | None) -> None:
        if job is not None and "job_id" in case.path_parameters:
            case.path_parameters["job_id"] = job
        reply = case.call(base_url=url, headers=headers, timeout=20)
        found.statuses[reply.status_code] += 1
        if reply.status_code >= 500:
            found.failures.append(f"{reply.status_code} {case.as_curl_command()}: {reply.text[:300]}")
        if token not in (TOKEN, READ_TOKEN):
            found.bodies.add(reply.content)
        if reply.status_code in (201, 202):
            found.changed.append(f"{operation.method.upper()} {case.formatted_path}")

    send()
