"""Findings of a job, each with its place, as ``clonos check`` shows them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from clonos.api.checks.code.code_check import checked_functions
from clonos.api.checks.code.code_rules import Finding
from clonos.api.checks.code.replacements import SYNTAX, THEMES, UNKNOWN_STATE
from clonos.api.checks.code.step_checks import key_findings, record_findings, unnamed_steps
from clonos.api.step_graph import StepGraph


class JobFinding(NamedTuple):
    """One finding of a job.

    - ``code``, ``message``: the rule, and what is done by which function. ``advice``: what to write instead.
    - ``file``: relative to the folder, if it lies in it. ``line``, ``column``: they begin at 1.
    - ``step``: name of the step whose function does it.
    """

    code: str
    message: str
    advice: str
    file: str
    line: int
    column: int
    step: str

    @property
    def theme(self) -> str:
        """Theme of the code."""
        return THEMES[self.code]


def findings_of_job(graph: StepGraph, file: str, stored_steps: Iterable[str] = ()) -> list[JobFinding]:
    """Returns the findings of a job, in the order of files and lines, each once.

    ``file``: that of the job, for what has no line of its own. ``stored_steps``: names of steps whose state
    a store has.
    """
    found = {
        (each.file, each.line, each.column, each.code): each for each in reversed([*_all(graph, file, stored_steps)])
    }
    return sorted(found.values(), key=lambda each: (each.file, each.line, each.column, each.code))


def finding_of(step: str, function: str, finding: Finding, file: str) -> JobFinding:
    """Returns a finding of one function. ``file``: that of the job, if the function has none."""
    place = f"{finding.helper}(), which the step {step} runs," if finding.helper else f"{function} of the step {step}"
    who = place if finding.line else f"the step {step}"
    code, advice = finding.replacement.code, finding.replacement.advice
    shown = os.path.relpath(finding.file) if finding.file else file
    shown = finding.file if shown.startswith(os.pardir) else shown
    return JobFinding(code, f"{who} {finding.what}", advice, shown, finding.line or 1, finding.column or 1, step)


def syntax_finding(error: SyntaxError, file: str) -> JobFinding:
    """Returns the finding of a file that is not Python. ``file``: that of the job, if the error names none."""
    path = error.filename or file
    shown = os.path.relpath(path)
    shown = path if shown.startswith(os.pardir) else shown
    return JobFinding(
        SYNTAX, f"the file is not Python: {error.msg}", "correct it", shown, error.lineno or 1, error.offset or 1, ""
    )


def _all(graph: StepGraph, file: str, stored_steps: Iterable[str]) -> Iterator[JobFinding]:
    for checked in checked_functions(graph):
        for finding in checked.findings:
            yield finding_of(checked.step, checked.shown_name, finding, file)
    for step in graph.steps:
        for each in step.inputs:
            for source, finding in key_findings(each.key.key) if each.key is not None else ():
                yield finding_of(step.name, source.name, finding, file)
        for source, finding in record_findings(graph, step):
            yield finding_of(step.name, source.name, finding, file)
    for step, finding in unnamed_steps(graph):
        yield finding_of(step.name, "", finding, file)
    own = {step.name for step in graph.steps}
    for name in sorted({*stored_steps} - own):
        advice = "keep the name of the step, or start with allow_dropped_state=True to drop its state"
        message = f"the store has state of the step {name}, which the job does not have"
        yield JobFinding(UNKNOWN_STATE, message, advice, file, 1, 1, name)


def is_chosen(finding: JobFinding, select: Iterable[str], ignore: Iterable[str]) -> bool:
    """Returns whether the code of a finding begins with one of ``select``, and with none of ``ignore``."""
    return finding.code.startswith(tuple(select)) and not finding.code.startswith(tuple(ignore))


def is_of_file(finding: JobFinding, pattern: str) -> bool:
    """Returns whether the file of a finding fits a pattern such as ``jobs/*.py``."""
    return Path(finding.file).match(pattern)
