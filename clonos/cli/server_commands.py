"""Commands around a server: to run it, to send it a job, and to watch and end its jobs."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from clonos.cli.pairs import pairs
from clonos.core.model.errors import needing_extra

if TYPE_CHECKING:
    from clonos.cli.server_client import JobsClient, ServerClient

ENDED: Final = 0
JOB_FAILED: Final = 1
ENDED_STATUSES: Final = ("FAILED", "CANCELED", "FINISHED")
LOOK_EVERY_S: Final = 0.5
DEFAULT_PORT: Final = 8480
SLOTS_HELP: Final = (
    "where tasks run: spark, process (child processes), thread, or auto (default): Spark where it is installed"
)


def add_commands(commands: Any) -> None:
    """Adds the commands to a parser."""
    _add_serve(commands)
    submit = _add(commands, "submit", "send a job to a server, which runs it", has_job=False)
    submit.add_argument("file", metavar="FILE", help="a Python file, or a .zip or .tar.gz archive")
    submit.add_argument("--file", dest="target", metavar="FILE[:NAME]", help="the file in the archive that has the job")
    submit.add_argument("--slots", metavar="KIND", help=SLOTS_HELP)
    submit.add_argument("--from-savepoint", metavar="URL", help="begin with the state of a savepoint")
    submit.add_argument("--option", metavar="KEY=VALUE", action="append", default=[], help="set an option of the job")
    _add(commands, "jobs", "list the jobs of a server, or those of clonos run", has_job=False)
    _add(commands, "status", "show a job and its tasks")
    logs = _add(commands, "logs", "print the log of a job")
    logs.add_argument("-f", "--follow", action="store_true", help="go on until the job has ended")
    savepoint = _add(commands, "savepoint", "take a savepoint of a job")
    savepoint.add_argument("path", nargs="?", metavar="URL", help="where to; without it the job decides")
    savepoint.add_argument("--no-wait", action="store_true", help="return when the driver has accepted the request")
    rescale = _add(commands, "rescale", "change how many tasks steps of a running job have, and where its tasks run")
    rescale.add_argument(
        "widths", nargs="*", metavar="STEP=TASKS", help="such as count=4; several steps change together"
    )
    rescale.add_argument(
        "--place-anew", action="store_true", help="spread all tasks over the processes that the job has now"
    )
    rescale.add_argument("--no-wait", action="store_true", help="return when the driver has accepted the request")
    capture = _add(commands, "capture", "write a record of a task's epoch, while the job goes on")
    capture.add_argument("--task", required=True, metavar="TASK", help="such as count/0")
    capture.add_argument("--folder", metavar="FOLDER", help="below which; without it beside the store")
    threads = _add(commands, "threads", "show what the threads of a job are at, also of a task that is stuck")
    threads.add_argument("--task", metavar="TASK", help="the threads of this task only, such as count/0")
    flame = _add(commands, "flame", "sample what a task spends its time with, and draw it as a flame graph")
    flame.add_argument("--task", required=True, metavar="TASK", help="such as count/0")
    flame.add_argument("--seconds", type=float, default=5.0, metavar="S", help="for how long (default: 5, up to 15)")
    flame.add_argument("--out", type=Path, metavar="FILE.svg", help="the picture; without it folded stacks are printed")
    stop = _add(commands, "stop", "stop a job with a final checkpoint")
    stop.add_argument("--savepoint", metavar="URL", help="take a savepoint there before")
    stop.add_argument("--no-wait", action="store_true", help="return when the server has accepted the request")
    delete = _add(commands, "delete", "remove a job of a server that has ended")
    delete.add_argument("--files", action="store_true", help="delete its folder too: store, log, relative outputs")
    cancel = _add(commands, "cancel", "end a job at once")
    cancel.add_argument("--no-wait", action="store_true", help="return when the server has accepted the request")


def _add(commands: Any, name: str, text: str, has_job: bool = True) -> argparse.ArgumentParser:
    command: argparse.ArgumentParser = commands.add_parser(name, help=text)
    if has_job:
        command.add_argument("job", metavar="JOB", help="the id of a job, or its name or store if no other job has it")
    command.add_argument("--server", metavar="URL", help=f"default: CLONOS_SERVER, or http://127.0.0.1:{DEFAULT_PORT}")
    command.add_argument("--token", metavar="TOKEN", help="default: CLONOS_TOKEN; @FILE reads it from a file")
    command.add_argument("--json", action="store_true", help="print JSON")
    return command


def _add_serve(commands: Any) -> None:
    serve = commands.add_parser("serve", help="run a server for jobs")
    serve.add_argument("--folder", type=Path, default=Path(".clonos-server"), metavar="F", help="where jobs are kept")
    serve.add_argument("--port", type=int, default=DEFAULT_PORT, metavar="P", help=f"default: {DEFAULT_PORT}; 0: any")
    serve.add_argument("--host", default="127.0.0.1", metavar="ADDRESS", help="where to listen (default: loopback)")
    serve.add_argument(
        "--name", action="append", default=[], metavar="HOST", help="another name by which clients may call; repeatable"
    )
    serve.add_argument("--token", metavar="TOKEN", help="for everything; default: CLONOS_TOKEN, or a fresh one; @FILE")
    serve.add_argument("--read-token", metavar="TOKEN", help="for reading only; default: CLONOS_READ_TOKEN; @FILE")
    serve.add_argument("--allow-submit", action="store_true", help="take jobs over the network: they run code here")
    serve.add_argument("--register", metavar="PLACE", help="file of SQLite, or postgresql://user@host/database")
    serve.add_argument("--tls-cert", type=Path, metavar="FILE", help="certificate chain in PEM")
    serve.add_argument("--tls-key", type=Path, metavar="FILE", help="its private key in PEM")
    serve.add_argument(
        "--trusted-proxy",
        action="append",
        default=[],
        metavar="ADDRESS",
        help="address or network of a proxy, which may have all connections for itself; repeatable",
    )
    serve.add_argument(
        "--restart-strategy",
        default="fixed-delay",
        metavar="NAME[:KEY=VALUE,...]",
        help="none, fixed-delay (default), exponential-delay or failure-rate, for the drivers of jobs",
    )


def _serve(parsed: argparse.Namespace) -> int:
    with needing_extra("clonos serve", "server"):
        from clonos.server.serving import ServeOptions, serve, show_on_standard_error
    options = ServeOptions(
        folder=parsed.folder.resolve(),
        port=parsed.port,
        host=parsed.host,
        names=tuple(parsed.name),
        token=parsed.token,
        read_token=parsed.read_token,
        allow_submit=parsed.allow_submit,
        register=parsed.register,
        tls_cert=parsed.tls_cert,
        tls_key=parsed.tls_key,
        trusted_proxies=tuple(parsed.trusted_proxy),
        restart_strategy=parsed.restart_strategy,
    )
    serve(options, show_on_standard_error)
    return ENDED


# ---------------------------------------------------------------------- requests


def _client(parsed: argparse.Namespace) -> ServerClient:
    from clonos.cli.server_client import ServerClient

    return ServerClient(parsed.server, parsed.token)


def _client_of(parsed: argparse.Namespace) -> JobsClient:
    """Returns the client of a job: a job of ``clonos run`` on this machine, unless a server is named, or else a job
    of a server. Raises: RequestFailed: no job is called so, or several are."""
    from clonos.cli.server_client import SERVER_VARIABLE, TOKEN_VARIABLE, RequestFailed

    if parsed.server is not None or parsed.token is not None:
        return _client(parsed)
    from clonos.cli.run_client import RunClient
    from clonos.job.run_register import runs_called

    found = runs_called(parsed.job)
    if len(found) > 1:
        stores = ", ".join(record.store for _, record in found)
        text = f"clonos run runs {len(found)} jobs called {parsed.job!r}: name one by its store: {stores}."
        raise RequestFailed(409, text)
    has_server = TOKEN_VARIABLE in os.environ or SERVER_VARIABLE in os.environ
    if found and (found[0][1].lives or not has_server):
        return RunClient(*found[0])
    if has_server:
        return _client(parsed)
    raise RequestFailed(
        404,
        f"clonos run has no job {parsed.job!r} on this machine: clonos jobs lists them."
        f" For a job of a server, give --token, or set {TOKEN_VARIABLE}.",
    )


def _submit(parsed: argparse.Namespace) -> int:
    options = pairs(parsed.option)
    if parsed.slots is not None:
        options["slots"] = parsed.slots
    if parsed.from_savepoint is not None:
        options["from_savepoint"] = parsed.from_savepoint
    job = _client(parsed).submit(Path(parsed.file), parsed.target, options)
    print(json.dumps(job) if parsed.json else job["id"])
    return ENDED


def _jobs(parsed: argparse.Namespace) -> int:
    from clonos.cli.server_client import SERVER_VARIABLE, TOKEN_VARIABLE

    is_server = parsed.server is not None or parsed.token is not None
    if is_server or TOKEN_VARIABLE in os.environ or SERVER_VARIABLE in os.environ:
        document = _client(parsed).get("/jobs")
    else:
        document = {"jobs": list(_jobs_of_runs())}
    if parsed.json:
        print(json.dumps(document))
        return ENDED
    from clonos.cli.server_tables import jobs_table, show

    show(jobs_table(document["jobs"]))
    return ENDED


def _jobs_of_runs() -> Iterator[dict[str, Any]]:
    """Yields the documents of the jobs of ``clonos run``; of one whose process is gone, what its record has."""
    from clonos.cli.run_client import RunClient, document_of_dead
    from clonos.cli.server_client import RequestFailed
    from clonos.job.run_register import read_runs

    for file, record in read_runs():
        try:
            yield RunClient(file, record).get(f"/jobs/{record.job_id}")
        except RequestFailed as error:
            yield document_of_dead(record, str(error))


def _status(parsed: argparse.Namespace) -> int:
    client = _client_of(parsed)
    document = client.get(f"/jobs/{client.find(parsed.job)}/status")
    if parsed.json:
        print(json.dumps(document))
        return ENDED
    from clonos.cli.server_tables import jobs_table, show, status_lines, tasks_table

    show(jobs_table([document["job"]]), *status_lines(document), tasks_table(document["tasks"]))
    return ENDED


def _logs(parsed: argparse.Namespace) -> int:
    client = _client_of(parsed)
    job_id = client.find(parsed.job)
    for line in lines_until_end(client, job_id, client.log_lines(job_id), has_ended=not parsed.follow):
        if parsed.json:
            print(json.dumps(line), flush=True)
        else:
            print(f"{line['at']} {line['level']} {line['logger']}: {line['text']}", flush=True)
    return ENDED


def lines_until_end(
    client: JobsClient, job_id: str, lines: Iterator[dict[str, Any] | None], has_ended: bool = False
) -> Iterator[dict[str, Any]]:
    """Yields the lines of a job's log, also those that appear until it ends. ``has_ended``: those there are now."""
    for line in lines:
        if line is not None:
            yield line
        elif has_ended:
            return
        else:
            time.sleep(LOOK_EVERY_S)
            has_ended = client.get(f"/jobs/{job_id}")["status"] in ENDED_STATUSES  # then once more for the last lines


def _savepoint(parsed: argparse.Namespace) -> int:
    """Requests a savepoint, waits until it is written unless told otherwise, and prints its place."""
    from clonos.cli.server_client import RequestFailed

    client = _client_of(parsed)
    job_id = client.find(parsed.job)
    lines = client.log_lines(job_id)
    while next(lines) is not None:  # lines before the request
        pass
    reply = client.post(f"/jobs/{job_id}/savepoint", {"path": parsed.path})
    place = reply["savepoint"]
    if parsed.no_wait:
        _report(parsed, reply, f"a savepoint of {parsed.job} was requested: {place}")
        return ENDED
    for line in lines_until_end(client, job_id, lines):
        if f" written to {place}: checkpoint " in line["text"]:
            print(json.dumps(reply) if parsed.json else place)
            return ENDED
        if line["text"].startswith(f"no savepoint was written to {place}: "):
            raise RequestFailed(409, line["text"])
    raise RequestFailed(409, f"{job_id} has ended before the savepoint {place} was written.")


def _capture(parsed: argparse.Namespace) -> int:
    """Requests a record of a task's epoch, prints its folder, and says what it lacks if it is on this machine."""
    from clonos.io.epochs.record_reader import lacking

    client = _client_of(parsed)
    job_id = client.find(parsed.job)
    reply = client.post(f"/jobs/{job_id}/capture", {"task": parsed.task, "folder": parsed.folder})
    print(json.dumps(reply) if parsed.json else reply["epoch"])
    for missing in lacking(Path(reply["epoch"])):
        print(f"Note: the record lacks {missing}", file=sys.stderr)
    return ENDED


def _threads(parsed: argparse.Namespace) -> int:
    """Prints a thread dump."""
    from clonos.job.stack_documents import dump_lines

    client = _client_of(parsed)
    document = client.post(f"/jobs/{client.find(parsed.job)}/threads", {"task": parsed.task})
    print(json.dumps(document) if parsed.json else "\n".join(dump_lines(document)))
    return ENDED


def _flame(parsed: argparse.Namespace) -> int:
    """Samples a task, and draws or prints what was seen."""
    from clonos.job.stack_documents import flame_svg

    client = _client_of(parsed)
    asked = {"task": parsed.task, "seconds": parsed.seconds}
    document = client.post(f"/jobs/{client.find(parsed.job)}/flame", asked)
    if parsed.out is not None:
        parsed.out.write_text(flame_svg(document), "utf-8")
        _report(parsed, document, f"{document['samples']} samples of {parsed.task} are drawn in {parsed.out}")
    else:
        sys.stdout.write(json.dumps(document) + "\n" if parsed.json else document["folded"])
    return ENDED


def is_done(job_id: str, number: int, found: Mapping[str, Any] | None, has_ended: bool) -> bool:
    """Returns whether the request of a change with this number is done. ``found``: the last change of the job.

    Raises: RequestFailed: it was given up, the job has ended before, or nobody knows, because its driver has.
    """
    from clonos.cli.server_client import RequestFailed
    from clonos.status import REQUESTS_PER_DRIVER, RESCALE_ENDED_TEXTS, RescalePhase

    if found is None or found["number"] // REQUESTS_PER_DRIVER != number // REQUESTS_PER_DRIVER:
        text = f"{job_id} has ended, or its driver has started again since: clonos status {job_id} shows its tasks."
        raise RequestFailed(409, text)
    if reason := found["refusals"].get(str(number)):
        raise RequestFailed(409, f"{job_id} goes on as before: {reason}.")
    if found["number"] > number or found["phase"] == RescalePhase.DONE:
        return True
    if has_ended:
        raise RequestFailed(409, f"{job_id} has ended: {RESCALE_ENDED_TEXTS[RescalePhase(found['phase'])]}.")
    return False


def _rescale(parsed: argparse.Namespace) -> int:
    """Requests other widths and places, and waits until the tasks have them unless told otherwise."""
    from clonos.cli.server_client import RequestFailed
    from clonos.job.continuing.start_widths import widths_of

    asked = widths_of(parsed.widths)
    if not asked and not parsed.place_anew:
        raise RequestFailed(400, "nothing to change: name steps, such as count=4, or give --place-anew.")
    if (without := next((step for step, tasks in asked.items() if tasks < 1), None)) is not None:
        raise RequestFailed(400, f"{without} cannot have 0 tasks: give 1 or more. clonos stop ends the whole job.")
    client = _client_of(parsed)
    job_id = client.find(parsed.job)
    reply = client.post(f"/jobs/{job_id}/rescale", {"widths": asked, "place_anew": parsed.place_anew})
    wanted = ", ".join(f"{step} {reply['widths'][step]}" for step in asked)
    if parsed.no_wait:
        what = f"other numbers of tasks of {parsed.job} were requested: {wanted}"
        _report(parsed, reply, what if asked else f"other places of the tasks of {parsed.job} were requested")
        return ENDED
    while reply["number"]:
        status = client.get(f"/jobs/{job_id}/status")
        if is_done(job_id, reply["number"], status["rescale"], status["job"]["status"] in ENDED_STATUSES):
            break
        time.sleep(LOOK_EVERY_S)
    done = f"{job_id} has these numbers of tasks: {wanted}" if asked else f"the tasks of {job_id} are placed anew"
    _report(parsed, reply, done)
    return ENDED


def _stop(parsed: argparse.Namespace) -> int:
    return _end(parsed, "stop", {"savepoint": parsed.savepoint, "drain": True})


def _delete(parsed: argparse.Namespace) -> int:
    client = _client(parsed)
    job_id = client.find(parsed.job)
    reply = client.delete(f"/jobs/{job_id}", files=str(parsed.files).lower())
    _report(parsed, reply, f"{job_id} was removed from the server{' with its folder' if parsed.files else ''}")
    return ENDED


def _cancel(parsed: argparse.Namespace) -> int:
    return _end(parsed, "cancel", {})


def _end(parsed: argparse.Namespace, verb: str, body: dict[str, object]) -> int:
    """Requests the end of a job, and waits for it unless told otherwise."""
    client = _client_of(parsed)
    job_id = client.find(parsed.job)
    reply = client.post(f"/jobs/{job_id}/{verb}", body)
    if parsed.no_wait:
        _report(parsed, reply, f"the server has accepted to {verb} {job_id}")
        return ENDED
    while (job := client.get(f"/jobs/{job_id}"))["status"] not in ENDED_STATUSES:
        time.sleep(LOOK_EVERY_S)
    error = f": {job['error']}" if job["error"] else ""
    _report(parsed, job, f"{job_id} is {job['status']} (checkpoint {job['checkpoint']}){error}")
    return JOB_FAILED if job["status"] == "FAILED" else ENDED


def _report(parsed: argparse.Namespace, document: object, sentence: str) -> None:
    if parsed.json:
        print(json.dumps(document))
    else:
        print(sentence, file=sys.stderr)


COMMANDS: Final[dict[str, Callable[[argparse.Namespace], int]]] = {
    "serve": _serve,
    "submit": _submit,
    "jobs": _jobs,
    "status": _status,
    "logs": _logs,
    "savepoint": _savepoint,
    "rescale": _rescale,
    "capture": _capture,
    "threads": _threads,
    "flame": _flame,
    "stop": _stop,
    "cancel": _cancel,
    "delete": _delete,
}
