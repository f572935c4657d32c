"""Shipping of code to slots: the job's own modules by value, installed ones by name."""

import dataclasses
import json
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from clonos.core.model.errors import JobError
from clonos.io.process.pickling import own_modules, pack, pickled

ROOT = Path(__file__).parents[3]
JOB = """
from pathlib import PurePath
FACTOR = 3
class Doubler:
    def __call__(self, number): return helper(number) * FACTOR
def helper(number): return number * 2
"""


def _imported(folder: Path, monkeypatch: pytest.MonkeyPatch) -> object:
    (folder / "a_job_of_mine.py").write_text(JOB, "utf-8")
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delitem(sys.modules, "a_job_of_mine", raising=False)
    import a_job_of_mine  # type: ignore[import-not-found]

    return a_job_of_mine.Doubler()


def test_the_jobs_own_module_need_not_be_importable_in_the_slot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "birth").write_bytes(pack(_imported(tmp_path, monkeypatch)))
    program = f"import pickle; print(pickle.load(open({str(tmp_path / 'birth')!r}, 'rb'))(7))"
    output = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, cwd="/")
    assert (output.stdout, output.stderr) == ("42\n", "")


def test_modules_of_python_of_packages_and_of_the_library_are_not_shipped_by_value(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _imported(tmp_path, monkeypatch)
    names = {module.__name__ for module in own_modules()}
    assert "a_job_of_mine" in names
    assert not names & {json.__name__, pytest.__name__, pack.__module__, "numpy", "cloudpickle"}


def test_an_object_that_cannot_be_pickled_is_a_job_error() -> None:
    lock = threading.Lock()
    with pytest.raises(JobError, match=r"cannot be sent to its slots.*lock"):
        pack(lambda: lock)


def test_the_part_that_cannot_be_pickled_is_named() -> None:
    lock = threading.Lock()
    parts = [("first", lambda: 1), ("second", lambda: lock), ("third", lambda: 3)]
    with pytest.raises(JobError, match=r"cannot be sent to its slots: the step second: .*lock"):
        pack(parts, parts)


STRUCTS = """
import msgspec
class Leaf(msgspec.Struct, frozen=True, rename="camel", tag="a leaf"):
    far_field: int
    near: str = "q"
    rest: list = msgspec.field(default_factory=list)
    def grown(self): return Leaf(self.far_field + 1, rest=[self])
class Wide(Leaf, kw_only=True):
    before: "Wide | None" = None
    width: int
"""


def test_a_struct_of_the_jobs_own_module_stays_one_class_after_several_pickles(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "structs_of_mine.py").write_text(STRUCTS, "utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    import structs_of_mine as mine  # type: ignore[import-not-found]

    leaf = mine.Leaf(3).grown()
    for number, thing in enumerate([(mine.Leaf, mine.Wide, leaf), mine.Leaf]):
        (tmp_path / f"birth{number}").write_bytes(pack(thing))
        unpacked = pickle.loads((tmp_path / f"birth{number}").read_bytes())  # noqa: S301 just written
        assert (unpacked[0] if isinstance(unpacked, tuple) else unpacked) is mine.Leaf
    program = (
        "import msgspec, pickle, sys\n"
        "(leaf, wide, one), again = [pickle.load(open(name, 'rb')) for name in sys.argv[1:]]\n"
        "assert again is leaf and type(one) is leaf and type(one.grown()) is leaf\n"
        "wider = msgspec.json.decode(msgspec.json.encode(wide(1, width=2, before=wide(0, width=1))), type=wide)\n"
        "print(one, msgspec.json.encode(one).decode(), wider)"
    )
    files = [str(tmp_path / "birth0"), str(tmp_path / "birth1")]
    output = subprocess.run(
        [sys.executable, "-c", program, *files], capture_output=True, text=True, check=False, cwd=ROOT
    )
    assert output.stderr == ""
    assert output.stdout == (
        "Leaf(far_field=4, near='q', rest=[Leaf(far_field=3, near='q', rest=[])])"
        ' {"type":"a leaf","farField":4,"near":"q","rest":[{"type":"a leaf","farField":3,"near":"q","rest":[]}]}'
        " Wide(far_field=1, near='q', rest=[], before=Wide(far_field=0, near='q', rest=[], before=None, width=1),"
        " width=2)\n"
    )


NAMED_TYPES = """
from __future__ import annotations
from dataclasses import dataclass
from datetime import date
from typing import Annotated, Literal, NamedTuple, Required, TypedDict
from msgspec import Meta

class Place(NamedTuple):
    name: Literal["shop", "hall"]

class Note(TypedDict, total=False):
    day: Required[date]
    after: Note

@dataclass
class Rule:
    count: Annotated[int, Meta(ge=1)]
    place: Place
    notes: list[Note]
    next: Rule | None = None
"""


def test_the_types_of_fields_that_are_written_as_texts_are_known_without_the_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "rules_of_mine.py").write_text(NAMED_TYPES, "utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    import rules_of_mine as mine  # type: ignore[import-not-found]

    (tmp_path / "birth").write_bytes(pack(mine.Rule))
    program = (
        "import json, msgspec, pickle, sys\n"
        "rule = pickle.load(open(sys.argv[1], 'rb'))\n"
        "notes = [{'day': '2026-11-30', 'after': {'day': '2026-12-01'}}]\n"
        "text = json.dumps({'count': 1, 'place': ['hall'], 'notes': notes,"
        " 'next': {'count': 2, 'place': ['shop'], 'notes': []}})\n"
        "print(msgspec.json.decode(text, type=rule))\n"
        "for wrong in (text.replace('1,', '0,'), text.replace('shop', 'yard')):\n"
        "    try: msgspec.json.decode(wrong, type=rule)\n"
        "    except msgspec.ValidationError as error: print(error)"
    )
    output = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "birth")], capture_output=True, text=True, check=False, cwd=ROOT
    )
    assert output.stderr == ""
    assert output.stdout == (
        "Rule(count=1, place=Place(name='hall'), notes=[{'day': datetime.date(2026, 11, 30),"
        " 'after': {'day': datetime.date(2026, 12, 1)}}], next=Rule(count=2, place=Place(name='shop'), notes=[],"
        " next=None))\n"
        "Expected `int` >= 1 - at `$.count`\n"
        "Invalid enum value 'yard' - at `$.next.place[0]`\n"
    )


def test_a_dataclass_that_msgspec_has_converted_to_is_sent() -> None:
    @dataclasses.dataclass
    class Rule:
        name: str

    rule = msgspec.convert({"name": "a"}, Rule)
    packed = pack([rule])
    assert pickle.loads(packed) == [rule]  # noqa: S301 it was made here
    assert msgspec.convert({"name": "a"}, Rule) == rule


def test_the_code_of_a_function_keeps_the_name_of_its_file() -> None:
    def outer() -> Callable[[], int]:
        return lambda: 1

    travelled = pickle.loads(pickled(outer))  # noqa: S301 - our own bytes
    assert travelled.__code__.co_filename == __file__
    assert travelled().__code__.co_filename == __file__
