"""The archives of golden records: the formats of which they consist, and the job that a record is given."""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from clonos.core.checkpoint.snapshot import SNAPSHOT_FORMAT
from clonos.core.values.elements import TIMED_ROWS_FORMAT
from clonos.core.values.rows import ROWS_FORMAT
from clonos.io.epochs.record_parts import HEAD, RECORD_FORMAT, RecordPart
from clonos.operators.state.state_changes import CHANGES_FORMAT

FOLDER: Final = Path(__file__).parent
CHECKSUMS: Final = FOLDER / "checksums.txt"
SERVER: Final = "server.txt"
"""File with the address that the job of the demo asked, of which the log has a digest."""

NUMBERS: Final = {
    "record": RECORD_FORMAT,
    "snapshot": SNAPSHOT_FORMAT,
    "piece of state": CHANGES_FORMAT,
    "rows": ROWS_FORMAT,
    "rows with times": TIMED_ROWS_FORMAT,
}
"""The formats of which a record consists, with the numbers that this version writes. The causal log has no number: it
is part of the format of records."""


def records_in(folder: Path) -> list[Path]:
    """Returns the folders of records below a folder."""
    return sorted(head.parent for head in folder.rglob(HEAD))


def change_record(folder: Path, parts: Mapping[RecordPart, bytes], **fields: Any) -> None:
    """Gives a record other parts and other fields of its head."""
    head = json.loads((folder / HEAD).read_text("utf-8"))
    for part, content in parts.items():
        (folder / part).write_bytes(content)
        head["parts"][part] = {"bytes": len(content), "sha256": sha256(content).hexdigest()}
    (folder / HEAD).write_text(json.dumps({**head, **fields}, indent=2), "utf-8")
