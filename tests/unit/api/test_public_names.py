"""``from clonos import ...``: the names that exist, and the cost of importing it."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import clonos
from clonos.operators import connector_contract

HEAVY = ("zmq", "pyspark", "pyarrow", "numpy", "msgspec", "urllib3", "clonos.core")


@pytest.mark.parametrize("name", clonos.__all__)
def test_each_public_name_can_be_imported(name: str) -> None:
    assert getattr(clonos, name) is getattr(clonos, name)
    assert name in dir(clonos)


def test_a_type_checker_sees_the_public_names() -> None:
    tree = ast.parse(Path(clonos.__file__).read_text("utf-8"))
    typed = {
        alias.asname
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module != "__future__"
        for alias in node.names
        if alias.asname
    }
    assert sorted(typed) == clonos.__all__


def test_everything_that_the_author_of_a_connector_implements_is_public() -> None:
    """``RecordBatch`` stands for pyarrow's class, which authors import from there."""
    tree = ast.parse(Path(connector_contract.__file__).read_text("utf-8"))
    contract = {node.name for node in tree.body if isinstance(node, ast.ClassDef)} - {"RecordBatch"}
    assert len(contract) >= 16
    assert sorted(contract - set(clonos.__all__)) == []


def test_an_unknown_name_raises_attribute_error() -> None:
    with pytest.raises(AttributeError, match="clonos has no nonsense"):
        clonos.nonsense  # noqa: B018


def test_importing_the_package_loads_nothing_heavy() -> None:
    code = f"import sys, clonos; print([name for name in {HEAVY!r} if name in sys.modules])"
    finished = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert finished.stdout == "[]\n"
