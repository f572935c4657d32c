"""Benchmark: conversations of an agent on Clonos, DBOS and LangGraph, in one run on this machine.

Each engine runs the agent of its own file, with the same client, against the same server. First without a kill, with a
server that thinks for a moment: the time from one reply to the next request of its conversation is the engine's own
part, with that of the client, which ``bare`` has alone. Then the process of the agent is killed again and again: what
the server was asked more often than the conversations needed was repeated.
"""

from __future__ import annotations

import ast
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Final

import psutil

from benchmarks.agents.shop import PIDS
from benchmarks.harness.ab_session import Session
from benchmarks.peers.running import ENVIRONMENTS, ROOT
from clonos_chaos.project.conversing.talk_server import TalkServer, talk_server

ENGINES: Final = ("bare", "clonos", "dbos", "langgraph")
CONVERSATIONS: Final = 24
TURNS: Final = 4
OPEN: Final = 8
CALLS_A_TURN: Final = 3
THINKS_S: Final = (0.05, 0.05)
KILLS: Final = 10
MORE_WITH_KILLS: Final = 4
"""Times as many conversations, so that the kills come before their end."""

KILL_AFTER_S: Final = (0.7, 1.5)
LIMIT_S: Final = 120.0
LOOK_EVERY_S: Final = 0.05
MODES: Final = (("reply", 1),)


@dataclass(frozen=True, slots=True)
class Ran:
    """A run of an agent. ``cpu_s``: of all its processes since the first reply."""

    server: TalkServer
    seconds: float
    cpu_s: float
    kills: int


class AgentFailed(Exception):
    """An engine has not ended its conversations."""


def run(session: Session) -> None:
    """Measures each engine that is installed."""
    conversations = CONVERSATIONS // 3 if session.is_quick else CONVERSATIONS
    for engine in ENGINES:
        python = Path(sys.executable) if engine in ("bare", "clonos") else ENVIRONMENTS / engine / "bin/python"
        if not python.exists():
            session.leave_out(engine, f"benchmarks/peers/setup {engine} makes its environment")
            continue
        try:
            _measure(session, engine, python, conversations)
        except (AgentFailed, subprocess.TimeoutExpired) as error:
            session.fail(engine, error)


def _measure(session: Session, engine: str, python: Path, conversations: int) -> None:
    session.figure(f"{engine}: code", lines_of(Path(__file__).with_name(f"{engine}_agent.py")), "lines")
    ran = _ran(engine, python, conversations, kills=0)
    own_ms = gaps_ms(ran.server)
    session.figure(f"{engine}: from reply to next request, median", statistics.median(own_ms), "ms")
    session.figure(f"{engine}: from reply to next request, 99 %", own_ms[int(len(own_ms) * 0.99)], "ms")
    begun_s = min(came for times in ran.server.times.values() for came, _ in times)
    ended_s = max(sent for times in ran.server.times.values() for _, sent in times)
    session.figure(f"{engine}: calls", conversations * TURNS * CALLS_A_TURN / (ended_s - begun_s), "/s")
    session.figure(f"{engine}: conversations", conversations / ran.cpu_s, "/s of a core")
    if engine == "bare":
        return
    conversations *= MORE_WITH_KILLS
    killed = _ran(engine, python, conversations, kills=2 if session.is_quick else KILLS)
    needed = conversations * TURNS
    session.figure(f"{engine}: kills", killed.kills, "")
    session.figure(f"{engine}: model calls repeated", len(killed.server.paid) - 2 * needed, "")
    refunds = sum(map(len, killed.server.refunds.values()))
    session.figure(f"{engine}: effects made twice", refunds - needed, "")


def gaps_ms(server: TalkServer) -> list[float]:
    """Returns the times from a reply to the next request of its conversation, sorted."""
    return sorted(
        1_000 * (after[0] - before[1]) for times in server.times.values() for before, after in pairwise(sorted(times))
    )


def _ran(engine: str, python: Path, conversations: int, kills: int) -> Ran:
    folder = Path(tempfile.mkdtemp(prefix="agents-"))
    (folder / PIDS).mkdir()
    try:
        with talk_server(1, MODES, THINKS_S) as server:
            run = AgentRun(engine, python, folder, server, conversations)
            began_s = time.monotonic()
            try:
                made = run.complete(kills)
            finally:
                run.close()
            wanted = conversations * TURNS
            if len(server.refunds) != wanted or len(server.paid) < 2 * wanted:
                raise AgentFailed(f"{len(server.refunds)} of {wanted} orders were refunded")
            return Ran(server, time.monotonic() - began_s, run.cpu_s - run.cpu_before_s, made)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class AgentRun:
    """Runs an agent to its end, and begins it again when its process has died. ``cpu_s``: of all its processes, and
    ``cpu_before_s`` until the first reply."""

    def __init__(self, engine: str, python: Path, folder: Path, server: TalkServer, conversations: int) -> None:
        self._command = [
            *(str(python), "-m", f"benchmarks.agents.{engine}_agent"),
            *(server.url, str(folder), str(conversations), str(TURNS), str(OPEN)),
        ]
        self._folder, self._server, self._rng = folder, server, Random(1)
        self._cpu_s: dict[int, float] = {}
        self.cpu_before_s = 0.0
        self._begin()

    def _begin(self) -> None:
        self._log = (self._folder / "log").open("ab")
        environment = os.environ | {"PYTHONPATH": str(ROOT)}
        self._process = subprocess.Popen(self._command, cwd=ROOT, env=environment, stdout=self._log, stderr=self._log)

    def complete(self, kills: int) -> int:
        """Waits for the end, and kills the process of the agent so often. Returns how often it did.

        Raises: AgentFailed.
        """
        made, kill_at_s, before = 0, self._next_kill_s(), len(self._server.paid)
        deadline_s = time.monotonic() + LIMIT_S
        while (code := self._process.poll()) is None or code == -signal.SIGKILL:
            if code is not None:
                self._log.close()
                self._begin()
            self._note_cpu()
            has_gone_on = len(self._server.paid) > before
            if made < kills and has_gone_on and time.monotonic() >= kill_at_s and self._kill():
                made, before, kill_at_s = made + 1, len(self._server.paid), self._next_kill_s()
            if time.monotonic() > deadline_s:
                raise AgentFailed(f"it has not ended within {LIMIT_S:g} s")
            time.sleep(LOOK_EVERY_S)
        if code:
            raise AgentFailed((self._folder / "log").read_text("utf-8", "replace")[-2_000:])
        return made

    def _next_kill_s(self) -> float:
        return time.monotonic() + self._rng.uniform(*KILL_AFTER_S)

    def _kill(self) -> bool:
        """Kills a process in which the agent runs; returns whether there was one."""
        found = [int(file.name) for file in (self._folder / PIDS).iterdir() if psutil.pid_exists(int(file.name))]
        if not found:
            return False
        pid = self._rng.choice(sorted(found))
        os.kill(pid, signal.SIGKILL)
        (self._folder / PIDS / str(pid)).unlink()
        return True

    def _note_cpu(self) -> None:
        try:
            process = psutil.Process(self._process.pid)
            for each in (process, *process.children(recursive=True)):
                times = each.cpu_times()
                self._cpu_s[each.pid] = times.user + times.system
        except psutil.NoSuchProcess:
            return
        if not self._server.paid:
            self.cpu_before_s = self.cpu_s

    @property
    def cpu_s(self) -> float:
        """Returns the processor time of all processes."""
        return sum(self._cpu_s.values())

    def close(self) -> None:
        """Ends the process, if it runs, and those that it has started."""
        family = []
        if self._process.poll() is None:
            process = psutil.Process(self._process.pid)
            family = [process, *process.children(recursive=True)]
            for each in family:
                each.kill()
        psutil.wait_procs(family, LIMIT_S)
        self._log.close()


def lines_of(file: Path) -> int:
    """Counts the lines of code of a file, without comments, texts that document, and empty lines."""
    tree = ast.parse(file.read_text("utf-8"))
    documented = {
        line
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    lines = enumerate(file.read_text("utf-8").splitlines(), 1)
    return sum(bool(line.strip()) and not line.lstrip().startswith("#") and n not in documented for n, line in lines)
