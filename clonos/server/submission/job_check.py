"""Program that loads a submitted job, explains it, and looks at the places that it names:
``python -m clonos.server.submission.job_check FOLDER``.

It runs code of the job, so it is a process of its own with a limit of time. Its last line of standard output is the
outcome as JSON.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from clonos.api.checks.unused_results import check_results
from clonos.config import resolve_settings
from clonos.core.model.errors import ClonosError, short_report
from clonos.job.description import graph_of, options_of
from clonos.job.script.job_file import load_job
from clonos.server.submission.place_check import check_places
from clonos.server.supervision.job_folder import JobFolder


class CheckOutcome(msgspec.Struct, frozen=True):
    """Outcome of a check: the job's name and where its tasks run, or the error."""

    name: str = ""
    slots: str = ""
    error: str = ""


def main(arguments: Sequence[str]) -> int:
    """Checks the job of a folder and writes the outcome."""
    folder = JobFolder(Path(arguments[0]))
    spec = folder.read_spec()
    os.chdir(folder.files)
    outcome = sys.stdout
    sys.stdout = sys.stderr  # what the job prints is not the outcome
    try:
        job = load_job(spec.target)
        options = {"store": str(folder.store), **spec.options}
        job.explain(command_line=options)
        check_results(graph_of(job))
        settings = resolve_settings(options_of(job), options)
        check_places(graph_of(job), settings)
        found = CheckOutcome(job.name, settings.run.slots.value)
    except ClonosError as error:
        found = CheckOutcome(error=short_report(error).replace(f"{folder.files}{os.sep}", ""))
    outcome.write(f"\n{msgspec.json.encode(found).decode('utf-8')}\n")
    outcome.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
