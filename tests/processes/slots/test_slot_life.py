"""Admission of slots by token and key, and their end when the coordinator is silent."""

from __future__ import annotations

import logging
import os
from contextlib import closing
from pathlib import Path

import pytest

from clonos.api.graph import JobGraph
from clonos.connectors import blackhole, values
from clonos.core.model.ids import COORDINATOR, SlotId
from clonos.core.model.options import Options
from clonos.core.wire.control_messages import Register
from clonos.io.net.listening import Binding
from clonos.io.net.peers import PeerAddress
from clonos.io.process.pickling import pack
from clonos_standby.launch_spec import SlotLaunchSpec, versions
from clonos_standby.slot.host import run_slot
from tests.processes.harness.drawing_job import OPTIONS, DrawingJob, is_quiescent
from tests.processes.harness.running_job import running
from tests.unit.io.net.transports import Station, poll_until_all_is_seen

pytestmark = pytest.mark.processes


def launch_spec(folder: Path, options: Options, coordinator: str = "ipc:///nowhere/at/all") -> SlotLaunchSpec:
    graph = JobGraph("orphaned")
    graph.source(values(range(3))).sink(blackhole())
    image = pack(graph.compile(options))
    return SlotLaunchSpec(coordinator, b"", "token", image, str(folder / "store"), Binding(folder="ipc"), str(folder))


def test_a_slot_that_lost_its_coordinator_ends_itself_and_leaves_no_file(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    os.chmod(tmp_path, 0o700)
    with caplog.at_level(logging.INFO, "clonos.slot"):
        run_slot(launch_spec(tmp_path, Options(orphan_after_ms=100, heartbeat_ms=20)), "domain")
    assert "no coordinator for 100 ms" in caplog.text
    assert list(tmp_path.iterdir()) == []


def test_a_slot_that_no_coordinator_accepts_ends_itself(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    os.chmod(tmp_path, 0o700)
    options = Options(orphan_after_ms=50, slots_wait_ms=50, heartbeat_ms=20)
    with closing(Station(COORDINATOR, tmp_path / "coordinator", admits_unknown=True)) as silent:
        address = silent.transport.control_address
        with caplog.at_level(logging.INFO, "clonos.slot"):
            run_slot(launch_spec(tmp_path, options, address), "domain")
    assert "no coordinator" in caplog.text


def test_a_registration_with_an_unknown_or_used_token_is_refused(tmp_path: Path) -> None:
    drawing = DrawingJob(tmp_path)
    with running(drawing.graph, tmp_path, OPTIONS, parallelism=1, tcp=True) as job:
        job.wait_for(is_quiescent)
        launched = job.provider.launch_specs[0]
        coordinator = PeerAddress(
            COORDINATOR, launched.coordinator_address, launched.coordinator_address, launched.coordinator_key
        )
        slots = job.driver.ask(lambda it: it.slots)
        with closing(Station(7, use_curve=True)) as stranger:
            stranger.transport.add_peer(coordinator)
            for token in ("guessed", launched.token):
                key = stranger.transport.public_key
                stranger.send(COORDINATOR, Register(SlotId(7), "d", "h", "x", "y", key, token, 1, versions("0")))
            poll_until_all_is_seen(stranger, COORDINATOR, stranger)
        assert job.driver.ask(lambda it: it.slots) == slots
        assert job.driver.ask(lambda it: it.phase) == "running"


def test_slots_with_another_environment_are_refused_with_the_difference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.processes.harness.running_job.versions", lambda hash_seed: (("python", "2.7"),))
    drawing = DrawingJob(tmp_path)
    with running(drawing.graph, tmp_path, OPTIONS) as job:
        failed = job.end()
    assert "instead of 2.7" in str(failed)
