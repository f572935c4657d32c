"""The documents agree with the code: options, commands, names and errors.

Examples are run in tests/processes/jobs/test_document_examples.py; here they are only read.
"""

from __future__ import annotations

import ast
import contextlib
import importlib
import io
import re
import shlex
import types
import typing
from collections.abc import Iterator
from dataclasses import fields
from enum import Enum
from pathlib import Path

import pytest

import clonos
from clonos import cli, config
from clonos.core.model.options import Options
from tests.tidy.error_classes import error_classes
from tests.tidy.source import ROOT, sources

pytestmark = pytest.mark.static

DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
SWITCH_TYPES = {bool: "switch", int: "number", str: "text", config.ScaleBounds: "table"}
NOT_READ = "nothing reads it yet"


def _named(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def _code_blocks(path: Path, language: str) -> list[str]:
    """Fenced blocks of a language; what stands after it on the fence's line names a file."""
    return re.findall(rf"^```{language}(?: [^\n]*)?\n(.*?)^```", path.read_text("utf-8"), re.MULTILINE | re.DOTALL)


def _rows(text: str) -> Iterator[list[str]]:
    """Cells of the rows of all tables whose first cell is code."""
    for line in text.splitlines():
        if line.startswith("| `"):
            yield [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


def test_examples_give_a_list_or_dict_of_state_its_type() -> None:
    texts = {_named(path): path.read_text("utf-8") for path in DOCUMENTS}
    texts |= {source.path: source.text for source in sources() if source.path.startswith(("clonos/", "examples/"))}
    untyped = [name for name, text in texts.items() if re.search(r"\b(?:ListState|MapState)\(\"", text)]
    assert untyped == [], "mypy --strict asks for the type: ListState[datetime](...)"


# ---------------------------------------------------------------------- options


def _option_rows() -> dict[str, list[str]]:
    text = (ROOT / "docs" / "options.md").read_text("utf-8").partition("## What a run is")[2]
    rows = list(_rows(text))
    names = [row[0].strip("`") for row in rows]
    assert len(set(names)) == len(names), "an option stands in two rows"
    return dict(zip(names, rows, strict=True))


def _options() -> dict[str, tuple[type, str, str]]:
    """Options by key: the class that has it, its field, its unit."""
    owners: tuple[type, ...] = (config.RunOptions, Options)
    found = {}
    for owner in owners:
        for field in fields(owner):
            suffixes = {**config.DURATION_SUFFIXES, config.SIZE_SUFFIX: "bytes"}
            unit = next((unit for suffix, unit in suffixes.items() if field.name.endswith(suffix)), "")
            found[field.name.removesuffix(f"_{unit}")] = (owner, field.name, unit)
    return found


def _type_of(owner: type, field: str, unit: str) -> str:
    if unit:
        return "size" if unit == "bytes" else "duration"
    annotation = typing.get_type_hints(owner)[field]
    if isinstance(annotation, types.UnionType) and any(map(typing.get_origin, typing.get_args(annotation))):
        return "function" if type(None) in typing.get_args(annotation) else "choice or function"
    if isinstance(annotation, types.UnionType):
        return "number or `none`"
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return "choice"
    return SWITCH_TYPES.get(annotation, "list")


def test_every_option_has_its_row_and_every_row_its_option() -> None:
    assert sorted(_option_rows()) == sorted(_options()) == sorted(config.keys())


@pytest.mark.parametrize("key", config.keys())
def test_a_row_states_the_options_type_unit_and_default(key: str) -> None:
    owner, field, unit = _options()[key]
    _, kind, documented_unit, default, meaning = _option_rows()[key]
    assert kind == _type_of(owner, field, unit)
    assert not unit or documented_unit == unit
    expected = config.describe(config.JobSettings())[key]
    if isinstance(expected, Enum):  # settings have what "auto" stands for
        assert default == f"`{expected.value}`"
    elif default:
        assert (
            config.describe(config.resolve_settings({key: default.strip("`")}, environment={}, file=Path("none")))[key]
            == expected
        )
    else:
        assert not expected
    if isinstance(expected, Enum):
        assert all(f"`{member.value}`" in meaning for member in type(expected)), "the meaning lists the choices"
    assert meaning


def test_an_option_is_documented_as_unused_exactly_when_no_code_reads_it() -> None:
    documented = {key for key, row in _option_rows().items() if NOT_READ in row[-1]}
    texts = "\n".join(source.text for source in sources() if not source.is_under("tests", "benchmarks"))
    read = set(re.findall(r"(?:options|\brun|settings\.core)\.(\w+)", texts))
    assert documented == {key for key, (_, field, _) in _options().items() if field not in read}


# ---------------------------------------------------------------------- examples and commands


@pytest.mark.parametrize("path", DOCUMENTS, ids=_named)
def test_examples_are_valid_python_and_their_imports_exist(path: Path) -> None:
    for block in _code_blocks(path, "python"):
        for node in ast.walk(ast.parse(block)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("clonos"):
                module = importlib.import_module(node.module or "")
                missing = [name.name for name in node.names if not hasattr(module, name.name)]
                assert not missing, f"{node.module} has no {missing}"
                if node.module == "clonos":
                    assert {name.name for name in node.names} <= set(clonos.__all__)


def test_a_name_that_the_documents_call_missing_does_not_exist() -> None:
    """Each row of the list has, as code, names by which one would look for what is missing."""
    text = (ROOT / "docs" / "coming-from.md").read_text("utf-8").partition("## What Clonos does not have")[2]
    rows = [line.split("|")[1] for line in text.splitlines() if line.startswith("|")][2:]
    names = [re.findall(r"`([a-z_]+)`", row) for row in rows]
    assert len(rows) > 5
    assert all(names)
    modules = [found for name in clonos.__all__ if isinstance(found := getattr(clonos, name), types.ModuleType)]
    public = {
        *clonos.__all__,
        *(name for module in modules for name in getattr(module, "__all__", ())),
        *(name for owner in (clonos.Job, clonos.Stream, clonos.KeyedStream, clonos.Handle) for name in dir(owner)),
        *config.keys(),
    }
    assert public & {name for row in names for name in row} == set(), "it exists: delete its row"


@pytest.mark.parametrize("path", DOCUMENTS, ids=_named)
def test_a_document_does_not_deny_a_connector_that_exists(path: Path) -> None:
    connectors = {name for name in clonos.__all__ if isinstance(getattr(clonos, name), types.ModuleType)}
    found = re.findall(r"\bno (?:connectors? for|source for|sink for) (\w+)", path.read_text("utf-8"), re.IGNORECASE)
    assert not connectors & {name.lower() for name in found}


def _commands() -> list[tuple[str, str]]:
    """(document, command line) of every ``clonos`` command in a block of a console or of a shell."""
    return [
        (_named(path), match[1])
        for path in DOCUMENTS
        for language, prompt in (("console", r"\$ "), ("(?:ba)?sh", ""))
        for block in _code_blocks(path, language)
        for match in re.finditer(rf"^{prompt}[^#\n]*?\bclonos (?!chaos )(.*)", block, re.MULTILINE)
    ]


@pytest.mark.parametrize(("document", "command"), _commands())
def test_a_command_line_in_the_documents_is_accepted_by_the_parser(document: str, command: str) -> None:
    assert _refusal(shlex.split(command, comments=True)) == "", document


def _refusal(arguments: list[str]) -> str:
    """Error of the command line about arguments; empty if it accepts them."""
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as output:
        try:
            cli._parser().parse_args(arguments)
        except SystemExit as end:
            return output.getvalue() if end.code else ""
    return ""


# ---------------------------------------------------------------------- exit codes and errors


def test_the_exit_codes_are_those_of_the_command_line() -> None:
    text = (ROOT / "docs" / "operations.md").read_text("utf-8")
    section = text.partition("## Exit codes")[2].partition("\n## ")[0]
    documented = {int(code) for code in re.findall(r"^\| (\d+) \|", section, re.MULTILINE)}
    argparse_s = 2
    assert documented == {
        cli.ENDED,
        cli.JOB_AT_FAULT,
        argparse_s,
        cli.ENVIRONMENT_AT_FAULT,
        cli.WE_ARE_AT_FAULT,
        cli.ABORTED,
    }


def test_an_error_is_documented_under_its_own_class() -> None:
    errors = error_classes()
    text = (ROOT / "docs" / "operations.md").read_text("utf-8").partition("## Errors")[2].partition("\n## ")[0]
    for section in text.split("\n### ")[1:]:
        base = errors[section.split("`")[1]]
        for row in _rows(section):
            for name in re.findall(r"`(\w+)`", row[0]):
                assert name in errors, f"there is no error {name}"
                assert issubclass(errors[name], base), f"{name} is no {base.__name__}"


# ---------------------------------------------------------------------- links


def test_every_document_can_be_reached_from_the_index() -> None:
    index = (ROOT / "docs" / "index.md").read_text("utf-8")
    unlinked = [
        _named(path) for path in DOCUMENTS[1:] if path.name != "index.md" and f"]({_below_docs(path)})" not in index
    ]
    assert unlinked == []


def _below_docs(path: Path) -> str:
    return path.relative_to(ROOT / "docs").as_posix()


def test_a_document_that_the_code_names_exists() -> None:
    missing = [
        f"{source.path}: {name}"
        for source in sources()
        for name in re.findall(r"\bdocs/[\w/-]+\.md\b", source.text)
        if not (ROOT / name).exists()
    ]
    assert missing == []


def test_an_entry_of_the_changelog_stands_there_once() -> None:
    entries = re.split(r"(?m)^- ", (ROOT / "CHANGELOG.md").read_text("utf-8"))[1:]
    found = [entry.split("\n", 1)[0] for entry in entries]
    assert sorted(found) == sorted(set(found))
