"""An object of the core changes its own fields only, and modules of the core do not name each other in a circle."""

import ast
from collections.abc import Iterator

import pytest

from tests.tidy.source import Source, sources

pytestmark = pytest.mark.static

OWN = frozenset({"self", "cls"})
EXEMPT = {
    "clonos/core/coordinator": "its handlers are the methods of one state, spread over files, which they take",
    "clonos/core/model/element_kind.py": "members of an enum get their properties once, right after its class",
}
"""Folders and files that may, with the reason. The list may only shrink."""


def _assigned(node: ast.AST) -> Iterator[ast.expr]:
    """Every target of an assignment or a deletion, those in tuples too."""
    targets: list[ast.expr] = []
    match node:
        case ast.Assign(targets=found) | ast.Delete(targets=found):
            targets += found
        case ast.AugAssign(target=target) | ast.AnnAssign(target=target) | ast.For(target=target):
            targets.append(target)
        case ast.With(items=items):
            targets += [item.optional_vars for item in items if item.optional_vars is not None]
    while targets:
        target = targets.pop()
        if isinstance(target, ast.Tuple | ast.List):
            targets += target.elts
        else:
            yield target.value if isinstance(target, ast.Starred) else target


def foreign_assignments(source: Source) -> list[str]:
    """Assignments to an attribute of something that is not the method's own object."""
    return [
        f"{source.path}:{target.lineno} {ast.unparse(target)}"
        for node in source.nodes
        for target in _assigned(node)
        if isinstance(target, ast.Attribute) and not (isinstance(target.value, ast.Name) and target.value.id in OWN)
    ]


def test_no_module_of_the_core_assigns_to_the_attributes_of_another_object() -> None:
    found = [
        each
        for source in sources()
        if source.is_under("clonos/core") and not source.is_under(*EXEMPT)
        for each in foreign_assignments(source)
    ]
    assert not found, "give the owner a method:\n" + "\n".join(found)


def test_each_exemption_is_still_needed() -> None:
    needed = {path for path in EXEMPT for source in sources() if source.is_under(path) and foreign_assignments(source)}
    assert needed == set(EXEMPT)


def _imported_for_types(source: Source) -> list[str]:
    """Modules of the project that a file imports only while types are checked."""
    return [
        f"{source.path}:{each.lineno} {each.module}"
        for node in source.nodes
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for each in ast.walk(node)
        if isinstance(each, ast.ImportFrom) and (each.module or "").startswith("clonos")
    ]


def test_no_module_of_the_core_imports_another_for_its_types_only() -> None:
    found = [each for source in sources() if source.is_under("clonos/core") for each in _imported_for_types(source)]
    assert not found, "pass values, or move the type down:\n" + "\n".join(found)


def test_an_import_for_types_only_is_found() -> None:
    text = "if TYPE_CHECKING:\n    import pyarrow\n    from clonos.core.slot.slot import Slot\n"
    assert _imported_for_types(Source("example.py", text)) == ["example.py:3 clonos.core.slot.slot"]


@pytest.mark.parametrize(
    "text",
    [
        "other.field = 1",
        "other.field += 1",
        "del other.field",
        "self.part.field = 1",
        "here, other.field = 1, 2",
        "other.field: int = 1",
        "for other.field in (): pass",
        "with open() as other.field: pass",
    ],
)
def test_an_assignment_to_another_object_is_found(text: str) -> None:
    assert foreign_assignments(Source("example.py", text))


@pytest.mark.parametrize("text", ["self.field = 1", "cls.field = 1", "name = other.field", "other.field[0] = 1"])
def test_an_assignment_to_self_is_allowed(text: str) -> None:
    assert not foreign_assignments(Source("example.py", text))
