"""Records that are refused: of another user, of another version, with modules that are missing, or damaged."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from clonos import Job, collect, values
from clonos.io.epochs.record_parts import HEAD, RecordDamaged, RecordPart
from clonos.replay.loading import RecordRefused, image_of, load_epoch
from clonos.replay.replay_session import replay
from tests.harnesses.recorded_jobs import record_job
from tests.harnesses.recorded_prices import job


@pytest.fixture
def record(tmp_path: Path) -> Path:
    return record_job(job(), tmp_path)["priced/0"]


def test_a_record_of_another_user_is_replayed_only_if_it_is_trusted(
    record: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 4_711)
    with pytest.raises(RecordRefused, match=r"another user owns it, and a record holds code .* Give --trust"):
        load_epoch(record)
    assert load_epoch(record, trust=True).task == "priced/0"


def _with_versions(record: Path, **versions: str) -> Path:
    head = json.loads((record / HEAD).read_text())
    (record / HEAD).write_text(json.dumps(head | {"versions": head["versions"] | versions}))
    return record


@pytest.mark.parametrize(("name", "version"), [("python", "3.2.1"), ("clonos", "0.0.1")])
def test_a_record_of_another_version_is_refused_with_both(name: str, version: str, record: Path) -> None:
    changed = _with_versions(record, **{name: version})
    with pytest.raises(RecordRefused, match=f"it was made with {name} {version}, and this is {name} .*--anyway"):
        load_epoch(changed)
    assert load_epoch(changed, anyway=True).task == "priced/0"


def test_another_patch_release_of_python_is_no_other_version(record: Path) -> None:
    version = f"{sys.version_info.major}.{sys.version_info.minor}.99"
    assert load_epoch(_with_versions(record, python=version)).task == "priced/0"


def test_a_folder_that_is_no_record_is_damaged(tmp_path: Path) -> None:
    with pytest.raises(RecordDamaged, match=r"it has no record\.json"):
        load_epoch(tmp_path)


def test_the_epoch_before_a_torn_record_is_replayed(tmp_path: Path) -> None:
    whole, torn = (record_job(job(), tmp_path / name)["priced/0"] for name in ("1", "2"))
    part = torn / RecordPart.INPUT
    part.write_bytes(part.read_bytes()[:-1])
    with pytest.raises(RecordDamaged, match="its part input is not what was written"):
        replay(torn)
    assert replay(whole).ended_as_recorded


def test_a_module_that_is_not_installed_is_named_with_its_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = tmp_path / "site-packages"
    installed.mkdir()
    (installed / "pricing_library.py").write_text("def price(row):\n    return row['n'] * 2\n")
    monkeypatch.syspath_prepend(installed)
    import pricing_library  # type: ignore[import-not-found]

    made = Job("prices")
    made.source(values([{"n": 1}]), name="shop").rebalance().map(pricing_library.price, name="priced").rebalance().sink(
        collect(), name="out"
    )
    epoch = load_epoch(record_job(made, tmp_path)["priced/0"])
    epoch = epoch._replace(head=replace(epoch.head, versions=epoch.head.versions | {"pricing_library": "1.7"}))
    assert image_of(epoch).plan.job_name == "prices"
    monkeypatch.delitem(sys.modules, "pricing_library")
    shutil.rmtree(installed)
    with pytest.raises(RecordRefused, match=r"imports pricing_library, which is not installed.*pricing_library 1\.7"):
        image_of(epoch)


def test_a_class_that_cannot_be_found_is_named(record: Path) -> None:
    epoch = load_epoch(record)

    image = pickle.dumps(os.path.join).replace(b"join", b"gone")
    with pytest.raises(RecordRefused, match=r"cannot be read here: .*gone"):
        image_of(epoch._replace(image=image))
