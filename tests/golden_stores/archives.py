"""The archives of golden stores, and of golden records: where they are, what is in them, and the numbers of the formats
of this version."""

from __future__ import annotations

import io
import json
import lzma
import tarfile
from hashlib import sha256
from pathlib import Path
from typing import Final

from clonos.connectors import driver_outputs
from clonos.connectors.filesystem.output_parts import OUTPUT_FORMAT
from clonos.core.checkpoint.checkpoint_metadata import METADATA_FORMAT
from clonos.core.checkpoint.snapshot import SNAPSHOT_FORMAT
from clonos.core.values.rows import ROWS_FORMAT
from clonos.io.store.envelope import OBJECT_FORMAT, OBJECT_OF_PIECES_FORMAT
from clonos.io.store.metadata_chain import CHAIN_FORMAT
from clonos.io.store.store import STORE_FORMAT
from clonos.operators.state.state_changes import CHANGES_FORMAT

FOLDER: Final = Path(__file__).parent
CHECKSUMS: Final = FOLDER / "checksums.txt"
NUMBERS: Final = {
    "snapshot": SNAPSHOT_FORMAT,
    "piece of state": CHANGES_FORMAT,
    "checkpoint metadata": METADATA_FORMAT,
    "entry of the chain": CHAIN_FORMAT,
    "object": OBJECT_FORMAT,
    "object of pieces": OBJECT_OF_PIECES_FORMAT,
    "record of the job": STORE_FORMAT,
    "rows": ROWS_FORMAT,
    "output": OUTPUT_FORMAT,
    "prepared part": driver_outputs.PART_FORMAT,
}
"""The formats of which a store and an output folder consist, with the numbers that this version writes."""


def folders(place: Path = FOLDER) -> list[Path]:
    """Returns the folders of golden stores, the oldest one first."""
    return sorted(place.glob("format_*"), key=lambda folder: [*map(int, folder.name.split("_")[1:])])


def numbers_of(folder: Path) -> dict[str, int]:
    """Returns the numbers of the formats in a folder of golden stores."""
    numbers: dict[str, int] = json.loads((folder / "numbers.json").read_text("utf-8"))
    return numbers


def new_folder(place: Path = FOLDER, format: int = SNAPSHOT_FORMAT) -> Path:
    """Returns a folder for this version: ``format_4`` of the format of snapshots, then ``format_4_2``."""
    name, number = f"format_{format}", 1
    while (place / name).exists():
        number += 1
        name = f"format_{format}_{number}"
    return place / name


def pack(folder: Path, archive: Path) -> None:
    """Writes all files of a folder, without their owners and times."""
    found = io.BytesIO()
    with tarfile.open(fileobj=found, mode="w", format=tarfile.PAX_FORMAT) as written:
        for file in sorted(folder.rglob("*")):
            entry = tarfile.TarInfo(file.relative_to(folder).as_posix())
            if file.is_dir():
                entry.type, entry.mode = tarfile.DIRTYPE, 0o755
                written.addfile(entry)
            else:
                entry.size = file.stat().st_size
                written.addfile(entry, io.BytesIO(file.read_bytes()))
    archive.write_bytes(lzma.compress(found.getvalue(), preset=9 | lzma.PRESET_EXTREME))


def unpack(archive: Path, folder: Path) -> None:
    """Writes the files of an archive into a folder."""
    with tarfile.open(archive, "r:xz") as read:
        read.extractall(folder, filter="data")


def checksum_lines(folder: Path) -> list[str]:
    """Returns a line with the checksum of each file of a folder of golden stores."""
    files = sorted(file for file in folder.iterdir() if file.is_file())
    return [f"{sha256(file.read_bytes()).hexdigest()}  {folder.name}/{file.name}" for file in files]
