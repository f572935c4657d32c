"""Which kernels run: said where they are not the native ones."""

from __future__ import annotations

import logging

import pytest

from clonos.api.graph import JobGraph
from clonos.core.model.options import Options
from clonos.job.launch import log_notes
from clonos.kernels import choice
from clonos.kernels.choice import kernels_in_use
from tests.unit.operators.driver import Outbox
from tests.unit.operators.samples import ColumnsGiven


@pytest.mark.parametrize(
    ("is_forced", "level", "why"),
    [
        (False, "WARNING", "the native ones were not built: install a C compiler"),
        (True, "INFO", "CLONOS_KERNELS is numpy"),
    ],
)
def test_a_job_with_columns_logs_one_line_where_the_native_kernels_are_not_in_use(
    is_forced: bool, level: str, why: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = JobGraph("job")
    graph.source(ColumnsGiven([{"word": "a"}])).key_by("word").count(name="n").sink(Outbox())
    image = graph.compile(Options(), parallelism=1)
    caplog.set_level(logging.INFO, logger="clonos.run")
    if is_forced:
        monkeypatch.setenv(choice.VARIABLE, choice.FORCED)
    else:
        monkeypatch.delenv(choice.VARIABLE, raising=False)
    monkeypatch.setattr(choice, "native", None)
    caplog.clear()
    log_notes(image, keepers=1)
    (record,) = [record for record in caplog.records if "kernels" in record.message]
    assert record.levelname == level
    assert record.message.startswith("batches of columns run on numpy kernels (")
    assert why in record.message
    caplog.clear()
    monkeypatch.setattr(choice, "native", object())
    log_notes(image, keepers=1)
    assert "kernels" not in caplog.text
    assert kernels_in_use() == "native kernels"
