"""Slots that have outlived their driver: which of them the next driver takes over, and which it ends."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from clonos import Job, blackhole, values
from clonos.config import JobSettings, RunOptions
from clonos.core.model.options import Options
from clonos.io.process.retained_slots import RetainedSlots
from clonos.job.continuing.taking_over import built_of, slots_to_take_over
from clonos.job.description import graph_of
from clonos.operators.job_image import JobImage
from tests.unit.io.test_retained_slots import registered

SINK: Any = blackhole()


class OwnSink(type(SINK)):  # type: ignore[misc]
    """A transactional sink that is none of the library's."""


def _image(sink: Any = SINK) -> JobImage:
    job = Job("words")
    job.source(values([1])).sink(sink)
    return graph_of(job).compile(Options(), parallelism=1)


@pytest.fixture
def slots(tmp_path: Path) -> Iterator[RetainedSlots]:
    """A slot that lives, built of "this"."""
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as process:
        slots = RetainedSlots(tmp_path / "slots.json")
        slots.begin("this", ())
        slots.add(registered(1, process.pid, "process-0"))
        yield slots


def test_living_slots_of_the_same_job_are_taken_over(slots: RetainedSlots) -> None:
    image = _image()
    found = slots_to_take_over("words", slots, "this", image, "")
    assert [each.register.slot for each in found] == [1]
    assert slots.living() == found


@pytest.mark.parametrize(
    ("what", "sink", "is_resumed", "reason"),
    [
        ("another version", SINK, True, "the library have changed"),
        ("this", SINK, False, "does not continue from its last checkpoint"),
        ("this", OwnSink(), True, "OwnSink may drop what they have prepared"),
    ],
)
def test_slots_that_cannot_be_taken_over_are_ended_and_the_log_names_the_reason(
    slots: RetainedSlots, caplog: pytest.LogCaptureFixture, what: str, sink: Any, is_resumed: bool, reason: str
) -> None:
    image = _image(sink)
    why_not = "" if is_resumed else "the job does not continue from its last checkpoint"
    assert slots_to_take_over("words", slots, what, image, why_not) == ()
    assert slots.living() == ()
    assert reason in caplog.text


def test_the_files_the_options_and_the_hash_seed_of_a_job_make_its_slots_differ(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    image, file = _image(), tmp_path / "job.py"
    file.write_text("version 1")
    first = built_of(str(file), image, JobSettings(), "1")
    assert built_of(str(file), image, JobSettings(), "1") == first
    others = [
        built_of(str(file), image, JobSettings(run=RunOptions(domains=2)), "1"),
        built_of(str(file), image, JobSettings(core=Options(lease_ms=7_000)), "1"),
        built_of(str(file), image, JobSettings(), "2"),
    ]
    file.write_text("version 2")
    others.append(built_of(str(file), image, JobSettings(), "1"))
    module = ModuleType("helper")
    module.__file__ = str(tmp_path / "helper.py")
    monkeypatch.setitem(sys.modules, "helper", module)
    for text in ("a helper", "another helper"):
        (tmp_path / "helper.py").write_text(text)
        others.append(built_of(str(file), image, JobSettings(), "1"))
    assert len({first, *others}) == 7


def test_slots_of_a_driver_that_began_a_job_are_the_same_for_the_driver_that_resumes_it(tmp_path: Path) -> None:
    image, file = _image(), tmp_path / "job.py"
    file.write_text("version 1")
    began, resumes = (JobSettings(run=RunOptions(resume=resume)) for resume in (False, True))
    first = built_of(str(file), image, began, "1")
    assert built_of(str(file), image, resumes, "1") == first
    wider = replace(image, plan=image.plan.with_widths({image.plan.vertices[0].name: 3}))
    assert built_of(str(file), wider, resumes, "1") == first
