"""One noun a file: a short module that one other module imports is a part of that module, unless there is a reason.

small_modules.toml lists those that have one. The list may only shrink.
"""

import ast
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from tests.tidy.source import PACKAGE_FOLDERS, ROOT, Source, product

pytestmark = pytest.mark.static

SMALL_LINES_MAX = 59
LISTED: dict[str, str] = {
    path: reason
    for reason, paths in tomllib.loads(Path(__file__).with_name("small_modules.toml").read_text("utf-8")).items()
    for path in paths
}
FOLDERS = {folder.relative_to(ROOT).as_posix(): package for package, folder in PACKAGE_FOLDERS.items()}


def module_name(path: str) -> str:
    """Dotted name of a file of the product."""
    for folder, package in FOLDERS.items():
        if path.startswith(f"{folder}/"):
            return ".".join((package, *Path(path).relative_to(folder).with_suffix("").parts)).removesuffix(".__init__")
    return path.removesuffix(".py").replace("/", ".")


def _imported(source: Source) -> Iterator[str]:
    """All that a file imports: modules, and names of modules, lazily and for types too."""
    for node in source.nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def small_with_one_importer(files: Iterable[Source]) -> dict[str, str]:
    """Paths of the short modules that exactly one other imports, with that one's path."""
    files = list(files)
    importers: defaultdict[str, set[str]] = defaultdict(set)
    for source in files:
        for name in _imported(source):
            importers[name].add(source.path)
    return {
        source.path: next(iter(found))
        for source in files
        if not Path(source.path).stem.startswith("_") and source.text.count("\n") <= SMALL_LINES_MAX
        if len(found := importers[module_name(source.path)]) == 1
    }


def test_a_small_module_with_one_importer_has_a_reason() -> None:
    small = small_with_one_importer(product())
    found = [f"{path}: {importer}" for path, importer in small.items() if path not in LISTED]
    assert not found, "make the module a part of its importer:\n" + "\n".join(found)


def test_each_listed_module_is_still_small_and_has_one_importer() -> None:
    assert set(LISTED) - set(small_with_one_importer(product())) == set()


def test_a_small_module_is_found_by_every_kind_of_import() -> None:
    files = [
        Source("clonos/small.py", ""),
        Source("clonos/shared.py", ""),
        Source("clonos/long.py", "\n" * (SMALL_LINES_MAX + 1)),
        Source("clonos/one.py", "def late():\n    from clonos import small, long, shared\n"),
        Source("clonos/two.py", "if TYPE_CHECKING:\n    from clonos.shared import Name\n"),
    ]
    assert small_with_one_importer(files) == {"clonos/small.py": "clonos/one.py"}
