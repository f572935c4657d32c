"""The command ``clonos replay FOLDER``."""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
from contextlib import redirect_stdout
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from clonos.core.model.errors import JobError

if TYPE_CHECKING:
    from clonos.job import Job
    from clonos.replay.epoch import Epoch
    from clonos.replay.key_changes import KeyChanges
    from clonos.replay.key_epochs import KeyEpochs
    from clonos.replay.key_timeline import KeyTimeline
    from clonos.replay.replay_report import ReplayReport
    from clonos_services.stand_ins import StandIns

TEXT: Final = "text"
FOLDER: Final = "folder of the record, such as prices.epochs/total-0/17; with --key also of all records of a task"
GO_ON: Final = "go on where the log ends, or with --key and --code where the changed code asks for something else"
HASH_SEED: Final = "PYTHONHASHSEED"


def add_replay(commands: Any) -> None:
    """Adds the command to a parser."""
    command = commands.add_parser("replay", help="repeat a recorded epoch of a task here, under a debugger if asked")
    command.add_argument("folder", metavar="FOLDER", help=FOLDER)
    others = command.add_mutually_exclusive_group()  # what the results are compared with
    code_help = "compare the results with those of changed code, or give a record its code that has none"
    others.add_argument("--code", metavar="FILE[:NAME]", help=code_help)
    stops = command.add_mutually_exclusive_group()
    stops.add_argument("--at", metavar="WHERE", help="debug at record=N, key=K, step=NAME or an expression: 'n > 7'")
    stops.add_argument("--before-failure", action="store_true", help="debug in front of the record that raised")
    stops.add_argument("--key", metavar="KEY", help="show what one key has gone through: records, calls and state")
    stops.add_argument("--step", action="store_true", help="go forwards and backwards by records, and see the state")
    command.add_argument("--pdb", action="store_true", help="debug where user code has raised")
    others.add_argument(
        "--elsewhere", action="store_true", help="compare with replays with other hashes, time zones and folders"
    )
    command.add_argument("--go-on", action="store_true", help=GO_ON)
    command.add_argument(
        "--stand-ins", metavar="FILE", help="answer calls of --go-on by services and http of this Python file"
    )
    command.add_argument(
        "--allow", metavar="KIND,...", default="", help="let user code ask time, random, network, processes or files"
    )
    command.add_argument("--format", choices=(TEXT, "json"), default=TEXT, help="text (default) or json")
    command.add_argument("--trust", action="store_true", help="run the code in a record that another user owns")
    command.add_argument("--anyway", action="store_true", help="replay on another version of Python or clonos")


def run_replay(parsed: argparse.Namespace) -> int:
    """Replays a record and prints the report. Returns 0 if the task has repeated itself, 1 if anything differs.

    Raises: JobError: the options do not fit together, or the replay cannot begin.
    """
    from clonos.replay.key_epochs import records_in

    if parsed.key is not None and parsed.pdb:
        raise JobError(
            "--key shows one key, and --pdb opens the debugger: give one of them, or --at key=... to debug it"
        )
    folders = [parsed.folder] if parsed.key is None else records_in(parsed.folder)
    epoch = _loaded(parsed, folders[-1])
    if epoch.hash_seed and os.environ.get(HASH_SEED) != epoch.hash_seed:
        return _with_hash_seed(epoch, parsed)
    return _replayed(parsed, epoch) if len(folders) == 1 else _followed_over(parsed, folders)


def _loaded(parsed: argparse.Namespace, folder: str) -> Epoch:
    from clonos.replay.loading import load_epoch

    return load_epoch(folder, trust=parsed.trust, anyway=parsed.anyway)


def _followed_over(parsed: argparse.Namespace, folders: list[str]) -> int:
    from clonos.replay.key_epochs import course_over

    if parsed.code is not None or parsed.go_on or parsed.elsewhere:
        raise JobError(f"--key over several epochs takes no other code: name one of them, such as {folders[-1]}")
    with redirect_stdout(sys.stderr if parsed.format != TEXT else sys.stdout):  # what user code prints
        found = course_over(folders, partial(_loaded, parsed), parsed.key, _allowed(parsed))
    _print(found, parsed.format)
    return 0 if found.is_as_recorded else 1


def _allowed(parsed: argparse.Namespace) -> frozenset[str]:
    return frozenset(filter(None, parsed.allow.split(",")))


def _with_hash_seed(epoch: Epoch, parsed: argparse.Namespace) -> int:
    """Runs the command in a process with the hash seed of the record, which Python takes at its start only."""
    handler = signal.signal(signal.SIGINT, signal.SIG_IGN)  # it is for the other process
    try:
        command = [sys.executable, "-m", "clonos.cli", *parsed.command_line]
        return subprocess.run(command, env={**os.environ, HASH_SEED: epoch.hash_seed}).returncode
    finally:
        signal.signal(signal.SIGINT, handler)


def _replayed(parsed: argparse.Namespace, epoch: Epoch) -> int:
    from clonos.replay.debugging import examine, without_frames
    from clonos.replay.replay_session import hook_of, report_on, with_code
    from clonos.replay.stepping import Stepper

    allowed = _allowed(parsed)
    stand_ins = _stand_ins(parsed)
    epoch, code = with_code(epoch, parsed.code)
    if parsed.step:
        Stepper(epoch, allowed).run()
        return 0
    if parsed.key is not None:
        return _followed_key(parsed, epoch, code, allowed, stand_ins)
    with redirect_stdout(sys.stderr if parsed.format != TEXT else sys.stdout):  # what user code prints
        hook = hook_of(epoch, code, allowed, parsed.at, parsed.before_failure)
        report = report_on(epoch, code, allowed, elsewhere=parsed.elsewhere, hook=hook, go_on=stand_ins)
    if report.replayed.was_quit:
        return 0
    _print(report, parsed.format)
    if parsed.pdb and report.error is not None:
        if advice := without_frames(report.error, epoch.head.failure):
            print(f"--pdb: {advice}.", file=sys.stderr)
        else:
            examine(report.error)
    has_failed_since = report.replayed.gone_on is not None and report.error is not None
    return 0 if report.is_as_recorded and not has_failed_since else 1


def _followed_key(
    parsed: argparse.Namespace,
    epoch: Epoch,
    code: Job | str | None,
    allowed: frozenset[str],
    stand_ins: StandIns | None,
) -> int:
    from clonos.replay.isolation import NETWORK
    from clonos.replay.key_changes import changes_of_key
    from clonos.replay.key_timeline import timeline_of
    from clonos.replay.replay_session import changed_image
    from clonos.replay.what_if import WhatIf

    if stand_ins is not None and code is None:
        raise JobError("--key ends with the log: give --go-on with --code, which may ask for something else")
    if parsed.elsewhere:
        raise JobError("--key shows one key, and --elsewhere compares all results: give one of them")
    found: KeyTimeline | KeyChanges
    with redirect_stdout(sys.stderr if parsed.format != TEXT else sys.stdout):  # what user code prints
        if code is None:
            found = timeline_of(epoch, parsed.key, allowed)
        else:
            what_if = WhatIf(stand_ins, NETWORK in allowed)
            found = changes_of_key(epoch, parsed.key, allowed, changed_image(epoch, code), what_if)
    _print(found, parsed.format)
    return 0 if found.is_as_recorded else 1


def _stand_ins(parsed: argparse.Namespace) -> StandIns | None:
    from clonos.replay.going_on import stand_ins_of
    from clonos_services.stand_ins import StandIns

    if parsed.stand_ins is not None and not parsed.go_on:
        raise JobError("--stand-ins answers calls behind the end of the log: give --go-on with it")
    if parsed.go_on and parsed.step:
        raise JobError("--step ends with the log: give --go-on or --step")
    if not parsed.go_on:
        return None
    return StandIns() if parsed.stand_ins is None else stand_ins_of(parsed.stand_ins)


def _print(report: ReplayReport | KeyTimeline | KeyChanges | KeyEpochs, how: str) -> None:
    print(report if how == TEXT else json.dumps(report.to_json(), indent=2))
