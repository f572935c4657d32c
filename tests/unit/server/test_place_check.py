"""The store and the savepoint that a submitted job names: what its start would refuse is refused at once."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from clonos import Job, collect, values
from clonos.config import resolve_keywords
from clonos.core.model.errors import JobError
from clonos.io.store.object_files import StoreFailed, StoreUnsupported
from clonos.io.store.savepoint import SavepointMissing
from clonos.io.store.store import CheckpointStore, StoreOfAnotherJob
from clonos.job.description import graph_of
from clonos.server.submission import place_check
from clonos.server.submission.place_check import PlacesSilent, check_places


def _check(**places: str) -> None:
    job = Job("words")
    job.source(values(["a"])).sink(collect())
    check_places(graph_of(job), resolve_keywords(places))


@pytest.mark.parametrize(
    ("store", "kind", "reason"),
    [
        ("ftp://host/store", StoreUnsupported, "ftp"),
        ("http://[", StoreUnsupported, "it is not a URL"),
        ("a\0b", StoreUnsupported, "it has a zero byte"),
        ("/proc/none/store", StoreFailed, "/proc/none/store"),
    ],
)
def test_a_store_that_cannot_be_used_is_refused(store: str, kind: type[Exception], reason: str) -> None:
    with pytest.raises(kind, match=reason):
        _check(store=store)


@pytest.mark.parametrize(
    ("savepoint", "kind"),
    [("/none/savepoint", SavepointMissing), ("ftp://host/savepoint", StoreUnsupported), ("a\0b", StoreUnsupported)],
)
def test_a_savepoint_that_is_not_there_is_refused(savepoint: str, kind: type[Exception], tmp_path: Path) -> None:
    with pytest.raises(kind):
        _check(store=str(tmp_path / "store"), from_savepoint=savepoint)


def test_a_store_with_another_job_is_refused(tmp_path: Path) -> None:
    CheckpointStore(str(tmp_path)).open_job("another")
    with pytest.raises(StoreOfAnotherJob, match="holds another job: 'another'"):
        _check(store=str(tmp_path))


@pytest.mark.parametrize("is_there", [False, True])
def test_the_check_of_a_store_leaves_it_as_it_was(is_there: bool, tmp_path: Path) -> None:
    store = tmp_path / "store"
    if is_there:
        store.mkdir()
    _check(store=str(store))
    assert (list(store.iterdir()) if store.exists() else None) == ([] if is_there else None)


def test_a_store_that_does_not_answer_is_named(tmp_path: Path) -> None:
    silent = threading.Event()
    try:
        with pytest.raises(PlacesSilent, match=r"s3://far and s3://away did not answer within 20 s"):
            place_check.in_time(silent.wait, 0.01, PlacesSilent(("s3://far", "s3://away")))
    finally:
        silent.set()


def test_an_error_of_the_check_is_raised_again() -> None:
    def fail() -> None:
        raise JobError("wrong")

    with pytest.raises(JobError, match="wrong"):
        place_check.in_time(fail, 10.0, PlacesSilent(()))
