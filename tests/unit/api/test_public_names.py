"""``from clonos import ...``: the names that exist, and the cost of importing it."""

from __future__ import annotations

import ast
import inspect
import pydoc
import re
import subprocess
import sys
from operator import attrgetter
from pathlib import Path
from types import ModuleType

import pytest

import clonos
from clonos.operators import connector_contract

HEAVY = ("zmq", "pyspark", "pyarrow", "numpy", "msgspec", "urllib3", "clonos.core")
NOT_IN_A_DRIVER = ("pyspark", "pyarrow", "numpy", "rich", "clonos_standby.slot.host", "clonos.core.task.task")


def test_each_public_name_can_be_imported() -> None:
    for name in clonos.__all__:
        assert getattr(clonos, name) is getattr(clonos, name)
        assert name in dir(clonos)


@pytest.mark.parametrize("name", [name for name in clonos.__all__ if name != "logger"])
def test_help_shows_how_a_public_name_is_written_and_what_it_does(name: str) -> None:
    found = getattr(clonos, name)
    members = getattr(found, "__all__", ()) if isinstance(found, ModuleType) else ()
    for path in (name, *(f"{name}.{member}" for member in members)):
        shown = pydoc.plain(pydoc.render_doc(f"clonos.{path}"))
        value = attrgetter(path)(clonos)
        if inspect.isfunction(value):
            assert re.search(rf"\b{value.__name__}\(.*\) -> ", shown), path
        if inspect.isroutine(value) or inspect.isclass(value) or inspect.ismodule(value):
            assert value.__doc__, path


def test_help_shows_the_options_of_a_step_that_it_unpacks() -> None:
    shown = pydoc.plain(pydoc.render_doc(clonos.Stream.join))
    for option in ("name: 'str | None' = None", "effects: 'bool' = False", "closed: 'Closed' = 'both'"):
        assert option in shown


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


@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "heavy"),
    [
        ("import clonos", HEAVY),
        ("from clonos import Job, files, values", (*NOT_IN_A_DRIVER, "zmq", "clonos_standby", "clonos.job.handle")),
        ("from clonos.cli import main; main(['--help'])", (*NOT_IN_A_DRIVER, "zmq", "msgspec", "clonos.job.handle")),
        ("import clonos.cli.dev", (*NOT_IN_A_DRIVER, "zmq", "msgspec", "clonos.job.handle")),
        ("import clonos.cli.console, clonos.job.handle, clonos.api.plan.compiling", NOT_IN_A_DRIVER),
    ],
)
def test_an_import_loads_no_module_that_it_can_do_without(code: str, heavy: tuple[str, ...]) -> None:
    program = (
        "import contextlib, io, sys\n"
        "with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):\n"
        f"    {code}\n"
        f"print([name for name in {heavy!r} if name in sys.modules])"
    )
    finished = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert finished.stdout == "[]\n"
