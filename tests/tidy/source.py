"""The files of the project as the tidy test reads them."""

import ast
import functools
import gc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
CODE_FOLDERS = ("clonos", "services", "standby", "chaos", "tests", "benchmarks", "docs", "examples")
PACKAGE_FOLDERS = {
    "clonos": ROOT / "clonos",
    "clonos_chaos": ROOT / "chaos" / "clonos_chaos",
    "clonos_services": ROOT / "services" / "clonos_services",
    "clonos_standby": ROOT / "standby" / "clonos_standby",
}
TEXT_SUFFIXES = frozenset({".cfg", ".ci", ".json", ".md", ".py", ".sh", ".toml", ".txt", ".yml"})
TEXT_NAMES = frozenset({"Makefile", "run", "setup", "check-java"})

NAMED = frozenset(
    (
        *(ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.arg, ast.Name, ast.Attribute, ast.alias),
        *(ast.ExceptHandler, ast.MatchAs, ast.MatchStar),
    )
)
"""Nodes that can give a name."""
type_of_function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Source:
    """A Python file. `path` is relative to the root, with slashes."""

    path: str
    text: str

    @property
    def tree(self) -> ast.Module:
        """The file, parsed."""
        return _parse(self.text, self.path)

    @property
    def nodes(self) -> tuple[ast.AST, ...]:
        """All nodes of the tree, outer ones first."""
        return _nodes(self.text, self.path)

    def is_under(self, *folders: str) -> bool:
        """Whether the file is one of these or lies in one of them."""
        return any(self.path == folder or self.path.startswith(f"{folder}/") for folder in folders)

    def functions(self) -> Iterator[tuple[str, type_of_function]]:
        """Every function with its qualified name, those in classes and in functions too."""
        yield from _functions(self.tree, "")

    def identifiers(self) -> tuple[tuple[int, str], ...]:
        """Every name that the file gives to something, with its line."""
        return _identifiers(self.text, self.path)


@functools.cache
def sources() -> tuple[Source, ...]:
    """Returns all Python files of the project, in the order of their paths."""
    files = [file for folder in CODE_FOLDERS for file in _below(ROOT / folder, "*.py")]
    return tuple(Source(file.relative_to(ROOT).as_posix(), file.read_text("utf-8")) for file in sorted(files))


@functools.cache
def product() -> tuple[Source, ...]:
    """Returns the Python files of the packages, without those of tests, benchmarks, documents and examples."""
    folders = [folder.relative_to(ROOT).as_posix() for folder in PACKAGE_FOLDERS.values()]
    return tuple(source for source in sources() if source.is_under(*folders))


@functools.cache
def texts() -> tuple[tuple[str, str], ...]:
    """Returns all files that people read, with their text; files that git ignores are left out."""
    folders = [ROOT / folder for folder in (*CODE_FOLDERS, ".ci")]
    files = [file for folder in folders for file in _below(folder, "*")] + list(ROOT.glob("*"))
    wanted = [file for file in files if file.is_file() and _is_text(file) and "__pycache__" not in file.parts]
    return tuple((file.relative_to(ROOT).as_posix(), file.read_text("utf-8")) for file in sorted(wanted))


def _below(folder: Path, pattern: str) -> Iterator[Path]:
    """Files of a folder, but those in hidden folders, which are no part of the project."""
    for file in folder.rglob(pattern):
        if not any(part.startswith(".") for part in file.relative_to(folder).parts):
            yield file


def _is_text(file: Path) -> bool:
    return file.suffix in TEXT_SUFFIXES or file.name in TEXT_NAMES


@functools.cache
def _parse(text: str, path: str) -> ast.Module:
    with _left_out_of_garbage():
        return ast.parse(text, filename=path)


@functools.cache
def _nodes(text: str, path: str) -> tuple[ast.AST, ...]:
    tree = _parse(text, path)
    with _left_out_of_garbage():
        return tuple(ast.walk(tree))


@contextmanager
def _left_out_of_garbage() -> Iterator[None]:
    """Millions of nodes stay: each search for garbage that looks at them takes longer than to parse them."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


@functools.cache
def _identifiers(text: str, path: str) -> tuple[tuple[int, str], ...]:
    named = (node for node in _nodes(text, path) if type(node) in NAMED)
    return tuple((getattr(node, "lineno", 1), name) for node in named for name in _given_names(node))


def _functions(parent: ast.AST, prefix: str) -> Iterator[tuple[str, type_of_function]]:
    for node in ast.iter_child_nodes(parent):
        if isinstance(node, ast.expr):
            continue  # no expression has a function with a name
        if isinstance(node, type_of_function):
            yield prefix + node.name, node
        name = f"{prefix}{node.name}." if isinstance(node, type_of_function | ast.ClassDef) else prefix
        yield from _functions(node, name)


def _given_names(node: ast.AST) -> list[str]:
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return [name]
        case ast.arg(arg=name):
            return [name]
        case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
            return [name]
        case ast.alias(asname=str(name)):
            return [name]
        case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
            return [name]
    return []
