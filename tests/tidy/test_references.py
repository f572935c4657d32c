"""References in documents and docstrings resolve: names of the code, files, rules of the protocol, logger names.

The site checks links (``test_site``); these references are plain text, so that a reader can grep for them.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator
from datetime import datetime
from functools import cache
from typing import Any

import pytest

import clonos
import clonos.testing
from clonos_chaos.project.mutants.all_mutants import MUTANTS
from tests.tidy.source import PACKAGE_FOLDERS, ROOT, sources, texts

pytestmark = pytest.mark.static

COMPARISON = "docs/coming-from.md"
"""The first column of its tables has the words of other systems."""


def _about_us(path: str, text: str) -> str:
    return re.sub(r"^\| [^|]*", "", text, flags=re.MULTILINE) if path == COMPARISON else text


ABOUT_THE_PAST = ("CHANGELOG.md", "benchmarks/results/")
"""Documents that may name what is gone."""
DOCUMENTS = {
    path: _about_us(path, text)
    for path, text in texts()
    if path.endswith(".md") and not path.startswith(ABOUT_THE_PAST)
}
"""What is written about the present state."""
FILE_SUFFIXES = ("cfg", "json", "jsonl", "md", "png", "py", "so", "toml", "txt", "yml")
OBJECTS_OF_EXAMPLES = {
    **dict.fromkeys(("a", "b", "joined", "other", "payments", "rules"), clonos.Stream),
    "keyed": clonos.KeyedStream,
    "context": clonos.Context,
    "datetime": datetime,
    "handle": clonos.Handle,
    "harness": clonos.testing.Harness,
    "job": clonos.Job,
    "list": list,
    "outputs": clonos.testing.Outputs,
    "stream": clonos.KeyedStream,
}
"""The class of the object that documents call so; a stream may have a key or not."""
NAMES_OF_OTHERS = re.compile(
    r"(spark|dfs|SparkSession|pandas|polars|pyarrow|shop|schemas|security|ssl)(\.\w+)+|delta\.\w+(Feed|Duration)"
    r"|self\.\w+(\.append)?"
)
"""Settings of Spark, HDFS, Kafka and Delta, a message type, and what the class of an example calls or has."""
FILES_OF_OTHERS = {"clonos.toml": "a user's", "job.py": "a user's", "summary.md": "written by a run"}
FOLDERS_OF_RUNS = ("build/", "benchmarks/results/")
"""What commands write; git ignores it, but for dated measurements."""


def _inline_code(text: str) -> Iterator[str]:
    """Text between backticks, outside of fenced blocks."""
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    yield from (code for _, code in re.findall(r"(`+)(.+?)\1", prose))


# ---------------------------------------------------------------------- names


def _dotted_names() -> Iterator[tuple[str, str]]:
    """(file, name) of each ``module.name`` of the documents, and of the code's own modules in docstrings."""
    for path, text in DOCUMENTS.items():
        for code in _inline_code(text):
            for name in re.findall(r"(?<![\w./\"'-])[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+(?![\w/])", code):
                yield path, name
    for source in sources():
        for name in re.findall(r"``(clonos(?:_\w+)?(?:\.\w+)+)(?:``|\()", source.text):
            yield source.path, name


@cache
def _modules() -> dict[str, str]:
    """The project's modules by their full names, with their text."""
    found = {}
    for package, folder in PACKAGE_FOLDERS.items():
        for file in sorted(folder.rglob("*.py")):
            name = ".".join([package, *file.relative_to(folder).with_suffix("").parts])
            found[name.removesuffix(".__init__")] = file.read_text("utf-8")
    return found


@cache
def _logger_names() -> set[str]:
    code = "\n".join(source.text for source in sources())
    return set(re.findall(r"getLogger\(\"([\w.]+)\"\)", code))


def _has(owner: Any, path: list[str]) -> bool:
    """Whether an object has an attribute, that one the next, and so on. An instance's attributes end such a path."""
    for position, name in enumerate(path):
        if not hasattr(owner, name):
            return inspect.isclass(owner) and path[position + 1 :] == [] and name in _instance_attributes(owner)
        owner = getattr(owner, name)
    return True


def _instance_attributes(cls: type) -> set[str]:
    """Fields, and what the methods of a class assign to ``self``."""
    ours = [base for base in cls.__mro__ if base.__module__.startswith("clonos")]
    fields = {name for base in ours for name in inspect.get_annotations(base)}
    return fields.union(*(re.findall(r"\bself\.(\w+)(?:: [^=\n]+)? = ", inspect.getsource(base)) for base in ours))


def _readings(head: str) -> Iterator[Any]:
    """Objects that the first part of a dotted name may stand for."""
    if head in OBJECTS_OF_EXAMPLES:
        yield OBJECTS_OF_EXAMPLES[head]
    if head == "stream":
        yield clonos.Stream
    for home in (clonos, clonos.testing):
        if head in home.__all__:
            yield getattr(home, head)
    for module, text in _modules().items():
        if module.endswith(f".{head}"):
            yield importlib.import_module(module)
        if re.search(rf"^class {head}\b", text, re.MULTILINE):
            yield getattr(importlib.import_module(module), head)


def _resolves(name: str) -> bool:
    try:
        pkgutil.resolve_name(name)
    except (ImportError, AttributeError):
        head, *rest = name.split(".")
        return any(_has(reading, rest) for reading in _readings(head))
    return True


def test_a_dotted_name_in_a_document_exists_in_the_code() -> None:
    names = {(path, name) for path, name in _dotted_names() if not name.endswith(tuple(f".{s}" for s in FILE_SUFFIXES))}
    unknown = sorted(
        f"{path}: {name}"
        for path, name in names
        if not NAMES_OF_OTHERS.fullmatch(name) and name not in _logger_names() and not _resolves(name)
    )
    assert unknown == []


# ---------------------------------------------------------------------- files


@cache
def _path_pattern() -> re.Pattern[str]:
    """A path below a folder of the project, with ``*`` for anything, or the bare name of a file that has a text."""
    folders = "|".join(re.escape(entry.name) for entry in ROOT.iterdir() if entry.is_dir())
    return re.compile(rf"(?<![\w./:~-])(?:(?:{folders}|build)/[\w./*-]*|[\w-]+\.(?:py|md|cfg|toml)\b)")


def test_a_file_that_a_document_names_exists() -> None:
    names = {path.rpartition("/")[2] for path, _ in texts()} | FILES_OF_OTHERS.keys()
    for text in DOCUMENTS.values():
        names.update(re.findall(r"^```\w+ (\S+)$", text, re.MULTILINE))  # an example that the reader saves under it
    missing = [
        f"{path}: {named}"
        for path, text in DOCUMENTS.items()
        for code in _inline_code(text)
        for named in _path_pattern().findall(code)
        if not named.startswith(FOLDERS_OF_RUNS)
        if not (any(ROOT.glob(named)) if "/" in named else named in names)
    ]
    assert missing == []


# ---------------------------------------------------------------------- the protocol


NUMBER = r"\d+(?:\.\d+)?"
NUMBERS = rf"{NUMBER}(?:(?:, | and | or | to |-){NUMBER})*"
PROTOCOL = DOCUMENTS["docs/protocol.md"]


def _rules() -> Iterator[str]:
    """The numbers of the protocol's sections, and of the numbered rules in each as section.rule."""
    section = ""
    for line in re.sub(r"^```.*?^```$", "", PROTOCOL, flags=re.MULTILINE | re.DOTALL).splitlines():
        if heading := re.match(rf"#+ ({NUMBER})\.? ", line):
            yield heading[1]
            section = heading[1]
        elif (rule := re.match(r"(\d+)\. ", line)) and section:
            yield f"{section}.{rule[1]}"


def _references_to_rules() -> Iterator[tuple[str, str]]:
    """(place, number) of every section or rule of the protocol that is referred to."""
    cited = rf"\b[Pp]rotocol(?:\.md)?(?:`+)?,? (?:sections? )?({NUMBERS})"
    for path, text in [*((source.path, source.text) for source in sources()), *DOCUMENTS.items()]:
        within = rf"|\bsections? ({NUMBERS})" if text is PROTOCOL else ""
        for match in re.finditer(cited + within, text):
            for number in re.findall(NUMBER, match[0].rpartition("rotocol")[2]):
                yield path, number
    for name, mutant in MUTANTS.items():
        for number in mutant.section.split(", "):
            yield f"mutant {name}", number


def test_a_number_of_the_protocol_stands_for_one_section_or_rule() -> None:
    numbers = list(_rules())
    assert [number for number in numbers if numbers.count(number) > 1] == []


def test_a_reference_to_the_protocol_leads_to_a_section_or_rule_of_it() -> None:
    rules = set(_rules())
    assert [f"{place}: {number}" for place, number in _references_to_rules() if number not in rules] == []


def test_text_refers_only_to_documents_that_exist() -> None:
    elsewhere = [
        f"{path}: {reference}"
        for path, text in texts()
        for reference in re.findall(r"\bdecisions? \d+", text)
        if not (ROOT / "docs" / "decisions.md").exists()
    ]
    assert elsewhere == []
