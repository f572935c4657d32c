"""The application of a server without drivers: who may do what, what it refuses, and its answers from the register."""

from __future__ import annotations

import asyncio
import io
import socket
import threading
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from clonos.io.system.process_identity import started_at
from clonos.job.continuing.restart_strategy import NoRestart
from clonos.job.job_status import JobStatus
from clonos.server.app.cluster_routes import cluster_numbers
from clonos.server.app.known_jobs import KnownJobs
from clonos.server.app.server_app import server_app
from clonos.server.app.submit_route import CHECKS_AT_A_TIME, CHECKS_WAITING_MAX
from clonos.server.job_api.documents import SlotDocument, StatusDocument, TaskDocument, TaskRates
from clonos.server.job_api.guard import LOOPBACK_HOSTS, Role, role_by_token
from clonos.server.register.databases import SqliteDatabase, open_register
from clonos.server.register.job_record import Intention, JobRecord
from clonos.server.register.register import JobRegister, RegisterDatabase, RegisterFailed, Transaction
from clonos.server.submission.submissions import CHECK_TIMEOUT_S, Submissions
from clonos.server.submission.unpacking import SubmissionRefused
from clonos.server.supervision.job_folder import SOCKET_NAME, JobFolder
from clonos.server.supervision.spare_driver import SpareDriver
from clonos.server.supervision.supervisor import Supervisor

pytestmark = pytest.mark.slow

WRITE, READ = "w" * 20, "r" * 20
JOB = b"from clonos import Job, values, collect\njob = Job('words')\njob.source(values(['a'])).sink(collect())\n"
FORGED_OUTCOME = b"""import os\nos.write(1, b'\\n{"name": "../../up"}\\n')\nos._exit(0)\n"""
POSTS = ("stop", "cancel", "savepoint", "kill")
BODIES: dict[str, object] = {"stop": {}, "cancel": None, "savepoint": {}, "kill": {"task": "count/0"}}
LOOKS_MAX = 3_000
DOCUMENTS = ("", "/status", "/checkpoints", "/recoveries", "/metrics", "/logs")


class App:
    """The application, its register with a job that has ended and a job that runs, and requests to it."""

    def __init__(self, folder: Path, allows_submission: bool = False, check_timeout_s: float = CHECK_TIMEOUT_S) -> None:
        (folder / "jobs").mkdir()
        self.register: JobRegister = open_register(None, folder)
        self.register.add(JobRecord("ended-1", "words", JobStatus.FINISHED, 1_000, "job.py", checkpoint=7))
        self.register.add(JobRecord("runs-1", "words", JobStatus.RUNNING, 2_000, "job.py", {"store": "s://u:pw@h/b"}))
        self.supervisor = Supervisor(
            self.register, folder / "jobs", NoRestart(), SpareDriver("1")
        )  # not started: no driver lives
        submissions = Submissions(self.register, folder, check_timeout_s) if allows_submission else None
        known = KnownJobs(self.register, self.supervisor)
        roles = role_by_token({WRITE: Role.WRITE, READ: Role.READ})
        self._app = server_app(known, submissions, roles, LOOPBACK_HOSTS)

    def ask(self, method: str, path: str, token: str | None = WRITE, host: str = "127.0.0.1", **body: Any) -> Any:
        """The answer to one request."""
        headers: dict[str, Any] = {"host": host}
        if token is not None:
            headers["authorization"] = f"Bearer {token}".encode()

        async def send() -> httpx.Response:
            transport = httpx.ASGITransport(app=self._app)
            async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
                return await client.request(method, path, headers=headers, **body)

        return asyncio.run(send())

    def ask_all(self, requests: list[tuple[str, str, dict[str, Any]]]) -> list[int]:
        """The statuses of answers to requests that are sent at once, in the order in which they come."""

        async def send() -> list[int]:
            transport = httpx.ASGITransport(app=self._app)
            headers = {"authorization": f"Bearer {WRITE}"}
            statuses: list[int] = []

            async def one(client: httpx.AsyncClient, method: str, path: str, body: dict[str, Any]) -> None:
                statuses.append((await client.request(method, path, headers=headers, **body)).status_code)

            async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1", timeout=None) as client:
                await asyncio.gather(*(one(client, *request) for request in requests))
            return statuses

        return asyncio.run(send())

    def close(self) -> None:
        """Closes all of it."""
        self.supervisor.close()
        self.register.close()


@pytest.fixture
def app(tmp_path: Path) -> Iterator[App]:
    """An application that takes no submissions."""
    made = App(tmp_path)
    yield made
    made.close()


@pytest.fixture
def taking_app(tmp_path: Path) -> Iterator[App]:
    """An application that takes submissions."""
    made = App(tmp_path, allows_submission=True)
    yield made
    made.close()


@pytest.mark.parametrize("token", [None, "", "x" * 20, WRITE[:-1], WRITE + "w", "é"])
def test_every_request_without_a_right_token_gets_the_same_answer(app: App, token: str | None) -> None:
    paths = ["/api/v1/jobs", "/api/v1/jobs/runs-1", "/api/v1/nothing", "/api/v1/openapi.json", "/api/v2", "/metrics"]
    answers = [app.ask("GET", path, token) for path in paths]
    answers += [app.ask(method, "/api/v1/jobs/runs-1/stop", token and "wrong") for method in ("POST", "DELETE", "PUT")]
    assert {(answer.status_code, answer.content) for answer in answers} == {(401, answers[0].content)}
    assert app.register.job("runs-1").intention is None


@pytest.mark.parametrize("verb", POSTS)
def test_a_token_for_reading_changes_nothing(app: App, verb: str) -> None:
    answer = app.ask("POST", f"/api/v1/jobs/runs-1/{verb}", READ, json=BODIES[verb])
    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "forbidden")
    assert app.register.job("runs-1").intention is None


def test_a_job_that_has_ended_is_removed_and_its_folder_with_files_only(app: App, tmp_path: Path) -> None:
    folder = JobFolder(tmp_path / "jobs" / "ended-1")
    folder.create()
    record = app.register.job("ended-1")
    assert app.ask("DELETE", "/api/v1/jobs/ended-1", token=READ).status_code == 403
    assert app.ask("DELETE", "/api/v1/jobs/ended-1").json()["checkpoint"] == 7
    assert app.ask("GET", "/api/v1/jobs/ended-1").status_code == 404
    assert folder.files.exists()
    app.register.add(record)
    assert app.ask("DELETE", "/api/v1/jobs/ended-1?files=true").status_code == 200
    assert not folder.path.exists()


def test_a_job_that_runs_is_not_removed(app: App) -> None:
    reply = app.ask("DELETE", "/api/v1/jobs/runs-1?files=true")
    assert (reply.status_code, reply.json()["error"]["code"]) == (409, "job_status")
    assert "stop or cancel it first" in reply.json()["error"]["message"]
    assert app.ask("GET", "/api/v1/jobs/runs-1").status_code == 200


def test_a_token_for_reading_reads_jobs_and_documents(app: App) -> None:
    jobs = app.ask("GET", "/api/v1/jobs", READ).json()["jobs"]
    assert [(job["id"], job["status"], job["checkpoint"]) for job in jobs] == [
        ("runs-1", "RUNNING", 0),
        ("ended-1", "FINISHED", 7),
    ]
    for path in DOCUMENTS:
        answer = app.ask("GET", f"/api/v1/jobs/ended-1{path}", READ)
        assert answer.status_code == 200, path


def test_a_request_by_another_name_of_the_host_is_refused(app: App) -> None:
    answer = app.ask("GET", "/api/v1/jobs", host="rebound.example")
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "host_not_allowed")


def test_the_register_answers_with_what_a_driver_last_reported(app: App) -> None:
    app.register.keep("ended-1", "status", b'{"job": {"status": "RUNNING"}, "tasks": [1]}')
    found = app.ask("GET", "/api/v1/jobs/ended-1/status").json()
    assert (found["tasks"], found["job"]["status"], found["job"]["id"]) == ([1], "FINISHED", "ended-1")


def test_passwords_in_options_are_not_shown(app: App) -> None:
    assert app.ask("GET", "/api/v1/jobs/runs-1").json()["options"] == {"store": "s://u:***@h/b"}


@pytest.mark.parametrize("verb", ["stop", "cancel"])
def test_a_request_for_an_end_is_written_before_it_is_answered(app: App, verb: str) -> None:
    answer = app.ask("POST", f"/api/v1/jobs/runs-1/{verb}", json=BODIES[verb])
    assert (answer.status_code, answer.json()["accepted"]) == (202, True)
    assert app.register.job("runs-1").intention == Intention(verb, drain=verb == "stop")


@pytest.mark.parametrize("verb", POSTS)
def test_a_request_that_the_status_does_not_allow_gets_a_sentence(app: App, verb: str) -> None:
    answer = app.ask("POST", f"/api/v1/jobs/ended-1/{verb}", json=BODIES[verb])
    assert answer.status_code == 409
    assert "ended-1 is FINISHED, which does not allow" in answer.json()["error"]["message"]


@pytest.mark.parametrize("verb", ["savepoint", "kill"])
def test_a_request_to_a_driver_that_is_starting_is_refused_for_now(app: App, verb: str) -> None:
    answer = app.ask("POST", f"/api/v1/jobs/runs-1/{verb}", json=BODIES[verb])
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "no_driver")


@pytest.mark.parametrize("has_socket", [False, True])
@pytest.mark.parametrize("verb", ["savepoint", "kill", "stop"])
def test_a_request_to_a_driver_that_has_just_ended_is_refused_for_now(
    app: App, monkeypatch: pytest.MonkeyPatch, verb: str, has_socket: bool
) -> None:
    """``has_socket``: the driver was killed, so the file of its socket is there, and nobody listens."""
    monkeypatch.setattr(app.supervisor, "summary", lambda _: {"id": "words-1", "status": "RUNNING"})
    folder = app.supervisor.folder_of("runs-1")
    folder.create()
    if has_socket:
        with socket.socket(socket.AF_UNIX) as unheard:
            unheard.bind(str(folder.path / SOCKET_NAME))
    body = {"savepoint": "s"} if verb == "stop" else BODIES[verb]
    answer = app.ask("POST", f"/api/v1/jobs/runs-1/{verb}", json=body)
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "no_driver")
    assert "has just ended" in answer.json()["error"]["message"]


@pytest.mark.parametrize("name", ["none-1", "a%00b", "%C3%A9", "x" * 300, "..%2E"])
def test_an_unknown_job_is_not_found_whatever_its_name(app: App, name: str) -> None:
    for method, path in [("GET", ""), ("GET", "/status"), ("GET", "/events"), ("POST", "/cancel")]:
        assert app.ask(method, f"/api/v1/jobs/{name}{path}").status_code == 404, (method, path)


def test_a_body_that_is_too_large_is_refused(app: App) -> None:
    answer = app.ask("POST", "/api/v1/jobs/runs-1/stop", content=b" " * (65 << 10))
    assert (answer.status_code, app.register.job("runs-1").intention) == (413, None)


def test_an_event_stream_of_an_ended_job_has_its_status_and_its_end(app: App) -> None:
    text = app.ask("GET", "/api/v1/jobs/ended-1/events").text
    assert [line for line in text.splitlines() if line.startswith("event: ")] == ["event: status", "event: ended"]


def test_a_register_that_fails_is_an_error_of_the_service(app: App) -> None:
    app.register.close()
    answer = app.ask("GET", "/api/v1/jobs")
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "register_unavailable")


def test_metrics_count_jobs_by_status(app: App) -> None:
    text = app.ask("GET", "/metrics", READ).text
    assert 'clonos_server_jobs{status="RUNNING"} 1.0' in text
    assert app.ask("GET", "/api/v1/cluster", READ).json()["jobs"]["FINISHED"] == 1


def test_a_submission_is_refused_unless_the_server_allows_it(app: App) -> None:
    answer = app.ask("POST", "/api/v1/jobs", files={"job": ("job.py", JOB)})
    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "submission_not_allowed")
    assert len(app.register.jobs()) == 2


def test_a_submitted_archive_becomes_a_job_in_a_folder_of_its_own(taking_app: App, tmp_path: Path) -> None:
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as opened:
        opened.writestr("lib/jobs.py", JOB)
    data = {"file": "lib/jobs.py:job", "options": '{"parallelism": "3"}'}
    answer = taking_app.ask("POST", "/api/v1/jobs", files={"job": ("jobs.zip", archive.getvalue())}, data=data)
    assert answer.status_code == 201, answer.text
    job = answer.json()
    assert (job["name"], job["status"]) == ("words", "CREATED")
    assert (tmp_path / "jobs" / job["id"] / "files" / "lib" / "jobs.py").read_bytes() == JOB
    record = taking_app.register.job(job["id"])
    assert (record.target, record.options) == ("lib/jobs.py:job", {"parallelism": "3"})
    assert list((tmp_path / "incoming").iterdir()) == []


@pytest.mark.parametrize(
    ("name", "data", "options", "reason"),
    [
        ("job.py", b"raise ValueError('no')\n", "{}", "job.py raised ValueError: no"),
        (
            "job.py",
            b"from clonos import Job, values\njob = Job('j')\njob.source(values([1]))\n",
            "{}",
            "is the end of a job without a sink",
        ),
        ("job.py", b"x = 1\n", "{}", "must have exactly one Job"),
        ("job.py", b"import os\nos._exit(0)\n", "{}", "the process that loads the job has died"),
        ("job.py", b"job = (\n", "{}", "SyntaxError"),
        ("job.py", FORGED_OUTCOME, "{}", "'../../up' is not the name of a job"),
        ("job.exe", b"MZ", "{}", "neither a .py file nor an archive"),
        ("job.zip", b"PK\3\4 no archive", "{}", "not a zip archive that can be read"),
        ("job.py", JOB, '{"paralelism": "3"}', "did you mean 'parallelism'?"),
        ("job.py", JOB, '{"overwrite": "true"}', "the option overwrite is the server's"),
        ("job.py", JOB, "[1]", "must be a JSON object whose values are texts"),
        ("job.py", JOB, "[" * 100_000, "must be a JSON object whose values are texts"),
        ("job.py", JOB, '{"a": ' * 100_000, "must be a JSON object whose values are texts"),
        ("job.py", JOB, '{"store": {"a": "b"}}', "must be a JSON object whose values are texts"),
        ("job.py", JOB, '{"store": "\\ud800"}', "must be a JSON object whose values are texts"),
        ("job.py", JOB, '{"store": "/proc/none/store"}', "the checkpoint store /proc/none/store failed to"),
        ("job.py", JOB, '{"from_savepoint": "/none/savepoint"}', "/none/savepoint"),
    ],
)
def test_a_submission_that_cannot_run_is_refused_and_leaves_nothing(
    taking_app: App, tmp_path: Path, name: str, data: bytes, options: str, reason: str
) -> None:
    answer = taking_app.ask("POST", "/api/v1/jobs", files={"job": (name, data)}, data={"options": options})
    assert (answer.status_code, reason in answer.json()["error"]["message"]) == (422, True), answer.text
    assert len(taking_app.register.jobs()) == 2
    assert [*(tmp_path / "incoming").iterdir(), *(tmp_path / "jobs").iterdir()] == []


def test_a_job_that_does_not_end_while_it_is_loaded_is_refused(tmp_path: Path) -> None:
    (tmp_path / "jobs").mkdir()
    register = open_register(None, tmp_path)
    try:
        submissions = Submissions(register, tmp_path, check_timeout_s=0.5)
        with pytest.raises(Exception, match="loading a job must not run it"):
            submissions.submit(io.BytesIO(b"while True: pass\n"), "job.py", None, {})
        assert register.jobs() == []
    finally:
        register.close()


def test_a_submission_that_the_machine_cannot_store_is_not_the_fault_of_its_sender(
    taking_app: App, tmp_path: Path
) -> None:
    (tmp_path / "incoming").rmdir()
    (tmp_path / "incoming").write_bytes(b"")
    answer = taking_app.ask("POST", "/api/v1/jobs", files={"job": ("job.py", JOB)})
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "submission_not_stored")


HOSTILE_TEXTS = ('"\\ud800"', '"\\u0000"', '""', "[" * 100_000, '{"a":' * 100_000, "1e999", "NaN", "9" * 5_000)


@pytest.mark.parametrize("verb", POSTS)
def test_no_body_of_a_request_is_an_error_of_the_server(app: App, verb: str) -> None:
    fields = [f'{{"{field}": {text}}}' for field in ("savepoint", "path", "task", "drain") for text in HOSTILE_TEXTS]
    for body in (*HOSTILE_TEXTS, *fields, "", "\xff"):
        answer = app.ask("POST", f"/api/v1/jobs/ended-1/{verb}", content=body.encode("latin-1"))
        assert answer.status_code < 500, (body[:60], answer.text)


def test_the_documents_name_every_request(app: App) -> None:
    of_server, of_driver = (Path("docs", name).read_text("utf-8") for name in ("server.md", "console.md"))
    for path in app.ask("GET", "/api/v1/openapi.json").json()["paths"]:
        name = path.removeprefix("/api/v1").replace("{job_id}", "ID")
        last = f"/{name.rpartition('/')[2]}`"
        assert last in of_server, path
        if name.startswith("/jobs/ID"):
            assert last in of_driver or f"{last[:-1]}?" in of_driver, path


def test_the_numbers_of_a_server_have_its_slots_and_how_busy_they_are(app: App) -> None:
    known = KnownJobs(app.register, app.supervisor)
    tasks = [_task("read/0", "a1", 0.5), _task("count/0", "b2", 0.1), _task("write/0", "", 0.0)]
    slots = [SlotDocument(slot=slot, pid=1, host="h", domain="d", memory_bytes=5) for slot in ("a1", "b2", "c3")]
    status = StatusDocument.model_construct(tasks=tasks, slots=slots)
    numbers = cluster_numbers(known, app.register.jobs(), {"runs-1": status})
    assert (numbers.slots, numbers.slots_with_tasks, numbers.slot_memory_bytes, numbers.tasks) == (3, 2, 15, 3)
    assert numbers.busy_ratio == pytest.approx(0.2)
    assert numbers.jobs["RUNNING"] == 1


def test_a_server_without_drivers_has_no_slots(app: App) -> None:
    numbers = app.ask("GET", "/api/v1/cluster/metrics", READ).json()
    assert (numbers["slots"], numbers["tasks"], numbers["busy_ratio"]) == (0, 0, None)


def _task(name: str, slot: str, busy_ratio: float) -> TaskDocument:
    rates = TaskRates(records_in_per_s=1.0, records_out_per_s=1.0, busy_ratio=busy_ratio)
    return TaskDocument.model_construct(name=name, slot=slot, rates=rates)


def test_a_process_that_a_job_starts_while_it_is_loaded_is_ended_with_the_check(tmp_path: Path) -> None:
    (tmp_path / "jobs").mkdir()
    left = tmp_path / "left"
    job = f"import subprocess as s\nopen({str(left)!r}, 'w').write(str(s.Popen(['sleep', '300']).pid))\n"
    register = open_register(None, tmp_path)
    try:
        with pytest.raises(SubmissionRefused, match="must have exactly one Job"):
            Submissions(register, tmp_path).submit(io.BytesIO(job.encode()), "job.py", None, {})
        _wait_until(lambda: not started_at(int(left.read_text())))
    finally:
        register.close()


def _wait_until(condition: Callable[[], bool]) -> None:
    for _ in range(LOOKS_MAX):
        if condition():
            return
        threading.Event().wait(0.01)
    raise AssertionError("it was waited for in vain")


class _FailingOnce:
    """Database of a register whose next transaction fails after it has been carried out, when a test says so."""

    def __init__(self, database: RegisterDatabase) -> None:
        self._database = database
        self.fails = 0

    def run(self, work: Callable[[Transaction], Any]) -> Any:
        """Runs a transaction. Raises: RegisterFailed."""
        result = self._database.run(work)
        if self.fails:
            self.fails -= 1
            raise RegisterFailed("a test", "it lost the connection")
        return result

    def close(self) -> None:
        """Closes the database."""
        self._database.close()


@pytest.fixture
def failing(tmp_path: Path) -> Iterator[tuple[_FailingOnce, JobRegister]]:
    """A register that fails when a test says so."""
    (tmp_path / "jobs").mkdir()
    database = _FailingOnce(SqliteDatabase(tmp_path / "register.sqlite"))
    register = JobRegister(database, "a test")
    yield database, register
    register.close()


def test_a_job_is_added_although_the_register_fails_at_that_moment(
    failing: tuple[_FailingOnce, JobRegister], tmp_path: Path
) -> None:
    database, register = failing
    submissions = Submissions(register, tmp_path)
    database.fails = 1
    record = submissions.submit(io.BytesIO(JOB), "job.py", None, {})
    assert register.jobs() == [record]
    assert (tmp_path / "jobs" / record.id).is_dir()


def test_a_job_that_was_taken_is_supervised_although_the_register_fails_at_that_moment(
    failing: tuple[_FailingOnce, JobRegister], tmp_path: Path
) -> None:
    database, register = failing
    supervisor = Supervisor(register, tmp_path / "jobs", NoRestart(), SpareDriver("1"))
    supervisor.start()
    try:
        register.add(JobRecord("words-1", "words", JobStatus.CREATED, 1_000, "job.py"))
        database.fails = 3
        supervisor.look_at("words-1")
        _wait_until(lambda: not database.fails)
        _wait_until(lambda: register.job("words-1").status is JobStatus.FAILED)  # its folder is missing
    finally:
        supervisor.close()


def test_submissions_that_wait_hold_up_nothing_else_and_are_few(tmp_path: Path) -> None:
    app = App(tmp_path, allows_submission=True, check_timeout_s=0.5)
    try:
        job = {"files": {"job": ("job.py", b"while True: pass\n")}}
        many = [("POST", "/api/v1/jobs", job)] * (CHECKS_AT_A_TIME + CHECKS_WAITING_MAX + 3)
        reads: list[tuple[str, str, dict[str, Any]]] = [("GET", "/api/v1/jobs", {})] * 5
        answers = app.ask_all([*many, *reads])
        assert sorted(answers[:8]) == [200] * 5 + [429] * 3
        assert answers[8:] == [422] * (CHECKS_AT_A_TIME + CHECKS_WAITING_MAX)
    finally:
        app.close()
