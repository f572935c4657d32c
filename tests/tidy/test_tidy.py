"""House rules that no tool checks: lengths, roles, words and calls.

A rule that is broken today for a good reason has an entry in debts.toml; entries may only shrink.
"""

import ast
import builtins
import functools
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tidy.source import ROOT, Source, sources, texts

FILE_LINES_MAX = 600
FUNCTION_LINES_MAX = 60
ROLE_WORDS_MIN = 4
DEBTS = tomllib.loads(Path(__file__).with_name("debts.toml").read_text("utf-8"))

FULL_WORDS = {
    "addr": "address",
    "arr": "array or what it holds",
    "btn": "button",
    "buf": "buffer",
    "cb": "callback",
    "cfg": "configuration or options",
    "chan": "channel",
    "chkpt": "checkpoint",
    "ckpt": "checkpoint",
    "cnt": "count",
    "conf": "configuration or options",
    "conn": "connection",
    "coord": "coordinator",
    "ctx": "context",
    "cur": "current",
    "curr": "current",
    "dest": "receiver or destination",
    "dst": "receiver or destination",
    "elem": "element",
    "elt": "element",
    "env": "environment",
    "err": "error",
    "evt": "event",
    "exc": "error",
    "fn": "function",
    "func": "function",
    "hb": "heartbeat",
    "idx": "index",
    "impl": "what it is",
    "inc": "incarnation",
    "iter_": "what it iterates over",
    "lst": "what it lists",
    "mgr": "what it does",
    "msg": "message",
    "num": "count or number",
    "obj": "what it is",
    "op": "operator",
    "ops": "operators",
    "param": "parameter",
    "params": "parameters",
    "pos": "position",
    "prev": "previous",
    "proc": "process",
    "ptr": "what it points to",
    "recv": "receive",
    "ref": "reference",
    "repl": "replica",
    "req": "request",
    "res": "result",
    "resp": "response or reply",
    "ret": "result",
    "srv": "server",
    "src": "sender or source",
    "svc": "service",
    "sz": "size",
    "tmp": "what it holds",
    "util": "what it does",
    "utils": "what they do",
    "val": "value",
    "vals": "values",
}
WORDS_OF_OTHERS = frozenset(
    {"_new_conn", "num_columns", "num_rows", "params", "recv_into", "tmp_path", "tmp_path_factory"}
)
"""Names with a banned word that somebody else's interface demands."""
PUBLIC_NAMES = {("clonos/connectors/secrets.py", "env"), ("services/clonos_services/metrics.py", "inc")}
"""Names with a banned word that users write, by file: they expect the short word."""

# Written with a class of one letter, so that this file does not find itself.
BANNED_TEXTS = {
    r"\b([T]ODO|[F]IXME|[X]XX|[H]ACK)\b": "do it, or say in a sentence what is missing and why",
    r"(?<![\w./])/([w]ork|[f]arm|[r]oot|[h]ome|[U]sers)/": "a path of one machine: take an option's",
}
BANNED_CALLS = {
    "hash": (
        ("clonos/core", "clonos/operators", "services"),
        "it differs between processes and types: use the key's encoded bytes",
    ),
    "print": (
        ("clonos", "services", "standby"),
        "only the command line prints: use the logger or return what is to be shown",
    ),
    "sleep": (
        ("tests",),
        "a sleep is a race: wait for the event itself, with a limit",
    ),
}
ENUMS = ("Enum", "IntEnum", "StrEnum", "Flag", "IntFlag")
ORDERING = ast.Lt | ast.LtE | ast.Gt | ast.GtE
MAY_PRINT = ("clonos/cli.py", "clonos/cli", "clonos/demo.py", "clonos/demo")

pytestmark = pytest.mark.static


def test_a_file_is_within_the_line_limit_or_its_listed_debt() -> None:
    lengths = {source.path: source.text.count("\n") for source in sources()}
    _compare_with_debts("files", lengths, FILE_LINES_MAX)


def test_a_function_is_within_the_line_limit_or_its_listed_debt() -> None:
    lengths = {
        f"{source.path}::{name}": (node.end_lineno or node.lineno) - node.lineno + 1
        for source in sources()
        for name, node in source.functions()
    }
    _compare_with_debts("functions", lengths, FUNCTION_LINES_MAX)


def test_a_file_begins_with_its_role() -> None:
    roleless = [
        source.path for source in sources() if len((ast.get_docstring(source.tree) or "").split()) < ROLE_WORDS_MIN
    ]
    _expect_none(roleless, "begin the file with a docstring that says its role and its rules")


def test_a_name_is_not_abbreviated() -> None:
    shortened = [
        f"{source.path}:{line} {name}: {word} -> {FULL_WORDS[word]}"
        for source in sources()
        for line, name in source.identifiers()
        if name not in WORDS_OF_OTHERS and (source.path, name) not in PUBLIC_NAMES
        for word in _words(name)
        if word in FULL_WORDS
    ]
    _expect_none(shortened, "write the whole word; docs/glossary.md lists the terms")


@pytest.mark.parametrize("pattern", BANNED_TEXTS)
def test_no_file_has_a_left_over_marker(pattern: str) -> None:
    found = [
        f"{path}:{number} {line.strip()[:100]}"
        for path, text in texts()
        if re.search(pattern, text)
        for number, line in enumerate(text.splitlines(), 1)
        if re.search(pattern, line)
    ]
    _expect_none(found, BANNED_TEXTS[pattern])


@pytest.mark.parametrize("function", BANNED_CALLS)
def test_a_banned_function_is_not_called(function: str) -> None:
    folders, advice = BANNED_CALLS[function]
    found = [
        f"{source.path}:{line}"
        for source in sources()
        if source.is_under(*folders) and not (function == "print" and source.is_under(*MAY_PRINT))
        for line in _calls_of(source, function)
    ]
    _expect_none(found, f"{function}(): {advice}")


def test_every_thread_has_a_name() -> None:
    nameless = [
        f"{source.path}:{node.lineno}"
        for source in sources()
        if not source.is_under("tests", "benchmarks")
        for node in source.nodes
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("Thread", "threading.Thread")
        if not any(keyword.arg == "name" for keyword in node.keywords)
    ]
    _expect_none(nameless, "give the thread a name that says its role: stories and leak reports show it")


FORGERS = {"chaos/clonos_chaos/attacks/attack_lies.py", "tests/unit/core/test_admission.py"}
"""They send ids that nothing has."""


def test_no_id_is_negative() -> None:
    ids = {name for source in sources() for name in _ids_of(source)}
    assert "TaskId" in ids
    negative = [
        f"{source.path}:{node.lineno} {ast.unparse(node)}"
        for source in sources()
        for node in source.nodes
        if isinstance(node, ast.Call) and _last_name(node.func) in ids and str(source.path) not in FORGERS
        if any(isinstance(each, ast.UnaryOp) and isinstance(each.op, ast.USub) for each in node.args)
    ]
    _expect_none(negative, "an id is what it says: use None, a state, or a type of its own for what has none")


def test_nothing_depends_on_the_order_of_an_enum() -> None:
    enums = {name for source in sources() for name in _enums_of(source)}
    assert "ElementKind" in enums
    ordered = [
        f"{source.path}:{node.lineno} {ast.unparse(node)}"
        for source in sources()
        for node in source.nodes
        if isinstance(node, ast.Compare) and any(isinstance(operator, ORDERING) for operator in node.ops)
        if any(_is_member(side, enums) for side in (node.left, *node.comparators))
    ]
    _expect_none(ordered, "a new member would change the meaning: ask a property of the member, or match on all")


CODE_IN_TEXT = re.compile(r"^ *```.*?^ *```|`[^`\n]+`", re.MULTILINE | re.DOTALL)
"""Code of a document, which may have brackets after brackets; the text of a link may be code too."""


def test_a_link_in_the_documents_resolves() -> None:
    broken = [
        f"{path}: {target}"
        for path, text in texts()
        if path.endswith(".md")
        for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", CODE_IN_TEXT.sub("`code`", text))
        if "://" not in target and not (ROOT / path).parent.joinpath(target).exists()
    ]
    _expect_none(broken, "correct the link or write the document")


def _last_name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _ids_of(source: Source) -> Iterator[str]:
    """Names of the types that a file makes of ``int`` by ``NewType``."""
    for node in source.nodes:
        match node:
            case ast.Assign(
                targets=[ast.Name(id=name)], value=ast.Call(func=function, args=[_, ast.Name(id="int")])
            ) if _last_name(function) == "NewType":
                yield name


def _enums_of(source: Source) -> Iterator[str]:
    for node in source.nodes:
        if isinstance(node, ast.ClassDef) and any(_last_name(base) in ENUMS for base in node.bases):
            yield node.name


def _is_member(node: ast.expr, enums: set[str]) -> bool:
    return isinstance(node, ast.Attribute) and node.attr.isupper() and _last_name(node.value) in enums


def _compare_with_debts(kind: str, lengths: dict[str, int], lines_max: int) -> None:
    debts: dict[str, int] = DEBTS[kind]
    too_long = [
        f"{name}: {lines} lines, {debts.get(name, lines_max)} are allowed: cut it along its nouns"
        for name, lines in lengths.items()
        if lines > debts.get(name, lines_max)
    ]
    larger_than_need_be = [
        f"{name}: debts.toml allows {debt}, it has {lengths.get(name, 0)} lines:"
        + (" lower the entry" if lengths.get(name, 0) > lines_max else " remove the entry")
        for name, debt in debts.items()
        if debt > lengths.get(name, 0) or lengths[name] <= lines_max
    ]
    _expect_none(too_long + larger_than_need_be, f"at most {lines_max} lines")


@functools.cache
@functools.cache
def _words(name: str) -> list[str]:
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name)
    return [word for word in spaced.lower().split("_") if word]


def _calls_of(source: Source, function: str) -> Iterator[int]:
    for node in source.nodes:
        if not isinstance(node, ast.Call):
            continue
        called = node.func
        name = called.id if isinstance(called, ast.Name) else ""
        if isinstance(called, ast.Attribute) and function not in dir(builtins):  # a method may be named like a builtin
            name = called.attr
        if name == function:
            yield node.lineno


def _expect_none(found: list[str], advice: str) -> None:
    if found:
        pytest.fail(f"{advice}:\n  " + "\n  ".join(found), pytrace=False)
