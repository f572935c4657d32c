"""Each connector of the documents' tables has a row with the tests of its guarantee, and a check under faults."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.tidy.source import ROOT

pytestmark = pytest.mark.static

DOCUMENT = (ROOT / "docs" / "connectors.md").read_text("utf-8")
CHECKS = {
    name
    for file in (ROOT / "tests" / "connectors" / "guarantees").glob("on_*.py")
    for name in re.findall(r"^def (test_\w+)", file.read_text("utf-8"), re.MULTILINE)
}
"""Functions of `make connectors`, each of which takes a connector through kills and faults."""

NOWHERE = {"blackhole"}
"""Sinks whose rows go nowhere."""

ON_THE_DRIVER = {"stdout", "collect", "frames.source"}
"""Connectors that need the process of the driver, which the check ends, or a session of Spark. Tests name their own."""


def section(title: str) -> str:
    """Text below a heading, up to the next one of its level."""
    return DOCUMENT.split(f"\n## {title}\n")[1].split("\n## ")[0].split("\n### ")[0]


def first_column(title: str) -> set[str]:
    """Names of connectors in the first column of a table. A mode belongs to the name, other options do not."""
    rows = [line.split(" | ")[0] for line in section(title).splitlines() if re.match(r"\| .*`", line)]
    return {re.sub(r"\(columns=True\)", "", name) for row in rows for name in re.findall(r"`([^`]+)`", row)}


SHOWN = {
    name: line
    for line in section("Tests of the guarantees").splitlines()
    if line.startswith("| `")
    for name in re.findall(r"`([^`]+)`", line.split(" | ")[0])
}
"""Row of the table of tests by connector."""


def test_each_connector_of_the_tables_has_a_row_that_names_its_tests() -> None:
    described = first_column("Sources") | first_column("Sinks")
    assert len(described) > 20
    assert set(SHOWN) == described - NOWHERE


def test_the_page_about_lineage_has_each_connector_of_the_tables() -> None:
    lineage = (ROOT / "docs" / "telemetry.md").read_text("utf-8").split("## OpenLineage")[1]
    families = re.findall(r"`(\w+)\.\*`", lineage)
    described = first_column("Sources") | first_column("Sinks")
    assert sorted(each for each in described if f"`{each}`" not in lineage and each.split(".")[0] not in families) == []


def test_each_row_names_tests_that_exist() -> None:
    for name, line in SHOWN.items():
        paths, functions = re.findall(r"`(tests/\S+?\.py)`", line), set(re.findall(r"`(test_\w+)`", line))
        assert paths, f"{name} has no test of its own"
        assert [path for path in paths if not Path(ROOT / path).is_file()] == [], name
        assert functions <= CHECKS, f"{name}: {functions - CHECKS} is not in `make connectors`"
        assert functions or name in ON_THE_DRIVER, f"{name} is not in `make connectors`"


def test_each_check_under_faults_is_named_by_a_row() -> None:
    assert {function for line in SHOWN.values() for function in re.findall(r"`(test_\w+)`", line)} == CHECKS
