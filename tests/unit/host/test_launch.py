"""A job is resumed only from its own metadata."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from clonos.core.checkpoint.checkpoint_metadata import MetadataMalformed, encode_metadata, metadata_of_start
from clonos.core.model.ids import CheckpointId
from clonos.io.store.store import CheckpointStore
from clonos.job.continuing.resuming import metadata_of
from tests.harnesses.lone_slot import small_image


def test_metadata_of_another_job_is_refused_by_name(tmp_path: Path) -> None:
    store = CheckpointStore(str(tmp_path))
    record = store.open_job("small")
    metadata = metadata_of_start(small_image().plan, record.job_id, 1)
    store.append_checkpoint(1, encode_metadata(msgspec.structs.replace(metadata, checkpoint=CheckpointId(1))))
    found = CheckpointStore(str(tmp_path))
    found.find_job()
    assert metadata_of(found, record).checkpoint == 1
    other = msgspec.structs.replace(metadata, checkpoint=CheckpointId(2), job_id="other-1")
    store.append_checkpoint(2, encode_metadata(other))
    found.find_job()
    with pytest.raises(MetadataMalformed, match="checkpoint 2 belongs to job other-1, not to job small-"):
        metadata_of(found, record)
