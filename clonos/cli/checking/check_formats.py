"""Findings as text, JSON and SARIF."""

from __future__ import annotations

import json
from collections.abc import Sequence
from enum import StrEnum
from typing import Any, Final

import clonos
from clonos.api.checks.code.job_findings import JobFinding
from clonos.api.checks.code.replacements import THEMES

SARIF_SCHEMA: Final = "https://json.schemastore.org/sarif-2.1.0.json"


class CheckFormat(StrEnum):
    """Format of what ``clonos check`` prints."""

    TEXT = "text"
    JSON = "json"
    SARIF = "sarif"


def formatted(findings: Sequence[JobFinding], format: CheckFormat) -> str:
    """Returns the findings in a format, without the last end of line."""
    match format:
        case CheckFormat.TEXT:
            return "\n".join(map(_line, findings))
        case CheckFormat.JSON:
            return json.dumps([{**each._asdict(), "theme": each.theme} for each in findings], indent=2)
        case CheckFormat.SARIF:
            return json.dumps(_sarif(findings), indent=2)


def codes_text() -> str:
    """Returns all codes with what they are about."""
    return "\n".join(f"{code}  {theme}" for code, theme in sorted(THEMES.items()))


def _line(each: JobFinding) -> str:
    return f"{each.file}:{each.line}:{each.column}: {each.code} {each.message}: {each.advice}"


def _sarif(findings: Sequence[JobFinding]) -> dict[str, Any]:
    rules = [{"id": code, "shortDescription": {"text": theme}} for code, theme in sorted(THEMES.items())]
    driver = {"name": "clonos check", "version": clonos.__version__, "rules": rules}
    return {
        "$schema": SARIF_SCHEMA,
        "version": "2.1.0",
        "runs": [{"tool": {"driver": driver}, "results": [*map(_result, findings)]}],
    }


def _result(each: JobFinding) -> dict[str, Any]:
    region = {"startLine": each.line, "startColumn": each.column}
    place = {"artifactLocation": {"uri": each.file}, "region": region}
    text = f"{each.message}: {each.advice}"
    return {
        "ruleId": each.code,
        "level": "warning",
        "message": {"text": text},
        "locations": [{"physicalLocation": place}],
    }
