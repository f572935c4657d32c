"""The API of a job on slot processes: its documents, its events, its requests."""

from __future__ import annotations

import urllib.error
import urllib.request
from pathlib import Path

import pytest

from clonos.io.epochs.record_reader import EpochRecord
from clonos.status import REQUESTS_PER_DRIVER
from tests.processes.jobs.test_width_changes import wait_until
from tests.processes.page.paged_job import LIMIT_S, PagedJob, paged_job
from tests.speed import scaled

pytestmark = pytest.mark.processes


def _until_live(job: PagedJob) -> None:
    """Waits until all tasks are live and have standbys."""
    for name, document in job.events():
        if name != "status" or not document["tasks"] or not document["job"]["checkpoint"]:
            continue
        if all(task["phase"] == "live" and task["standbys"] for task in document["tasks"]):
            return
    raise AssertionError("the job ended before its tasks were live")


def test_the_api_describes_a_running_job(tmp_path: Path) -> None:
    with paged_job(tmp_path) as job:
        job.gate.open_to(200)
        _until_live(job)
        document = job.ask("")
        assert document["name"] == "sums"
        assert document["status"] == "RUNNING"
        assert [(vertex["name"], vertex["tasks"]) for vertex in document["plan"]["vertices"]] == [
            ("read", 2),
            ("count-row", 1),
        ]
        edge = {"source": "read", "target": "count-row", "exchange": "hash", "step": "read"}
        assert document["plan"]["edges"] == [edge]
        vertex_of = {step["name"]: step["vertex"] for step in document["plan"]["steps"]}
        assert [vertex_of[step] for step in ("read", "count", "row")] == ["read", "count-row", "count-row"]
        assert document["options"]["checkpoint_every"] == 300
        status = job.ask("/status")
        assert [task["name"] for task in status["tasks"]] == ["read/0", "read/1", "count-row/0"]
        assert {task["pid"] for task in status["tasks"]} <= {slot["pid"] for slot in status["slots"]}
        assert not status["injection_allowed"]
        newest = job.ask("/checkpoints")["checkpoints"]
        assert [each["number"] for each in newest] == list(range(newest[0]["number"], 0, -1))
        assert any(each["status"] == "completed" and each["duration_ms"] > 0 for each in newest)
        assert all(each["bytes"] > 0 for each in newest if each["status"] == "completed")
        curves, latency = {"records_in_per_s", "records_out_per_s", "backlog"}, {"latency_ms_p50", "latency_ms_p99"}
        assert set(job.ask("/metrics")["series"]) - latency == curves
        request = urllib.request.Request(f"{job.base}/metrics", headers={"Authorization": f"Bearer {job.token}"})
        with urllib.request.urlopen(request, timeout=scaled(20)) as answer:
            assert b'\nclonos_records_processed_total{job="sums"' in answer.read()
        with pytest.raises(urllib.error.HTTPError, match="401") as refused:
            urllib.request.urlopen(f"{job.base}/metrics", timeout=scaled(20))
        refused.value.close()
        job.gate.end(200)
        assert job.handle.wait(LIMIT_S).has_finished
        assert job.ask("")["status"] == "FINISHED"
        assert job.ask("/stop", {})["error"]["code"] == "job_has_ended"


def test_a_killed_task_appears_in_the_events_milestone_by_milestone_and_nothing_is_lost(tmp_path: Path) -> None:
    with paged_job(tmp_path, allow_injection=True) as job:
        job.gate.open_to(300)
        _until_live(job)
        events = job.events()
        assert job.ask("/kill", {"task": "count-row/0"}) == {
            "accepted": True,
            "savepoint": None,
            "epoch": None,
            "tasks": ["count-row/0"],
            "widths": {},
            "number": 0,
        }
        seen: list[str] = []
        names: set[str] = set()
        for name, document in events:
            names.add(name)
            if name == "recovery" and document["task"] == "count-row/0":
                seen += [phase["name"] for phase in document["phases"] if phase["name"] not in seen]
                if document["is_over"]:
                    break
        wait_until(lambda: any(line["event"] == "recovery" for line in job.ask("/history")["lines"]))
        lines = job.ask("/history")["lines"]
        assert [line["event"] for line in lines if line["event"] in ("start", "failure")] == ["start", "failure"]
        (recovery,) = [line for line in lines if line["event"] == "recovery"]
        assert (recovery["task"], recovery["began_at"] < recovery["at"]) == ("count-row/0", True)
        assert [name for name in seen if name != "failed"] == ["detected", "view", "gathered", "replayed", "caught_up"]
        job.gate.end(300)
        assert job.handle.wait(LIMIT_S).has_finished
        assert [name for name, _ in events][-1] == "ended"
        assert "log" in names
    counts = sorted((row["key"], row["count"]) for row in job.rows())
    assert counts == sorted((key, count) for key in range(7) for count in range(1, len(range(key, 600, 7)) + 1))


def test_a_kill_is_refused_without_the_option_and_a_stop_keeps_what_was_read(tmp_path: Path) -> None:
    with paged_job(tmp_path) as job:
        job.gate.open_to(100)
        _until_live(job)
        assert job.ask("/kill", {"task": "count-row/0"})["error"]["code"] == "injection_not_allowed"
        assert job.ask("/savepoint", {"path": str(tmp_path / "one")})["savepoint"] == str(tmp_path / "one")
        taken = str(job.handle.savepoint(tmp_path / "taken", timeout=LIMIT_S).path)
        assert job.ask("/savepoint", {"path": taken})["error"]["code"] == "savepoint_refused"
        assert job.ask("/stop", {"savepoint": taken})["error"]["code"] == "savepoint_refused"
        record = EpochRecord(
            Path(job.ask("/capture", {"task": "count-row/0", "folder": str(tmp_path / "epochs")})["epoch"])
        )
        assert (record.head.task, record.folder.parent) == ("count-row/0", tmp_path / "epochs" / "count-row-0")
        assert job.ask("/capture", {"task": "none/0"})["error"]["code"] == "capture_refused"
        assert {step["name"] for step in job.ask("")["plan"]["steps"] if step["keyed"]} == {"count"}
        course = job.ask("/key", {"step": "count", "key": "3"})
        assert (course["job"], course["states"][0]["step"], course["as_recorded"]) == ("sums", "count", True)
        assert job.ask("/key", {"step": "count", "key": "99"})["error"]["code"] == "key_not_found"
        assert job.ask("/key", {"step": "none", "key": "3"})["error"]["message"] == "the job sums has no step 'none'."
        assert job.ask("/stop", {"drain": "perhaps"})["error"]["code"] == "invalid_request"
        assert job.ask("/stop", {})["accepted"]
        assert job.handle.wait(LIMIT_S).checkpoint
        document = job.ask("")
        assert (document["status"], document["stopped"]) == ("FINISHED", True)
    assert len(job.rows()) == 200


def test_widths_change_on_request_and_plan_and_status_show_the_new_ones(tmp_path: Path) -> None:
    with paged_job(tmp_path) as job:
        job.gate.open_to(100)
        _until_live(job)
        refused = job.ask("/rescale", {"widths": {"none": 3}})["error"]
        assert refused["code"] == "rescale_refused"
        assert 'there is no step "none"' in refused["message"]
        assert job.ask("/rescale", {"widths": {"count": 0}})["error"]["code"] == "invalid_request"
        assert job.ask("/rescale", {"widths": {"count": 1}})["number"] == 0
        asked = job.ask("/rescale", {"widths": {"count": 3}})
        assert (asked["number"] % REQUESTS_PER_DRIVER, asked["widths"]["row"]) == (1, 3)
        wait_until(lambda: job.ask("/status")["rescale"]["phase"] == "done")
        widths = {vertex["name"]: vertex["tasks"] for vertex in job.ask("")["plan"]["vertices"]}
        assert widths["count-row"] == 3
        assert sum(task["vertex"] == "count-row" for task in job.ask("/status")["tasks"]) == 3
        assert job.ask("/rescale", {})["error"]["code"] == "invalid_request"
        assert job.ask("/rescale", {"place_anew": "yes"})["error"]["code"] == "invalid_request"
        assert job.ask("/rescale", {"widths": {"count": 3}, "place_anew": True})["number"] == asked["number"] + 1
        wait_until(lambda: job.ask("/status")["rescale"]["phase"] == "done")
        assert job.ask("/rescale", {"place_anew": True})["number"] == asked["number"] + 2
        wait_until(lambda: job.ask("/status")["rescale"]["phase"] == "done")
        job.gate.end(300)
        assert job.handle.wait(LIMIT_S).has_finished
    assert len(job.rows()) == 600


def test_a_request_without_the_token_gets_the_same_refusal_for_every_path(tmp_path: Path) -> None:
    with paged_job(tmp_path) as job:
        answers = []
        for path in ("/api/v1/jobs", job.path, "/api/v1/openapi.json", "/api/v1/no-such-path", f"{job.path}/events"):
            with pytest.raises(urllib.error.HTTPError) as refusal:
                urllib.request.urlopen(job.base + path, timeout=scaled(20))
            with refusal.value as answer:
                answers.append((answer.status, answer.read()))
        assert len(set(answers)) == 1
        assert answers[0][0] == 401
        job.handle.stop(drain=False)
        job.handle.wait(LIMIT_S)
