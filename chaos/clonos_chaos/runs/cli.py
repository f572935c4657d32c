"""Commands of ``clonos chaos``: ``run`` a scenario, ``soak``, ``seeds``, ``all``. They return exit codes."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from clonos.core.model.errors import EnvironmentFault
from clonos.job.script.exact_parser import ExactParser
from clonos_chaos.runs.runner import ScenarioRunOptions, Where, run_and_report, run_folder, run_scenarios
from clonos_chaos.scenario.run_record import RunRecord
from clonos_chaos.scenario.scenario_file import SHIPPED_FOLDER, find_scenario, read_scenarios

SEEDS_USUAL = 1_000
INJECTIONS_SHOWN_MAX = 12
GOOD = 0
BAD = 1


def _above(least: float, number: Callable[[str], float] = int) -> Callable[[str], float]:
    """Makes the type of a number option that is at least ``least``; a ``float``, which is a time, is above it."""

    def read(text: str) -> float:
        found = number(text)
        if number is float and not least < found < float("inf"):
            raise argparse.ArgumentTypeError(f"{text} is not above {least:g}")
        if found < least:
            raise argparse.ArgumentTypeError(f"{text} is below {least:g}")
        return found

    read.__name__ = "number"  # argparse shows it in messages
    return read


def _of_checkout(module: str, command: str) -> Any:
    """Returns a module of what tests this project. Raises: EnvironmentFault: it is not here, as in a wheel."""
    try:
        return importlib.import_module(f"clonos_chaos.project.{module}")
    except ModuleNotFoundError as missing:
        if missing.name != "clonos_chaos.project":
            raise
        raise EnvironmentFault(
            f"{command} tests Clonos itself, and an installed clonos does not have these tests. Run it in a checkout of"
            " the project; `clonos chaos run`, `seeds` and `soak` need none."
        ) from None


AT_LEAST_ONE = _above(1)
ABOVE_NONE = _above(0, float)


def run(arguments: Sequence[str]) -> int:
    """Runs ``clonos chaos run SCENARIO``: 0 when every run ended as its scenario expects, else 1."""
    parser = ExactParser(prog="clonos chaos run", description=f"Scenarios are in {SHIPPED_FOLDER}.")
    parser.add_argument("scenario", metavar="SCENARIO", help="a file, or the name of a shipped scenario")
    world = parser.add_mutually_exclusive_group()
    for where, help_text in (
        (Where.PROCESSES, "on real processes, no JVM (default)"),
        (Where.SPARK, "on Spark executors"),
        (Where.SIMULATED, "in the simulated world"),
    ):
        world.add_argument(f"--{where}", dest="where", action="store_const", const=where, help=help_text)
    parser.add_argument("--seed", type=int, default=1, help="chooses the victims (default: 1)")
    parser.add_argument(
        "--repeat", type=AT_LEAST_ONE, default=1, metavar="K", help="number of runs, each with the next seed"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results to this file")
    parser.add_argument("--html", type=Path, metavar="FILE", help="write a report with pictures to this file")
    parser.add_argument("--png", type=Path, metavar="FILE", help="draw a picture of the last run into this file")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="leave outputs and logs in this folder")
    parsed = parser.parse_args(arguments)
    scenarios = read_scenarios(find_scenario(parsed.scenario))
    where = parsed.where or Where.PROCESSES
    if where is Where.SIMULATED and parsed.keep is not None:
        parser.error("--keep is for real processes: a simulated world leaves no files, and its seed reproduces it")
    options = ScenarioRunOptions(where, parsed.seed, parsed.repeat, parsed.json, parsed.html, parsed.png, parsed.keep)
    verdicts: list[bool] = []

    def on_record(record: RunRecord) -> None:
        verdicts.append(record.is_good)
        _print_record(record)

    is_good = run_scenarios(scenarios, options, on_record)
    if len(verdicts) > 1:
        print(f"{sum(verdicts)} of {len(verdicts)} runs ended as expected")
    return GOOD if is_good else BAD


def chaos_suite(arguments: Sequence[str]) -> int:
    """Runs ``clonos chaos all``: 0 when no run was bad."""
    parser = ExactParser(prog="clonos chaos all")
    parser.add_argument(
        "--worlds", type=_above(0), default=100_000, metavar="N", help="simulated worlds (default: 100000)"
    )
    parser.add_argument("--from", dest="first", type=lambda text: int(text, 0), default=1, metavar="SEED")
    parser.add_argument(
        "--processes", type=AT_LEAST_ONE, default=2, metavar="N", help="processes for simulated worlds (default: 2)"
    )
    parser.add_argument("--seed", type=int, default=1, help="chooses the victims of scenarios (default: 1)")
    parser.add_argument(
        "--only", nargs="+", default=(), metavar="SCENARIO", help="only these scenarios; none: simulated worlds only"
    )
    parser.add_argument("--without", nargs="+", default=(), metavar="SCENARIO")
    parser.add_argument("--in", nargs="+", dest="where", choices=[*Where], default=[*Where], help="default: all")
    parser.add_argument(
        "--report", type=Path, default=Path("build/chaos"), metavar="FOLDER", help="default: build/chaos"
    )
    parser.add_argument("--resume", action="store_true", help="continue the stopped suite that left this report")
    parsed = parser.parse_args(arguments)
    suite = _of_checkout("chaos_suite", "clonos chaos all")
    for name in {*parsed.only, *parsed.without} - {"none"}:
        find_scenario(name)
    wanted = suite.SuiteOptions(
        folder=parsed.report,
        worlds=parsed.worlds,
        first_seed=parsed.first,
        processes=parsed.processes,
        seed=parsed.seed,
        files=tuple(parsed.only),
        without=tuple(parsed.without),
        in_worlds=tuple(map(Where, parsed.where)),
        is_resumed=parsed.resume,
    )
    is_good = suite.run_chaos_suite(wanted, partial(print, flush=True), _print_record)
    print((parsed.report / suite.SUMMARY_FILE).read_text("utf-8"))
    return GOOD if is_good else BAD


def soak(arguments: Sequence[str]) -> int:
    """Runs ``clonos chaos soak``: 0 when nothing was lost, duplicated or contradicted, and every task recovered."""
    from clonos_chaos.runs.soak import Soak, figures, scenario_of

    parser = ExactParser(prog="clonos chaos soak")
    parser.add_argument("--minutes", type=ABOVE_NONE, default=60.0, metavar="M")
    parser.add_argument("--kill-every", type=ABOVE_NONE, default=20.0, metavar="S", help="seconds (default: 20)")
    parser.add_argument("--job", default="described", help="module:job of your own (default: the shipped one)")
    parser.add_argument("--oracle", default="", help="module:function that judges the output of your job")
    parser.add_argument("--no-network-faults", action="store_true", help="kills only; does not need Toxiproxy")
    parser.add_argument("--spark", action="store_true", help="on Spark executors")
    parser.add_argument(
        "--server", action="store_true", help="through a server of jobs: kills tasks, executors, drivers and the server"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--html", type=Path, metavar="FILE")
    parser.add_argument("--png", type=Path, metavar="FILE")
    parser.add_argument("--keep", type=Path, metavar="FOLDER")
    parsed = parser.parse_args(arguments)
    wanted = Soak(parsed.job, parsed.minutes, parsed.kill_every, not parsed.no_network_faults, parsed.oracle)
    where = Where.SPARK if parsed.spark else Where.PROCESSES
    options = ScenarioRunOptions(where, parsed.seed, 1, parsed.json, parsed.html, parsed.png, parsed.keep)

    if parsed.server:
        if parsed.job != "described" or parsed.oracle:
            parser.error("--server runs the shipped job: leave out --job and --oracle")
        return _server_soak(parsed.minutes, parsed.kill_every, options)

    def on_record(record: RunRecord) -> None:
        record.notes += figures(record)
        _print_record(record)

    return GOOD if run_scenarios([scenario_of(wanted)], options, on_record) else BAD


def _server_soak(minutes: float, kill_every_s: float, options: ScenarioRunOptions) -> int:
    server_soak = _of_checkout("served.server_soak", "clonos chaos soak --server")
    slots = "spark" if options.where is Where.SPARK else "process"
    soak_options = server_soak.ServerSoak(minutes, kill_every_s, slots, options.seed)

    def run_one() -> RunRecord:
        with run_folder(options.keep, f"soak-{options.seed}") as folder:
            record: RunRecord = server_soak.ServerSoakRun(soak_options, folder).run()
            return record

    return GOOD if run_and_report([run_one], options, _print_record) else BAD


def _parser_of_slices(command: str, amount: str) -> ExactParser:
    """Returns the parser of a run in slices. ``amount``: the option that says how much is wanted."""
    parser = ExactParser(prog=command)
    parser.add_argument("--folder", type=Path, required=True, metavar="FOLDER", help="a run goes on that left this one")
    parser.add_argument(
        f"--{amount}", dest="wanted", type=AT_LEAST_ONE, default=1_000, metavar="N", help="of all runs in the folder"
    )
    parser.add_argument("--minutes", type=ABOVE_NONE, metavar="M", help="end after M minutes")
    parser.add_argument(
        "--from", dest="first", type=AT_LEAST_ONE, default=1, metavar="N", help="number of the first slice"
    )
    return parser


def rescales(arguments: Sequence[str]) -> int:
    """Runs ``clonos chaos rescales``: 1 when a result was lost, duplicated or contradicted, or a job stood."""
    parser = _parser_of_slices("clonos chaos rescales", "changes")
    parser.add_argument("--per-second", type=ABOVE_NONE, default=800.0, metavar="R", help="records (default: 800)")
    parsed = parser.parse_args(arguments)
    runs = _of_checkout("served.rescale_runs", "clonos chaos rescales")
    wanted = runs.Rescales(parsed.folder, parsed.wanted, parsed.minutes, parsed.first, parsed.per_second)
    return GOOD if runs.run_rescales(wanted) else BAD


def conversations(arguments: Sequence[str]) -> int:
    """Runs ``clonos chaos conversations``: 1 when a result was lost, duplicated or contradicted, an effect came twice,
    or a call was repeated that no kill explains."""
    parser = _parser_of_slices("clonos chaos conversations", "kills")
    parser.add_argument("--capacity", type=AT_LEAST_ONE, default=1, metavar="N", help="open calls of a task")
    parsed = parser.parse_args(arguments)
    runs = _of_checkout("conversing.talk_runs", "clonos chaos conversations")
    wanted = runs.Conversations(parsed.folder, parsed.wanted, parsed.minutes, parsed.first, parsed.capacity)
    return GOOD if runs.run_conversations(wanted) else BAD


def seeds(arguments: Sequence[str]) -> int:
    """Runs ``clonos chaos seeds``: 1 when a world failed."""
    from clonos_chaos.swarm.environments import Swarm
    from clonos_chaos.swarm.failing_seed import show_again
    from clonos_chaos.swarm.seeds import run as run_seeds
    from clonos_chaos.swarm.world import TOPOLOGIES

    parser = ExactParser(prog="clonos chaos seeds")
    parser.add_argument("--from", dest="first", type=lambda text: int(text, 0), default=0, metavar="A")
    parser.add_argument(
        "--to", dest="last", type=lambda text: int(text, 0), metavar="B", help="last seed, inclusive (default: A + 999)"
    )
    parser.add_argument("--minutes", type=ABOVE_NONE, metavar="M", help="run seeds from A for M minutes")
    parser.add_argument("--topology", choices=TOPOLOGIES, default="", help="default: each in turn")
    parser.add_argument("--mix", action="store_true", help="draw a cluster and a mix of faults for each world")
    parser.add_argument(
        "--rescale", action="store_true", help="change widths in each world, which is drawn as by --mix"
    )
    parser.add_argument("--processes", type=AT_LEAST_ONE, default=2, metavar="N")
    parser.add_argument("--only-faults", metavar="N,N", help="of one seed: inject only these faults ('none': no fault)")
    parser.add_argument("--records", type=AT_LEAST_ONE, metavar="N", help="of one seed: at most N records")
    parsed = parser.parse_args(arguments)
    swarm = Swarm(parsed.topology, parsed.mix, parsed.rescale)
    if parsed.only_faults is not None or parsed.records is not None:
        if parsed.last not in (None, parsed.first):
            parser.error("--only-faults and --records need one seed: give --from and --to the same value")
        return show_again(parsed.first, swarm, _numbers(parser, parsed.only_faults), parsed.records)
    usual = parsed.first + SEEDS_USUAL - 1 if parsed.minutes is None else sys.maxsize - 1
    last = usual if parsed.last is None else parsed.last
    if last < parsed.first:
        parser.error(f"--to {last} is below --from {parsed.first}: there is no seed between them")
    return run_seeds(range(parsed.first, last + 1), swarm, parsed.processes, parsed.minutes)


def _numbers(parser: argparse.ArgumentParser, text: str | None) -> tuple[int, ...] | None:
    if text is None:
        return None
    try:
        return () if text == "none" else tuple(int(number) for number in text.split(","))
    except ValueError:
        parser.error(f"--only-faults takes numbers such as 3,7 or none, not {text!r}")


def _print_record(record: RunRecord) -> None:
    seconds = (record.ended_ns - record.began_ns) / 1e9
    word = "good" if record.is_good else "BAD"
    print(f"{word}: {record.scenario.name}, seed {record.seed}, {record.world}, {seconds:.1f} s")
    if len(record.injections) > INJECTIONS_SHOWN_MAX:
        print(f"  {len(record.injections)} faults, the last of them:")
    for injection in record.injections[-INJECTIONS_SHOWN_MAX:]:
        at_s = (injection.at_ns - record.began_ns) / 1e9
        print(f"  {at_s:6.2f} s  {injection.kind} {', '.join(injection.tasks)} {injection.detail}".rstrip())
    for check in record.checks:
        print(f"  {'ok ' if check.is_good else 'BAD'} {check.name}: {check.found} (wanted: {check.wanted})")
    if record.findings is not None:
        for what, examples in record.findings.examples.items():
            print(f"  {what}, for example: {'; '.join(examples)}")
    for note in record.notes:
        print(f"  {note}")
    sys.stdout.flush()
