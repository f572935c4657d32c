"""Errors for a Java that is missing or too old for Spark."""

from pathlib import Path

import pytest

from clonos.spark.java import JavaUnfit, check_java, has_java, major_version
from clonos.spark.session import OwnContext


@pytest.mark.parametrize(
    ("output", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "1.8.0_402"', 8),
        ('openjdk version "21" 2023-09-19', 21),
        ("bash: java: command not found", None),
        ("", None),
    ],
)
def test_the_version_is_parsed_from_javas_output(output: str, version: int | None) -> None:
    assert major_version(output) == version


def _java(folder: Path, output: str) -> Path:
    program = folder / "bin" / "java"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\necho '{output}' >&2\n", "utf-8")
    program.chmod(0o755)
    return folder


def test_an_old_java_is_named_with_the_command_that_installs_the_right_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(_java(tmp_path, 'openjdk version "11.0.2"')))
    with pytest.raises(JavaUnfit, match=r"is Java 11\.\n  To install it: .*17"):
        check_java()


def test_a_missing_java_is_named_with_the_command_that_installs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(JavaUnfit, match=r"no working Java was found[\s\S]*17[\s\S]*--slots process"):
        check_java()


def test_a_new_enough_java_is_accepted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(_java(tmp_path, 'openjdk version "21.0.1"')))
    check_java()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # pyspark leaves its pipe open
def test_a_java_is_asked_for_its_version_only_when_spark_does_not_start_on_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = _java(tmp_path, 'openjdk version "11.0.2"')
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert has_java()
    with pytest.raises(JavaUnfit, match=r"is Java 11\."):
        OwnContext.start("job", "local-cluster[2,4,1024]", "1")
