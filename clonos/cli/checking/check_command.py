"""The command ``clonos check FILE``."""

from __future__ import annotations

import argparse
import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from clonos.cli.log_lines import report
from clonos.core.model.errors import ClonosError, JobError, short_report

if TYPE_CHECKING:
    from clonos.api.checks.code.job_findings import JobFinding


NOT_CHECKED: Final = 2
TEXT: Final = "text"
FORMATS: Final = (TEXT, "json", "sarif")


def add_check(commands: Any) -> None:
    """Adds the command to a parser."""
    check = commands.add_parser("check", help="find what a job does that a replay would not repeat, before it runs")
    check.add_argument("jobs", nargs="*", metavar="FILE[:NAME]", help="Python files; NAME selects one of several Jobs")
    check.add_argument("--static", action="store_true", help="look at the syntax alone, and run no line of the file")
    check.add_argument("--store", metavar="URL", help="compare the steps with those of this store or savepoint")
    check.add_argument(
        "--select", action="append", metavar="CODE", help="codes to look for, such as CLN1 (default: all)"
    )
    check.add_argument("--ignore", action="append", metavar="CODE", help="codes to leave out")
    check.add_argument("--format", choices=FORMATS, default=TEXT, help="text (default), json or sarif")
    check.add_argument("--codes", action="store_true", help="list the codes")


def run_check(parsed: argparse.Namespace) -> int:
    """Prints the findings. Returns 1 if there are any, 0 without, and 2 if nothing could be looked at: the file has no
    such job, or the settings are wrong."""
    try:
        return _checked(parsed)
    except ClonosError as error:
        report(f"clonos: {short_report(error)}", logging.ERROR)
        return NOT_CHECKED


def _checked(parsed: argparse.Namespace) -> int:
    from clonos.cli.checking.check_formats import CheckFormat, codes_text, formatted
    from clonos.cli.checking.check_settings import settings_for

    if parsed.codes:
        print(codes_text())
        return 0
    if not parsed.jobs:
        raise JobError("clonos check looks at the job of a file: name it, as in clonos check job.py.")
    findings: list[JobFinding] = []
    for job in parsed.jobs:
        file = Path(job.partition(":")[0])
        settings = settings_for(file, _list(parsed.select), _list(parsed.ignore))
        findings += [each for each in _findings(parsed, job, file) if settings.wants(each)]
    if findings or parsed.format != TEXT:
        print(formatted(findings, CheckFormat(parsed.format)))
    if parsed.format == TEXT:
        report(f"{len(findings)} findings" if len(findings) != 1 else "1 finding")
    return 1 if findings else 0


def _list(given: list[str] | None) -> list[str]:
    return [code.strip() for each in given or () for code in each.split(",") if code.strip()]


def _findings(parsed: argparse.Namespace, name: str, file: Path) -> list[JobFinding]:
    """Returns the findings of a job, or that a file is not Python. Raises: JobError."""
    from clonos.api.checks.code.job_findings import syntax_finding

    try:
        return _findings_of_python(parsed, name, file)
    except JobError as error:
        if not isinstance(error.__cause__, SyntaxError):
            raise
        return [syntax_finding(error.__cause__, str(file))]


def _findings_of_python(parsed: argparse.Namespace, name: str, file: Path) -> list[JobFinding]:
    from clonos.api.checks.code.job_findings import findings_of_job
    from clonos.api.checks.code.static_file import StaticFile

    if parsed.static:
        if parsed.store:
            raise JobError(
                "--static runs no line of the file, so it does not know the steps of the job: leave out --store."
            )
        if not file.is_file():
            raise JobError(f"the file {str(file)!r} does not exist. Name a Python file that has a Job.")
        found = {(each.file, each.line, each.column, each.code): each for each in StaticFile(file.resolve()).findings()}
        return sorted(found.values(), key=lambda each: (each.file, each.line, each.column))
    from clonos.config import resolve_settings
    from clonos.job.description import graph_of, options_of
    from clonos.job.script.job_file import load_job

    job = load_job(name)
    graph = graph_of(job).intercepting(resolve_settings(options_of(job)).core.intercept)
    return findings_of_job(graph, os.path.relpath(file), _stored_steps(parsed.store))


def _stored_steps(url: str | None) -> list[str]:
    """Returns the names of the steps whose state a store or a savepoint has."""
    if url is None:
        return []
    from clonos.job.stored_state import StateLocation

    return StateLocation(url, None).steps(None)
