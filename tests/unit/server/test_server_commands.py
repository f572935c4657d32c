"""The commands around a server: what they print, and the sentence and the exit code when something is wrong."""

from __future__ import annotations

import argparse
import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from clonos.cli import COMMANDS, main
from clonos.cli.server_client import JobsClient, RequestFailed, ServerClient
from clonos.cli.server_commands import is_done, lines_until_end
from clonos.job.continuing.restart_strategy import NoRestart
from clonos.job.job_status import JobStatus
from clonos.server.app.known_jobs import KnownJobs
from clonos.server.app.server_app import server_app
from clonos.server.job_api.guard import LOOPBACK_HOSTS, Role, role_by_token
from clonos.server.job_api.server_thread import ServerThread, listen_tcp
from clonos.server.register.databases import open_register
from clonos.server.register.job_record import Intention, JobRecord
from clonos.server.register.register import JobRegister
from clonos.server.supervision.spare_driver import SpareDriver
from clonos.server.supervision.supervisor import Supervisor

pytestmark = pytest.mark.slow

WRITE, READ = "w" * 20, "r" * 20


@pytest.fixture
def register(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[JobRegister]:
    """The register of a server without drivers; server and token are in the environment."""
    (tmp_path / "jobs").mkdir()
    opened = open_register(None, tmp_path)
    ended = JobRecord("words-1", "words", JobStatus.FAILED, 1_000, "job.py", checkpoint=7, error="it [b]broke[/b]")
    opened.add(msgspec.structs.replace(ended, ended_at_ms=1_500))
    opened.add(JobRecord("words-2", "words", JobStatus.RUNNING, 2_000, "job.py"))
    supervisor = Supervisor(opened, tmp_path / "jobs", NoRestart(), SpareDriver("1"))
    roles = role_by_token({WRITE: Role.WRITE, READ: Role.READ})
    listener = listen_tcp("127.0.0.1", 0)
    monkeypatch.setenv("CLONOS_SERVER", f"http://127.0.0.1:{listener.getsockname()[1]}")
    monkeypatch.setenv("CLONOS_TOKEN", WRITE)
    served = ServerThread(server_app(KnownJobs(opened, supervisor), None, roles, LOOPBACK_HOSTS), listener)
    yield opened
    served.close()
    supervisor.close()
    opened.close()


def test_jobs_are_printed_as_a_table_and_as_json(register: JobRegister, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["jobs"]) == 0
    head, latest, earliest = capsys.readouterr().out.splitlines()
    assert head.split() == ["job", "status", "started", "ended", "recoveries", "restarts", "checkpoint", "error"]
    assert latest.split()[:2] == ["words-2", "RUNNING"]
    assert earliest.rstrip().endswith("7           it [b]broke[/b]")
    assert main(["jobs", "--json"]) == 0
    assert [job["id"] for job in json.loads(capsys.readouterr().out)["jobs"]] == ["words-2", "words-1"]


def test_the_list_of_jobs_has_one_line_each_and_the_status_has_the_whole_error(
    register: JobRegister, capsys: pytest.CaptureFixture[str]
) -> None:
    error = f"it broke {'again and ' * 40}again\nand more"
    broken = JobRecord("words-3", "broken", JobStatus.FAILED, 3_000, "job.py", error=error)
    register.add(msgspec.structs.replace(broken, started_at_ms=3_250, ended_at_ms=3_500))
    assert main(["jobs"]) == 0
    _, latest, *others = capsys.readouterr().out.splitlines()
    assert latest.split()[:4] == ["words-3", "FAILED", "1970-01-01T00:00:03Z", "1970-01-01T00:00:03Z"]
    assert latest.rstrip().endswith(error.splitlines()[0])
    assert len(others) == 2
    assert main(["status", "broken"]) == 0
    assert f"error: {error}\n" in capsys.readouterr().out


def test_the_status_of_a_job_is_printed_by_the_name_of_its_running_one(
    register: JobRegister, capsys: pytest.CaptureFixture[str]
) -> None:
    status = {
        "tasks": [
            {
                "name": "count/0",
                "phase": "recovering",
                "counters": {"restored_permille": 450},
                "pid": 42,
                "host": "h",
                "standbys": 1,
                "keepers": 0,
                "rates": {"records_in_per_s": 1234.0, "records_out_per_s": 0.0, "busy_ratio": 0.5},
                "incarnation": (1 << 32) + 3,
            }
        ],
        "recoveries": [{"task": "count/0", "cause": "its process died", "duration_ms": 31.4}],
        "savepoints": [{"path": "/s", "text": "writing the savepoint /s: 3 of 10 objects"}],
        "scaling": [{"step": "count", "width": 2, "wanted": 4, "text": "2 tasks to 4: they are busy"}],
        "rescale": {"number": 1, "phase": "cutting", "widths": {"count": 4}, "text": "all tasks come to a checkpoint"},
        "skew": ["count/1 gets 91% of the records of count"],
        "alarms": [{"text": "slot 1 is gone.", "advice": "Nothing."}],
    }
    register.keep("words-2", "status", json.dumps(status).encode())
    assert main(["status", "words"]) == 0
    printed = capsys.readouterr().out
    assert "recovery of count/0: its process died, 31 ms" in printed
    assert "writing the savepoint /s: 3 of 10 objects\n" in printed
    assert "change of widths or places: all tasks come to a checkpoint\n" in printed
    assert "width of count: 2 tasks to 4: they are busy\nskew: count/1 gets 91% of the records of count\n" in printed
    assert "alarm: slot 1 is gone. Nothing." in printed
    row = next(line for line in printed.splitlines() if line.startswith("count/0"))
    assert row.split() == ["count/0", "recovering", "45%", "42", "h", "1,234", "0", "50%", "1", "0", "1.3"]


def test_the_log_of_a_dead_driver_is_printed_with_its_tracebacks(
    register: JobRegister, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "jobs" / "words-1").mkdir()
    log = "2026-11-25 10:00:00,250 WARNING clonos.run: first\n  more of it\n2026-11-25 10:00:01,000 INFO a.b: second\n"
    (tmp_path / "jobs" / "words-1" / "driver.log").write_text(log)
    assert main(["logs", "words-1", "-f"]) == 0
    lines = capsys.readouterr().out.splitlines()
    texts = [line.partition(" ")[2] for line in lines]
    assert texts == ["WARNING clonos.run: first", " more of it", "INFO a.b: second"]
    assert lines[0].endswith(".250Z WARNING clonos.run: first")


def test_the_history_of_a_job_of_a_server_has_one_line_for_checkpoints(
    register: JobRegister, capsys: pytest.CaptureFixture[str]
) -> None:
    events = [
        ("start", "begins afresh"),
        ("checkpoint", "1 in 9 ms"),
        ("checkpoint", "2 in 8 ms"),
        ("end", "all input is processed"),
    ]
    place = {"at": "2026-11-29T12:03:13.905Z", "began_at": None, "task": "", "job_id": "words-1", "term": 1}
    lines = [{**place, "event": event, "text": text} for event, text in events]
    register.keep("words-1", "history", json.dumps({"lines": lines}).encode())
    assert main(["history", "words-1"]) == 0
    assert [line.rstrip().split(maxsplit=2)[1:] for line in capsys.readouterr().out.splitlines()] == [
        ["event", "what"],
        *(["start", "begins afresh"], ["checkpoints", "2, the last one: 2 in 8 ms"], ["end", "all input is processed"]),
    ]
    assert main(["history", "words-1", "--all", "--last", "3"]) == 0
    assert "1 in 9 ms" in capsys.readouterr().out
    assert main(["history", "words-1", "--format", "json"]) == 0
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == lines


def test_a_cancellation_is_requested_and_named(register: JobRegister, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cancel", "words-2", "--no-wait"]) == 0
    assert "the server has accepted to cancel words-2" in capsys.readouterr().err
    assert register.job("words-2").status is JobStatus.CANCELLING


def test_a_stop_with_a_savepoint_is_accepted_while_the_driver_starts(register: JobRegister) -> None:
    assert main(["stop", "words-2", "--savepoint", "/s", "--no-wait"]) == 0
    assert register.job("words-2").intention == Intention("stop", "/s", drain=True)


def test_a_removed_job_is_named_and_is_not_listed_any_more(
    register: JobRegister, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["delete", "words-1"]) == 0
    assert "words-1 was removed from the server\n" in capsys.readouterr().err
    assert [job.id for job in register.jobs()] == ["words-2"]


@pytest.mark.parametrize(
    ("command", "token", "code", "sentence"),
    [
        (["stop", "words-1"], WRITE, 1, "job words-1 is FAILED, which does not allow to stop it."),
        (["stop", "words-2"], READ, 1, "This token may only read."),
        (["jobs"], "x" * 20, 1, "The request needs a valid token"),
        (["jobs"], "", 1, "the server asks for a token: give --token, or set CLONOS_TOKEN."),
        (["jobs", "--token", "@/no/such/file"], WRITE, 1, "the token file cannot be read"),
        (["status", "none"], WRITE, 1, "has no job 'none': clonos jobs lists them."),
        (["submit", "."], WRITE, 1, ". is a folder: pack it: tar czf job.tar.gz -C . . && clonos submit job.tar.gz"),
        (["submit", "/no/such/job.py"], WRITE, 1, "/no/such/job.py cannot be read: No such file or directory."),
        (["submit", __file__], WRITE, 1, "This server takes no submissions: start it with --allow-submit."),
        (["submit", __file__, "--option", "x"], WRITE, 1, "--option is 'x', but key=value is expected"),
        (["rescale", "words-2", "count=0"], WRITE, 1, "count cannot have 0 tasks: give 1 or more. clonos stop ends"),
        (["history", "none"], WRITE, 1, "has no job 'none': clonos jobs lists them."),
        (
            ["history", "words-2", "--against", "words-1"],
            WRITE,
            1,
            "--against compares the events of checkpoint stores",
        ),
        (["savepoint", "words-2"], WRITE, 1, "The driver of words-2 is starting"),
        (["delete", "words-2"], WRITE, 1, "job words-2 is RUNNING, which does not allow to delete it: stop or cancel"),
        (["jobs", "--server", "ftp://x"], WRITE, 3, "the server ftp://x cannot be used"),
    ],
)
def test_an_error_is_one_sentence_with_its_exit_code(
    register: JobRegister,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    command: list[str],
    token: str,
    code: int,
    sentence: str,
) -> None:
    monkeypatch.setenv("CLONOS_TOKEN", token)
    assert main(command) == code
    printed = capsys.readouterr().err
    assert sentence in printed
    assert len(printed.splitlines()) == 1


def test_a_server_that_is_not_there_is_the_environments_fault(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    assert main(["jobs", "--server", f"http://127.0.0.1:{port}", "--token", WRITE]) == 3
    assert "Connection refused. Is it running, and is --server right?" in capsys.readouterr().err


def test_a_name_that_several_running_jobs_have_is_refused_with_their_ids(register: JobRegister) -> None:
    register.add(JobRecord("words-3", "words", JobStatus.CREATED, 3_000, "job.py"))
    client = ServerClient(None, None)
    with pytest.raises(RequestFailed, match="2 jobs called 'words': name one by its id: words-3, words-2"):
        client.find("words")


class EndingJob(JobsClient):
    """A job that writes its last line and ends after its log was read and before its status is."""

    def __init__(self) -> None:
        self.lines = ["first"]

    def get(self, path: str, **query: object) -> Any:
        if path.endswith("/logs"):
            after = int(str(query["after"]))
            return {"lines": [{"text": text} for text in self.lines[after:]], "next": len(self.lines)}
        self.lines = ["first", "last"]
        return {"status": "FINISHED"}

    def post(self, path: str, body: Any) -> Any:
        raise AssertionError("nothing is requested")

    def find(self, job: str) -> str:
        return job


def test_the_last_line_of_a_job_that_ends_after_its_log_was_read_is_not_missed() -> None:
    job = EndingJob()
    assert [line["text"] for line in lines_until_end(job, "words-1", job.log_lines("words-1"))] == ["first", "last"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["count=4", "read=2", "--place-anew"],
        ["--place-anew", "count=4", "read=2"],
        ["count=4", "--no-wait", "read=2"],
    ],
)
def test_steps_and_options_of_a_rescale_come_in_any_order(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    seen: list[list[str]] = []

    def note(parsed: argparse.Namespace) -> int:
        seen.append(parsed.widths)
        return 0

    monkeypatch.setitem(COMMANDS, "rescale", note)
    assert main(["rescale", "wordcount", *arguments]) == 0
    assert seen == [["count=4", "read=2"]]


@pytest.mark.parametrize(
    ("found", "has_ended", "outcome"),
    [
        ({"number": 2_000_003, "phase": "cutting"}, False, False),
        ({"number": 2_000_003, "phase": "done"}, True, True),
        ({"number": 2_000_004, "phase": "ordering"}, False, True),
        ({"number": 2_000_004, "phase": "cutting", "refusals": {"2000003": "no slot came"}}, False, "no slot came"),
        ({"number": 2_000_003, "phase": "switching"}, True, "its last checkpoint has the change"),
        ({"number": 2_000_003, "phase": "ordering"}, True, "have not changed"),
        ({"number": 3_000_003, "phase": "done"}, False, "its driver has started again"),
        ({"number": 0, "phase": "switching"}, False, "its driver has started again"),
        (None, False, "its driver has started again"),
    ],
)
def test_a_request_of_other_widths_is_distinguished_from_later_ones_and_from_those_of_another_driver(
    found: dict[str, Any] | None, has_ended: bool, outcome: bool | str
) -> None:
    last = None if found is None else {"refusals": {}, **found}
    if isinstance(outcome, str):
        with pytest.raises(RequestFailed, match=outcome):
            is_done("words-1", 2_000_003, last, has_ended)
    else:
        assert is_done("words-1", 2_000_003, last, has_ended) is outcome
