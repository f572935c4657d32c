"""Every unit test of the core judges mutants, in whatever folder below ``tests/unit/core`` it lies."""

from tests.mutation.judging import UNIT_FOLDERS, unit_files
from tests.tidy.source import ROOT

UNIT = ROOT / "tests" / "unit"


def test_a_unit_test_in_a_subfolder_judges_mutants() -> None:
    wanted = {file.relative_to(ROOT).as_posix() for name in UNIT_FOLDERS for file in (UNIT / name).rglob("test_*.py")}
    assert "tests/unit/core/slot/test_failures.py" in wanted
    assert set(unit_files(ROOT)) == wanted


def test_every_folder_of_judging_tests_has_tests() -> None:
    assert [name for name in UNIT_FOLDERS if not any((UNIT / name).rglob("test_*.py"))] == []
