"""Runs scenarios one after another in the selected world, and writes reports."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path

from clonos.core.model.errors import EnvironmentFault, JobError
from clonos_chaos.real.runner_processes import ProcessRun
from clonos_chaos.runs.runner_simulated import refusal, run_simulated
from clonos_chaos.scenario.run_record import RunRecord
from clonos_chaos.scenario.scenario import Scenario


class Where(StrEnum):
    """World in which a scenario runs."""

    PROCESSES = "processes"
    SPARK = "spark"
    SIMULATED = "simulated"


@dataclass(frozen=True, slots=True)
class ScenarioRunOptions:
    """Options of the command line.

    ``png_file``: picture of the last run. ``keep``: folder in which input, output and logs of each run stay.
    """

    where: Where = Where.PROCESSES
    seed: int = 1
    repeat: int = 1
    json_file: Path | None = None
    html_file: Path | None = None
    png_file: Path | None = None
    keep: Path | None = None


def run_scenarios(
    scenarios: Sequence[Scenario], options: ScenarioRunOptions, on_record: Callable[[RunRecord], None]
) -> bool:
    """Runs each scenario ``repeat`` times, each time with the next seed; returns whether all runs were good.

    A long matrix may be stopped: the reports then have the runs before that. Raises JobError: a scenario is refused.
    """
    if options.where is Where.SIMULATED:
        for reason in filter(None, map(refusal, scenarios)):
            raise JobError(reason)
    return run_and_report(
        (
            partial(run_once, scenario, options.where, options.seed + number, options.keep)
            for scenario in scenarios
            for number in range(options.repeat)
        ),
        options,
        on_record,
    )


def run_and_report(
    runs: Iterable[Callable[[], RunRecord]], options: ScenarioRunOptions, on_record: Callable[[RunRecord], None]
) -> bool:
    """Performs runs one after another, and writes the reports; returns whether all were good.

    Raises EnvironmentFault: a report cannot be written.
    """
    for file in (options.json_file, options.html_file, options.png_file):
        if file is not None:
            make_writable(file)
    records: list[RunRecord] = []
    try:
        for run in runs:
            record = run()
            records.append(record)
            on_record(record)
            if options.json_file is not None:
                lines = ",\n".join(json.dumps(one.data()) for one in records)
                options.json_file.write_text(f"[\n{lines}\n]\n", "utf-8")
    finally:
        if records:
            _write_pictures(options, records)
    return all(record.is_good for record in records)


def _write_pictures(options: ScenarioRunOptions, records: Sequence[RunRecord]) -> None:
    if options.html_file is not None:
        from clonos_chaos.runs.report import write_report

        write_report(options.html_file, records)
    if options.png_file is not None:
        from clonos_chaos.runs.report_plot import write_png

        write_png(options.png_file, records[-1])


def make_writable(file: Path) -> None:
    """Makes the folder of a file that is written at the end. Raises EnvironmentFault before an hour is lost."""
    is_new = not file.exists()
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.open("ab").close()
        if is_new:
            file.unlink()
    except OSError as error:
        raise EnvironmentFault(
            f"{file} cannot be written: {error.strerror} ({error.filename}). Nothing was run."
        ) from None


def run_once(scenario: Scenario, where: Where, seed: int, keep: Path | None = None) -> RunRecord:
    """Runs a scenario once."""
    if where is Where.SIMULATED:
        return run_simulated(scenario, seed)
    with run_folder(keep, f"{scenario.name}-{seed}") as folder:
        return ProcessRun(scenario, seed, folder, "spark" if where is Where.SPARK else "process").run()


@contextmanager
def run_folder(keep: Path | None, name: str) -> Iterator[Path]:
    """Context with the folder of a run: a new one in ``keep``, or a temporary one.

    Raises JobError: it is not empty. EnvironmentFault: it cannot be made.
    """
    if keep is None:
        with tempfile.TemporaryDirectory(prefix="clonos-chaos-") as name_of_it:
            yield Path(name_of_it)
        return
    folder = (keep / "".join(letter if letter.isalnum() or letter in "-_." else "-" for letter in name)).resolve()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise EnvironmentFault(f"{folder} cannot be made: {error.strerror}. Nothing was run.") from None
    if any(folder.iterdir()):
        raise JobError(f"the folder {folder} is not empty: name a new one with --keep.")
    yield folder
