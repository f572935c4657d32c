"""Made-up requests: none is an error of the server, and none does more than its role. `make requests` sends 10,000."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.processes.harness.running_server import (
    add_words,
    expected_counts,
    running_server,
    wait_for,
    word_count_file,
)
from tests.processes.server.fuzzed_requests import ROLES, Fuzzed, fuzz, operations, varies

pytestmark = [pytest.mark.processes, pytest.mark.keeps_sockets, pytest.mark.timeout(3600)]

TEXT = "a rose is a rose is a rose\n"


def test_made_up_requests_are_answered_within_their_role(tmp_path: Path, pytestconfig: pytest.Config) -> None:
    total = pytestconfig.getoption("--fuzz-requests")
    add = word_count_file(tmp_path)
    add_words(tmp_path, "first.txt", TEXT)
    with running_server(tmp_path) as server:
        # Two jobs: what the role for writing may end is not what the others are watched by.
        job_id, other_id = server.submit(add), server.submit(add)
        server.wait_for_status(job_id, "RUNNING")
        server.stop()
        server.options.remove("--allow-submit")
        server.start()
        driver = server.driver(job_id)
        seen = {role: Fuzzed() for role in ROLES}
        known = operations(server.client)
        each = -(-total // (len(ROLES) * sum(map(varies, known))))
        for seed, (role, operation) in enumerate((role, operation) for role in ROLES for operation in known):
            count = each if varies(operation) else 1
            fuzz(server.url, operation, role, [job_id] if role != "write" else [other_id], count, seed, seen[role])
        assert [line for found in seen.values() for line in found.failures] == []
        assert sum(found.count for found in seen.values()) >= total * 0.9, seen
        for role in ("nobody", "wrong"):
            assert set(seen[role].statuses) <= {401, 429}
            assert len(seen[role].bodies) <= 2
        assert seen["read"].changed == []
        assert {200, 403} <= set(seen["read"].statuses)
        assert seen["write"].changed
        assert (server.job(job_id)["status"], server.driver(job_id)) == ("RUNNING", driver)
        assert {job["id"] for job in server.client.get("/jobs")["jobs"]} == {job_id, other_id}
        server.wait_for_status(other_id, "CANCELED", "FINISHED")
        wait_for(lambda: server.counts(job_id) == expected_counts(TEXT), "the counts")
        server.client.post(f"/jobs/{job_id}/cancel", {})
        server.wait_for_status(job_id, "CANCELED")
