"""A soak through a server, for some seconds: its kills, its figures, and its verdict."""

from __future__ import annotations

from pathlib import Path

import pytest

from clonos_chaos.project.served.server_process import ServerFailed, ServerProcess
from clonos_chaos.project.served.server_soak import ServerSoak, ServerSoakRun
from tests.processes.harness.running_program import ENVIRONMENT

pytestmark = [pytest.mark.processes, pytest.mark.timeout(200)]


def test_a_soak_kills_and_reports_an_exact_output(tmp_path: Path) -> None:
    record = ServerSoakRun(ServerSoak(minutes=0.12, kill_every_s=1.0, seed=3), tmp_path).run()
    assert record.failure == ""
    assert record.findings is not None
    assert (record.findings.lost, record.findings.duplicated, record.findings.contradicted) == (0, 0, 0)
    assert record.findings.records > 100
    assert record.injections
    verdicts = {check.name.partition(",")[0]: check.is_good for check in record.checks}
    assert verdicts["left behind"]
    assert "availability of output" in verdicts


def test_a_server_that_does_not_start_is_an_error_with_its_last_line(tmp_path: Path) -> None:
    server = ServerProcess(tmp_path / "server", ENVIRONMENT, "--restart-strategy", "never")
    try:
        with pytest.raises(ServerFailed, match=r"did not start; its last line: .*restart strategy 'never'"):
            server.start()
    finally:
        server.close()
