"""Jobs of a real server: deaths of drivers and of the server, stops, cancellations, and what is exact afterwards."""

from __future__ import annotations

import os
import signal
import urllib.request
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from clonos.cli.server_client import RequestFailed
from clonos.io.process.retained_slots import RetainedSlots
from clonos.io.store.savepoint import MANIFEST_NAME
from clonos.io.system.process_identity import started_at
from tests.processes.harness.running_server import (
    READ_TOKEN,
    RunningServer,
    add_words,
    expected_counts,
    running_server,
    wait_for,
    word_count_file,
)
from tests.speed import scaled

pytestmark = [pytest.mark.processes, pytest.mark.timeout(400)]

FIRST = "to be or not to be\nthat is the question\n" * 20
SECOND = "whether tis nobler in the mind to suffer\n" * 20


def _submitted(server: RunningServer, folder: Path) -> str:
    """The id of a word count that has written the counts of the first text."""
    file = word_count_file(folder)
    add_words(folder, "first.txt", FIRST)
    job_id = server.submit(file)
    _wait_for_counts(server, job_id, FIRST)
    return job_id


def _wait_for_counts(server: RunningServer, job_id: str, *texts: str) -> None:
    wait_for(lambda: server.counts(job_id) == expected_counts(*texts), f"the counts of {len(texts)} texts")


def _metrics(server: RunningServer) -> str:
    request = urllib.request.Request(f"{server.url}/metrics", headers={"Authorization": f"Bearer {READ_TOKEN}"})
    with urllib.request.urlopen(request, timeout=scaled(20)) as answer:
        text: str = answer.read().decode()
        return text


def _is_alive(server: RunningServer, job_id: str) -> bool:
    driver = server.driver(job_id)
    return started_at(driver.pid) == driver.started_at


def test_the_spare_driver_continues_a_job_whose_driver_is_killed_and_the_output_is_exact(tmp_path: Path) -> None:
    with running_server(tmp_path) as server:
        job_id = _submitted(server, tmp_path)
        assert server.wait_for_status(job_id, "RUNNING")["restarts"] == 0
        lines = server.client.get(f"/jobs/{job_id}/logs")["lines"]
        assert [line["text"] for line in lines if line["level"] != "INFO"] == [], "a first start is no alarm"
        spare = server.spare()
        os.kill(server.driver(job_id).pid, signal.SIGKILL)
        add_words(tmp_path, "second.txt", SECOND)
        _wait_for_counts(server, job_id, FIRST, SECOND)
        assert server.wait_for_status(job_id, "RUNNING")["restarts"] == 1
        assert server.driver(job_id).pid == spare.pid
        next_spare = server.spare()
        server.client.post(f"/jobs/{job_id}/stop", {})
        ended = server.wait_for_status(job_id, "FINISHED")
        assert (ended["stopped"], ended["error"]) == (True, None)
        assert server.counts(job_id) == expected_counts(FIRST, SECOND)
        plan = {vertex["name"]: vertex["tasks"] for vertex in ended["plan"]["vertices"]}
        assert plan["read"] == 2
        assert not _is_alive(server, job_id)
        next_spare.wait(scaled(20))  # without jobs there is no driver to lose


def test_the_metrics_of_the_server_have_those_of_its_jobs(tmp_path: Path) -> None:
    with running_server(tmp_path) as server:
        job_id = _submitted(server, tmp_path)
        wait_for(lambda: server.client.get("/cluster")["drivers"] == 1, "the driver to answer")
        text = _metrics(server)
        assert 'clonos_server_jobs{status="RUNNING"} 1.0' in text
        found = {family.name: family for family in text_string_to_metric_families(text)}
        lines = found["clonos_records_processed"].samples
        assert sum(line.value for line in lines if line.labels["operator"] == "read") == FIRST.count("\n")
        assert {line.labels["job_id"] for line in lines} == {job_id}
        server.client.post(f"/jobs/{job_id}/stop", {})
        server.wait_for_status(job_id, "FINISHED")
        wait_for(lambda: "clonos_records_processed_total{" not in _metrics(server), "the end of the job's metrics")


def test_jobs_go_on_while_the_server_is_dead_and_the_next_one_adopts_their_drivers(tmp_path: Path) -> None:
    with running_server(tmp_path) as server:
        job_id = _submitted(server, tmp_path)
        before = server.driver(job_id)
        server.kill()
        add_words(tmp_path, "second.txt", SECOND)
        _wait_for_counts(server, job_id, FIRST, SECOND)
        server.start()
        found = server.wait_for_status(job_id, "RUNNING")
        assert (server.driver(job_id), found["restarts"]) == (before, 0)
        wait_for(lambda: server.client.get("/cluster")["drivers"] == 1, "the driver to answer the new server")
        server.client.post(f"/jobs/{job_id}/cancel", {})
        assert server.wait_for_status(job_id, "CANCELED")["restarts"] == 0
        assert not _is_alive(server, job_id)


def test_a_stop_with_a_savepoint_right_after_the_submission_waits_for_the_tasks(tmp_path: Path) -> None:
    with running_server(tmp_path) as server:
        job_id = server.submit(word_count_file(tmp_path))
        server.client.post(f"/jobs/{job_id}/stop", {"savepoint": str(tmp_path / "last")})
        ended = server.wait_for_status(job_id, "FINISHED", "FAILED", "CANCELED")
        assert (ended["status"], ended["stopped"], ended["restarts"]) == ("FINISHED", True, 0)
    assert (tmp_path / "last" / MANIFEST_NAME).exists()


def test_a_stop_that_was_accepted_is_carried_out_by_the_next_server(tmp_path: Path) -> None:
    with running_server(tmp_path) as server:
        job_id = _submitted(server, tmp_path)
        driver = server.driver(job_id)
        os.kill(driver.pid, signal.SIGSTOP)  # so that it cannot take the request before the server is dead
        server.client.post(f"/jobs/{job_id}/stop", {})
        server.kill()
        os.kill(driver.pid, signal.SIGCONT)
        server.start()
        ended = server.wait_for_status(job_id, "FINISHED", "FAILED", "CANCELED")
        assert ended["stopped"], (ended, server.folder_of(job_id).read_end(), server.log.read_text("utf-8"))
        assert server.counts(job_id) == expected_counts(FIRST)


def test_a_driver_that_dies_while_no_server_runs_is_started_by_the_next_one(tmp_path: Path) -> None:
    with running_server(tmp_path) as server:
        job_id = _submitted(server, tmp_path)
        assert server.stop() == 0
        assert _is_alive(server, job_id)
        os.kill(server.driver(job_id).pid, signal.SIGKILL)
        add_words(tmp_path, "second.txt", SECOND)
        server.start()
        _wait_for_counts(server, job_id, FIRST, SECOND)
        assert server.wait_for_status(job_id, "RUNNING")["restarts"] == 1
        server.client.post(f"/jobs/{job_id}/cancel", {})
        server.wait_for_status(job_id, "CANCELED")


def test_a_driver_that_a_signal_ends_continues_from_its_final_checkpoint(tmp_path: Path) -> None:
    with running_server(tmp_path) as server:
        job_id = _submitted(server, tmp_path)
        before = server.driver(job_id)
        os.kill(before.pid, signal.SIGTERM)
        wait_for(lambda: server.job(job_id)["restarts"] == 1, "the next driver")
        add_words(tmp_path, "second.txt", SECOND)
        _wait_for_counts(server, job_id, FIRST, SECOND)
        server.client.post(f"/jobs/{job_id}/cancel", {})
        server.wait_for_status(job_id, "CANCELED")


def test_a_job_that_fails_by_its_own_fault_is_not_started_again(tmp_path: Path) -> None:
    file = word_count_file(tmp_path)
    file.write_text(file.read_text("utf-8").replace("counted[1]", "counted[1] // 0"), "utf-8")
    add_words(tmp_path, "first.txt", FIRST)
    with running_server(tmp_path) as server:
        job_id = server.submit(file)
        ended = server.wait_for_status(job_id, "FAILED")
        assert "ZeroDivisionError" in ended["error"]
        assert ended["restarts"] == 0
        lines = server.client.get(f"/jobs/{job_id}/logs")["lines"]
        assert any("ZeroDivisionError" in line["text"] for line in lines)
        with pytest.raises(RequestFailed, match="is FAILED, which does not allow to stop it"):
            server.client.post(f"/jobs/{job_id}/stop", {})


def _slots(server: RunningServer, job_id: str) -> set[int]:
    """The processes of the slots that live."""
    return {each.register.pid for each in RetainedSlots(server.folder_of(job_id).slots).living()}


def test_tasks_go_on_without_a_rollback_when_their_driver_is_killed_twice_under_load(tmp_path: Path) -> None:
    with running_server(tmp_path) as server:
        job_id = _submitted(server, tmp_path)
        texts = [FIRST]
        for restarts in (1, 2):
            slots = _slots(server, job_id)
            assert len(slots) == 4
            texts += [SECOND, SECOND]
            add_words(tmp_path, f"before-{restarts}.txt", SECOND)
            os.kill(server.driver(job_id).pid, signal.SIGKILL)
            add_words(tmp_path, f"after-{restarts}.txt", SECOND)
            _wait_for_counts(server, job_id, *texts)
            found = server.wait_for_status(job_id, "RUNNING")
            assert (found["restarts"], found["generation"]) == (restarts, 1)
            assert _slots(server, job_id) == slots
            shown = server.client.get(f"/jobs/{job_id}/status")["tasks"]
            assert {each["pid"] for each in shown} == slots
        os.kill(server.driver(job_id).pid, signal.SIGKILL)
        server.client.post(f"/jobs/{job_id}/stop", {})
        assert server.wait_for_status(job_id, "FINISHED", "FAILED", "CANCELED")["stopped"]
        assert server.counts(job_id) == expected_counts(*texts)
        assert _slots(server, job_id) == set()


def test_the_next_driver_takes_over_the_tasks_of_a_job_that_has_got_other_widths(tmp_path: Path) -> None:
    with running_server(tmp_path) as server:
        job_id = _submitted(server, tmp_path)
        begun = server.wait_for_status(job_id, "RUNNING")
        server.client.post(f"/jobs/{job_id}/rescale", {"widths": {"count": 3}})
        wait_for(lambda: server.client.get(f"/jobs/{job_id}/status")["rescale"]["phase"] == "done", "the other widths")
        wait_for(lambda: server.job(job_id)["generation"] != begun["generation"], "the next generation")
        before, slots = server.job(job_id), _slots(server, job_id)
        os.kill(server.driver(job_id).pid, signal.SIGKILL)
        add_words(tmp_path, "second.txt", SECOND)
        _wait_for_counts(server, job_id, FIRST, SECOND)
        found = server.wait_for_status(job_id, "RUNNING")
        assert (found["restarts"], found["generation"]) == (1, before["generation"])
        assert _slots(server, job_id) == slots
        tasks = {vertex["name"]: vertex["tasks"] for vertex in server.job(job_id)["plan"]["vertices"]}
        assert 3 in tasks.values(), tasks
        server.client.post(f"/jobs/{job_id}/cancel", {})
        server.wait_for_status(job_id, "CANCELED")
