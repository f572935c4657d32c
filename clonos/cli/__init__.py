"""The command line: ``clonos init``, ``run``, ``dev``, ``explain``, ``check``, ``doctor``, ``state``, ``history``,
``errors``, ``replay``, ``demo``, ``chaos``, ``completion``, and the commands of a server.

Exit codes:
  0    the job has finished, or was stopped with a final checkpoint (demo, chaos: no error was found)
  1    the job failed by its own fault (demo, chaos: an error was found)
  2    the command line is invalid
  3    the environment is at fault: disks, networks, stores, Java
  4    this library or a peer is at fault
  130  a second signal aborted the job, or the first came before it had begun

An error of this library is printed as one message, without a traceback.
"""

from __future__ import annotations

import argparse
import importlib
import logging
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import clonos
from clonos.cli.checking.check_command import add_check, run_check
from clonos.cli.error_commands import add_errors
from clonos.cli.history_commands import add_history
from clonos.cli.log_lines import LOG_FORMATS, log_to_console, report
from clonos.cli.pairs import pairs
from clonos.cli.replay_command import add_replay, run_replay
from clonos.cli.server_commands import COMMANDS as SERVER_COMMANDS
from clonos.cli.server_commands import SLOTS_HELP, add_commands
from clonos.cli.state_commands import add_state
from clonos.config import SlotKind, chosen_slots, resolve_settings
from clonos.core.model.errors import (
    SHORTAGE_ADVICE,
    ClonosError,
    EnvironmentFault,
    JobError,
    full_report,
    is_shortage,
    needing_extra,
    short_report,
)
from clonos.io.process.fork_server_process import fork_server_ahead
from clonos.io.system.closed_pipes import discard, is_closed
from clonos.io.system.collections_paused import collect_rarely
from clonos.job.script.exact_parser import ExactParser
from clonos.job.script.job_file import load_job, put_on_path
from clonos.kernels.choice import kernels_in_use

if TYPE_CHECKING:
    from clonos.config import RunOptions

ENDED: Final = 0
JOB_AT_FAULT: Final = 1
ENVIRONMENT_AT_FAULT: Final = 3
WE_ARE_AT_FAULT: Final = 4
ABORTED: Final = 130
PORT_MAX: Final = 65_535
SHELLS: Final = ("bash", "zsh", "fish")
CHAOS_COMMANDS: Final = ("run", "seeds", "soak", "rescales", "conversations", "all")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code. ``arguments``: those of the process when not given."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given[:1] == ["chaos"] and given[1:2] and given[1] in CHAOS_COMMANDS:
        return _guarded(lambda: _chaos(given[1], given[2:]))
    parser = _parser()
    if "_ARGCOMPLETE" in os.environ:
        from argcomplete import autocomplete

        autocomplete(parser)  # ends the process
    parsed, unknown = parser.parse_known_args(given)
    if parsed.command == "rescale":  # argparse takes what stands before an option alone
        parsed.widths += [each for each in unknown if "=" in each and not each.startswith("-")]
        unknown = [each for each in unknown if each not in parsed.widths]
    if unknown:
        parser.refuse(unknown, parsed.command)
    parsed.command_line = given
    keeps_lines = parsed.command == "run" or getattr(parsed, "ui", False)
    log_to_console(parsed.verbose, parsed.log_format, keeps_lines)
    return _guarded(lambda: COMMANDS[parsed.command](parsed), parsed.verbose)


def exit_code_of(error: ClonosError) -> int:
    """Returns the exit code for an error, by whose fault it is: 1 the job's, 3 the environment's, 4 the library's or a
    peer's."""
    if isinstance(error, JobError):
        return JOB_AT_FAULT
    return ENVIRONMENT_AT_FAULT if isinstance(error, EnvironmentFault) else WE_ARE_AT_FAULT


def _guarded(command: object, is_verbose: bool = False) -> int:
    assert callable(command)
    try:
        code = int(command())
        sys.stdout.flush()
        return code
    except ClonosError as error:
        report(f"clonos: {full_report(error) if is_verbose else short_report(error, '-v')}", logging.ERROR)
        return exit_code_of(error)
    except BrokenPipeError:
        if not is_closed(sys.stdout):
            raise
        discard(sys.stdout)  # its reader, such as head, has what it wants
        return ENDED
    except (MemoryError, OSError, RuntimeError) as error:
        if is_verbose or not is_shortage(error):
            raise
        report(f"clonos: {type(error).__name__}: {str(error) or 'no memory'}. {SHORTAGE_ADVICE}", logging.ERROR)
        return ENVIRONMENT_AT_FAULT
    except KeyboardInterrupt:
        return ABORTED


def _run(parsed: argparse.Namespace) -> int:
    put_on_path(parsed.job)
    with fork_server_ahead(_known_options(parsed)):  # before the imports that take the driver as long
        from clonos.cli.console import run_on_console
        from clonos.job.continuing.restart_strategy import restart_strategy

        collect_rarely()
        strategy = restart_strategy(parsed.restart_strategy)
        page_port = _page_port(parsed)
        result = run_on_console(load_job(parsed.job), _options(parsed), parsed.ui, page_port, strategy)
    return ABORTED if result.was_aborted else ENDED


def _port(text: str) -> int:
    """Returns a port number. Raises: ArgumentTypeError: it is none."""
    if not text.isdigit() or int(text) > PORT_MAX:
        raise argparse.ArgumentTypeError(f"{text!r} is no port: give a number from 0 (any) to {PORT_MAX}")
    return int(text)


def _page_port(parsed: argparse.Namespace) -> int | None:
    if parsed.ui_port is not None and not parsed.ui:
        raise JobError("--ui-port is the port of the page of the job, which --ui serves: add --ui.")
    port: int | None = parsed.ui_port
    return port


def _demo(parsed: argparse.Namespace) -> int:
    from clonos.demo.show import DemoOptions, demo_console, run_demo

    options = DemoOptions(
        slots=chosen_slots(parsed.master is not None)[0] if parsed.slots == SlotKind.AUTO else parsed.slots,
        master=parsed.master,
        pattern=parsed.input,
        lines=parsed.lines,
        seconds=parsed.seconds,
        kills=tuple(parsed.kills.split(",")) if parsed.kills else (),
        json_file=parsed.json,
        keep=parsed.keep,
        has_page=parsed.ui,
        page_port=_page_port(parsed),
    )
    if parsed.agents:
        from clonos.demo.agents import run_agents_demo

        return ENDED if run_agents_demo(options, demo_console()) else JOB_AT_FAULT
    return ENDED if run_demo(options) else JOB_AT_FAULT


def _dev(parsed: argparse.Namespace) -> int:
    from clonos.cli.dev import develop

    put_on_path(parsed.job)
    develop(parsed.job.partition(":")[0], lambda: load_job(parsed.job), parsed.runs)
    return ENDED


def _doctor(parsed: argparse.Namespace) -> int:
    from clonos.cli.doctor import print_examination
    from clonos.job.description import options_of

    job = load_job(parsed.job) if parsed.job else None
    given = pairs(parsed.option) | ({"store": parsed.store} if parsed.store else {})
    run = resolve_settings({} if job is None else options_of(job), given).run
    return ENDED if print_examination(job, run, parsed.server or "", parsed.json) else ENVIRONMENT_AT_FAULT


def _errors(parsed: argparse.Namespace) -> int:
    from clonos.cli.error_commands import run_errors

    return run_errors(parsed)


def _init(parsed: argparse.Namespace) -> int:
    from clonos.cli.new_project import write_project

    written = write_project(parsed.name)
    folder = f"cd {parsed.name} && " if parsed.name else ""
    report(f"written: {', '.join(written)}\nnext: {folder}clonos run job.py")
    return ENDED


def _completion(parsed: argparse.Namespace) -> int:
    from argcomplete.shell_integration import shellcode

    print(shellcode(["clonos"], shell=parsed.shell))
    return ENDED


def _state(parsed: argparse.Namespace) -> int:
    from clonos.cli.state_commands import run_state

    return run_state(parsed)


def _history(parsed: argparse.Namespace) -> int:
    from clonos.cli.history_commands import run_history

    return run_history(parsed)


def _explain(parsed: argparse.Namespace) -> int:
    from clonos.cli.run_client import load_notes

    job = load_job(parsed.job)
    print(job.explain(parsed.format, command_line=pairs(parsed.option)))
    for note in load_notes(job.name):
        print(note, file=sys.stderr)
    return ENDED


COMMANDS: Final[dict[str, Callable[[argparse.Namespace], int]]] = {
    "init": _init,
    "run": _run,
    "dev": _dev,
    "explain": _explain,
    "check": run_check,
    "demo": _demo,
    "doctor": _doctor,
    "state": _state,
    "history": _history,
    "errors": _errors,
    "replay": run_replay,
    "completion": _completion,
    **SERVER_COMMANDS,
}


def _chaos(command: str, arguments: Sequence[str]) -> int:
    with needing_extra(f"clonos chaos {command}", "chaos"):
        commands = importlib.import_module("clonos_chaos.runs.cli")
        return int(getattr(commands, "chaos_suite" if command == "all" else command)(arguments))


def _known_options(parsed: argparse.Namespace) -> RunOptions | None:
    """Returns the options before those of the job are known; None for wrong ones, of which the start says more."""
    try:
        return resolve_settings({}, _options(parsed)).run
    except ClonosError:
        return None


def _options(parsed: argparse.Namespace) -> dict[str, object]:
    """Returns the options that the command line sets, by key."""
    keys = ("master", "slots", "metrics", "metrics_port", "checkpoint", "store", "from_savepoint")
    named = {key: getattr(parsed, key) for key in keys}
    options: dict[str, object] = {key: value for key, value in named.items() if value is not None}
    options |= {key: True for key in ("resume", "overwrite") if getattr(parsed, key)}
    if parsed.width:
        options["widths"] = parsed.width
    return options | pairs(parsed.option)


def _parser() -> ExactParser:
    parser = ExactParser(
        prog="clonos",
        description=(clonos.__doc__ or "").partition("\n")[0],
        epilog=(__doc__ or "").partition("\n\n")[2],
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"clonos {clonos.__version__}, {kernels_in_use()}")
    parser.add_argument("-v", "--verbose", action="store_true", help="log what the runtime does")
    parser.add_argument(
        "--log-format", choices=LOG_FORMATS, default="text", help="text (default) or one JSON object per line"
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    init = commands.add_parser("init", help="write a first job, with its test and its options")
    init.add_argument("name", nargs="?", metavar="NAME", help="of the job and its new folder (default: this folder)")

    _add_run(commands)

    dev = commands.add_parser("dev", help="preview a job on child processes, and start it again when its files change")
    dev.add_argument("job", metavar="FILE[:NAME]", help="a Python file; NAME selects one of several Jobs")
    dev.add_argument("--runs", type=int, metavar="N", help="end after N runs")

    _add_explain(commands)
    add_check(commands)
    _add_doctor(commands)

    _add_demo(commands)

    chaos = commands.add_parser("chaos", help="run jobs under injected faults, real or simulated, and check them")
    chaos.add_argument(
        "what",
        choices=CHAOS_COMMANDS,
        help="run SCENARIO [--simulated|--processes|--spark], seeds --from A --to B, soak --minutes M,"
        " rescales --changes N, conversations --kills N, all --worlds N",
    )
    add_commands(commands)
    add_state(commands)
    add_history(commands)
    add_errors(commands)
    add_replay(commands)
    completion = commands.add_parser("completion", help="print what a shell needs to complete commands and options")
    completion.add_argument("shell", choices=SHELLS, help='as in: eval "$(clonos completion bash)"')
    return parser


def _add_demo(commands: Any) -> None:
    demo = commands.add_parser("demo", help="run a word count while its tasks are killed, and check the output")
    demo.add_argument("--slots", choices=("auto", "spark", "process"), default="auto", help=SLOTS_HELP)
    demo.add_argument("--master", metavar="URL", help="Spark master (default: a local cluster of two executors)")
    demo.add_argument("--input", metavar="GLOB", help="text files to read (default: the text of Python's own help)")
    length = demo.add_mutually_exclusive_group()
    length.add_argument("--lines", type=int, metavar="N", help="read N lines of the default text")
    length.add_argument("--seconds", type=float, metavar="S", help="end the input after S seconds and all kills")
    demo.add_argument(
        "--kills",
        metavar="KIND,...",
        help="map, window, linked, executor, or some of them in this order; none: no kill (default: all)",
    )
    demo.add_argument("--agents", action="store_true", help="agents that refund orders, in place of the word count")
    demo.add_argument("--json", type=Path, metavar="FILE", help="write the verdict to this file")
    demo.add_argument("--keep", type=Path, metavar="FOLDER", help="keep input, output and logs in this folder")
    _add_page(demo)


def _add_page(command: argparse.ArgumentParser) -> None:
    command.add_argument("--ui", action="store_true", help="serve a page with the graph, tasks and log of the job")
    command.add_argument(
        "--ui-port", type=_port, metavar="P", help="port of that page (default: the first free one from 8090 on)"
    )


def _add_run(commands: Any) -> None:
    run = commands.add_parser("run", help="run the job of a Python file")
    run.add_argument("job", metavar="FILE[:NAME]", help="a Python file; NAME selects one of several Jobs")
    run.add_argument("-v", "--verbose", action="store_true", default=argparse.SUPPRESS, help="as before the command")
    run.add_argument("--log-format", choices=LOG_FORMATS, default=argparse.SUPPRESS, help="as before the command")
    run.add_argument("--master", metavar="URL", help="Spark master of the session that Clonos starts")
    run.add_argument("--slots", metavar="KIND", help=SLOTS_HELP)
    run.add_argument("--store", metavar="URL", help="checkpoint store (default: ./.clonos/<name of the job>)")
    run.add_argument("--resume", action="store_true", help="resume from the last completed checkpoint")
    run.add_argument("--checkpoint", metavar="N", help="with --resume: resume from this checkpoint instead")
    run.add_argument("--from-savepoint", metavar="URL", help="start a new job from a savepoint, with an empty store")
    run.add_argument(
        "--width",
        metavar="STEP=TASKS",
        action="append",
        help="number of tasks of a step, or of several: count=4,sum=2; may be repeated",
    )
    run.add_argument("--overwrite", action="store_true", help="delete what the store and the output folders hold")
    run.add_argument("--metrics", metavar="FILE", help="write counters to this file, one JSON line per second")
    run.add_argument("--metrics-port", metavar="PORT", help="serve metrics for Prometheus at this port; 0: a free one")
    run.add_argument(
        "--option", metavar="KEY=VALUE", action="append", default=[], help="set any other option; may be repeated"
    )
    run.add_argument(
        "--restart-strategy",
        default="none",
        metavar="NAME[:KEY=VALUE,...]",
        help="when the environment fails the job: none (default), fixed-delay, exponential-delay or failure-rate",
    )
    _add_page(run)


def _add_explain(commands: Any) -> None:
    explain = commands.add_parser("explain", help="show the plan of a job without running it")
    explain.add_argument("job", metavar="FILE[:NAME]", help="a Python file; NAME selects one of several Jobs")
    explain.add_argument(
        "--format",
        choices=("text", "mermaid", "json"),
        default="text",
        help="text (default), a flowchart for Mermaid, or JSON",
    )
    explain.add_argument(
        "--option", metavar="KEY=VALUE", action="append", default=[], help="set an option; may be repeated"
    )


def _add_doctor(commands: Any) -> None:
    doctor = commands.add_parser("doctor", help="check what jobs need on this machine, and a store or a server")
    doctor.add_argument("job", nargs="?", metavar="FILE[:NAME]", help="check the input and the sinks of this job too")
    doctor.add_argument("--store", metavar="URL", help="checkpoint store to check (default: the working folder)")
    doctor.add_argument("--server", metavar="URL", help="server of clonos serve to reach")
    doctor.add_argument("--json", action="store_true", help="print a JSON list of findings")
    doctor.add_argument(
        "--option", metavar="KEY=VALUE", action="append", default=[], help="set an option of the job; may be repeated"
    )
