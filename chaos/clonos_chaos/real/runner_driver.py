"""Driver of a scenario's job in a separate process, so that it can be killed like any other.

It writes JSON lines to a pipe: the job's status with the slots of standbys, alarms, and at the end what is left behind.
A file holds its specification. It stops the job at a line on its standard input, and ends when the input is closed.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final, TextIO

import msgspec
import psutil

from clonos.config import JobSettings, SlotKind, resolve_keywords
from clonos.core.coordinator.coordinator import Coordinator
from clonos.core.coordinator.coordinator_effects import Alarm, JobDone
from clonos.core.model.errors import ClonosError
from clonos.io.net.listening import Binding
from clonos.io.net.transport import AddressRewriter
from clonos.io.system.readiness import wait_readable
from clonos.job.deployment import Deployment, open_deployment
from clonos.job.description import graph_of, options_of
from clonos.job.launch import Launched, launch
from clonos.job.results import error_of
from clonos.job.status_view import build_status
from clonos_chaos.attacks.attack_keys import Thief
from clonos_chaos.real.relay import ThroughRelay
from clonos_chaos.real.toxics import ThroughToxiproxy
from clonos_chaos.scenario.scenario_job import make_job
from clonos_standby.driver.driver import Progress

logger = logging.getLogger(__name__)

LOOK_EVERY_S: Final = 0.05
GONE_WITHIN_S: Final = 10.0


class DriverSpec(msgspec.Struct, frozen=True):
    """Specification of the driver. Ports are those of Toxiproxy's API and of the relay; 0: none. ``loot``: folder in
    which attacked slots leave their keys; empty: no attack."""

    job: str
    folder: str
    url: str
    options: dict[str, Any]
    job_options: dict[str, Any]
    resume: bool = False
    toxiproxy_port: int = 0
    relay_port: int = 0
    loot: str = ""


class Rewriters:
    """Sequence of address rewriters."""

    def __init__(self, rewriters: tuple[AddressRewriter, ...]) -> None:
        self.rewriters = rewriters

    def __call__(self, peer: int, address: str) -> str:
        for rewriter in self.rewriters:
            address = rewriter(peer, address)  # type: ignore[arg-type]
        return address


def _open_place(
    rewriters: tuple[AddressRewriter, ...], name: str, settings: JobSettings, session: Any, hash_seed: str
) -> Deployment:
    """Opens the usual place, or one with TCP through proxies."""
    deployment = open_deployment(name, settings, session, hash_seed)
    if not rewriters:
        return deployment
    through = Rewriters(rewriters)
    return replace(deployment, driver_binding=Binding(), slot_binding=Binding(), address_rewriter=through)


class Reporter:
    """Writer of report lines. ``on_progress`` is called in the coordinator's thread, as are queries."""

    def __init__(self, launched: Callable[[], Launched], output: TextIO) -> None:
        self._launched = launched
        self._output = output
        self._alarms: list[dict[str, Any]] = []

    def on_progress(self, progress: Progress) -> None:
        """Records an alarm; all else is in the status."""
        if isinstance(progress, Alarm):
            self._alarms.append({"text": progress.text, **dict(progress.fields)})

    def look(self) -> None:
        """Writes the current status of the job."""
        launched = self._launched()
        status = launched.driver.ask(partial(build_status, launched.job_id, False, ()))
        standbys, with_keepers = launched.driver.ask(_helpers)
        generation = launched.driver.ask(lambda coordinator: coordinator.generation)
        alarms, self._alarms = self._alarms, []
        self.write(
            {
                "status": status,
                "standbys": standbys,
                "with_keepers": with_keepers,
                "generation": generation,
                "alarms": alarms,
            }
        )

    def write(self, line: dict[str, Any]) -> None:
        """Writes one line."""
        self._output.write(msgspec.json.encode(line).decode("utf-8") + "\n")
        self._output.flush()


def _helpers(coordinator: Coordinator) -> tuple[dict[str, list[int]], list[str]]:
    """Returns the slots of each task's standbys and keepers, and the tasks that have keepers."""
    view, name = coordinator.view, coordinator.plan.task_name
    if view is None:
        return {}, []
    helpers: dict[str, list[int]] = {name(p.task): [*p.standbys, *p.keepers] for p in view.placements}
    return helpers, [name(p.task) for p in view.placements if p.keepers]


def _shape(launched: Launched) -> dict[str, Any]:
    plan = launched.image.plan
    return {
        "tasks": [plan.task_name(task) for task in plan.tasks],
        "edges": [
            [plan.task_name(channel.sender), plan.task_name(channel.receiver)]
            for task in plan.tasks
            for channel in plan.outputs[task]
            if channel.receiver is not None
        ],
        "channels": [[channel.sender, channel.receiver] for channel in plan.channels],
        "sources": [plan.task_name(task) for task in plan.tasks if not plan.inputs[task]],
    }


def _drive(spec: DriverSpec, output: TextIO) -> None:
    job = make_job(spec.job, Path(spec.folder), spec.url, spec.job_options)
    settings = resolve_keywords(options_of(job) | spec.options | {"resume": spec.resume})
    rewriters: list[AddressRewriter] = []
    if spec.toxiproxy_port:
        rewriters.append(ThroughToxiproxy(spec.toxiproxy_port))
    if spec.relay_port:
        rewriters.append(ThroughRelay(spec.relay_port))
    if spec.loot:
        rewriters.append(Thief(spec.loot))
    made: list[Launched] = []
    reporter = Reporter(lambda: made[0], output)
    launched = launch(graph_of(job), settings, None, reporter.on_progress, partial(_open_place, tuple(rewriters)))
    made.append(launched)
    try:
        reporter.write({"shape": _shape(launched)})
        launched.driver.start()
        while not launched.driver.result.done():
            reporter.look()
            if wait_readable(sys.stdin.fileno(), LOOK_EVERY_S):
                if not sys.stdin.readline():
                    return  # the runner is gone
                launched.driver.stop(drain=True)
        reporter.look()
        end = launched.driver.result.result()
    finally:
        launched.close()
        launched.deployment.close()
    failure = "" if isinstance(end, JobDone) else str(error_of(job.name, end))
    if failure:
        logger.error("%s", failure)
    has_jvm = settings.run.slots is SlotKind.SPARK
    deadline_s = time.monotonic() + GONE_WITHIN_S
    while (left := _left_behind(has_jvm)) and time.monotonic() < deadline_s:
        time.sleep(LOOK_EVERY_S)
    reporter.write({"end": {"failure": failure, "left": left}})


def _left_behind(has_jvm: bool) -> list[str]:
    """Lists what is left of the closed job. Spark's JVM stays for the next session of this process."""
    here = threading.current_thread()
    threads = [f"thread {one.name} of the driver" for one in threading.enumerate() if one is not here]
    if has_jvm:  # its executors end slowly; py4j does not name its threads
        return [thread for thread in threads if "thread Thread-" not in thread]
    process = psutil.Process()
    sockets = [f"socket {found.laddr} of the driver" for found in process.net_connections(kind="all")]
    children = [f"process {child.pid}, a child of the driver" for child in process.children(recursive=True)]
    return [*threads, *sockets, *children]


def main() -> None:
    """Runs ``python -m clonos_chaos.real.runner_driver SPEC FD``."""
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    spec = msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=DriverSpec)
    with os.fdopen(int(sys.argv[2]), "w", encoding="utf-8") as output:
        try:
            _drive(spec, output)
        except ClonosError as error:
            line = {"end": {"failure": f"{type(error).__name__}: {error}", "left": []}}
            output.write(msgspec.json.encode(line).decode("utf-8") + "\n")


if __name__ == "__main__":
    main()
