"""Loading of a record: whether it can be used here, and what it holds."""

from __future__ import annotations

import linecache
import os
import pickle
import platform
from pathlib import Path
from typing import Final

from clonos.core.checkpoint.snapshot import decode_snapshot
from clonos.core.model.errors import JobError
from clonos.core.model.ids import ChannelId
from clonos.core.wire.capture_messages import Elements
from clonos.io.epochs.record_parts import HEAD, JournalBytes, SourceRecords
from clonos.io.epochs.record_reader import EpochRecord
from clonos.operators.job_image import JobImage
from clonos.replay.epoch import Epoch

PYTHON: Final = "python"


class RecordRefused(JobError):
    """A record is not used. ``remedy``: what the user can do."""

    folder: str
    reason: str
    remedy: str

    def __str__(self) -> str:
        return f"the record {self.folder} is not replayed: {self.reason}. {self.remedy}"


def load_epoch(folder: str | os.PathLike[str], *, trust: bool = False, anyway: bool = False) -> Epoch:
    """Returns the record of a folder.

    ``trust``: of another user too, whose code it runs. ``anyway``: of another version of Python or clonos too.

    Raises: RecordRefused. RecordDamaged: it cannot be read. FormatUnknown: another version wrote it.
    """
    path = Path(folder)
    if not trust and path.exists() and path.stat().st_uid != os.getuid():
        raise RecordRefused(
            str(folder),
            "another user owns it, and a record holds code (it is pickled), which a replay runs as you",
            "Give --trust if you trust who wrote it",
        )
    record = EpochRecord(path)
    head = record.head
    if not anyway:
        _check_versions(str(folder), head.versions)
    state = tuple((name, tuple(pieces)) for name, pieces in record.state())
    snapshot = decode_snapshot(state[-1][1][0], state[-1][0]) if state else None
    elements = dict[ChannelId, list[Elements]]()
    reads: list[SourceRecords] = []
    journal = b""
    for piece in record.inputs():
        if isinstance(piece, Elements):
            elements.setdefault(piece.channel, []).append(piece)
        elif isinstance(piece, SourceRecords):
            reads.append(piece)
        else:
            assert isinstance(piece, JournalBytes), piece
            journal += piece.data
    return Epoch(
        folder=str(folder),
        head=head,
        image=record.job(),
        log=record.log(),
        snapshot=snapshot,
        state=state,
        input={channel: tuple(each) for channel, each in elements.items()},
        reads=tuple(reads),
        journal=journal,
        expected=tuple(record.expected()),
        sources={each.name: each.text for each in record.sources()},
    )


def _check_versions(folder: str, recorded: dict[str, str]) -> None:
    """Raises: RecordRefused: a version differs with which the results may differ, or the code cannot be read."""
    for name, version in versions_here().items():
        was = recorded.get(name, version)
        if _significant(name, was) != _significant(name, version):
            raise RecordRefused(
                folder,
                f"it was made with {name} {was}, and this is {name} {version}",
                f"Use {name} {was}, or give --anyway: the replay may then differ for that reason alone",
            )


def versions_here() -> dict[str, str]:
    """Returns the versions of Python and clonos."""
    import clonos

    return {PYTHON: platform.python_version(), "clonos": clonos.__version__}


def _significant(name: str, version: str) -> str:
    """Returns the part of a version that has to be equal: of Python the minor version, whose pickled code differs."""
    return ".".join(version.split(".")[:2]) if name == PYTHON else version


def image_of(epoch: Epoch) -> JobImage:
    """Returns the job of a record, with new objects each time.

    Raises: RecordRefused: a module that it imports is not here, or the record has no code.
    """
    if not epoch.has_code:
        raise RecordRefused(
            epoch.folder,
            "it has no code, because the job had record_code=False or redact",
            "Give the job that it was made with: --code FILE[:NAME]",
        )
    try:
        image: JobImage = pickle.loads(epoch.image)  # noqa: S301  of a record that the user trusts
    except ModuleNotFoundError as error:
        raise RecordRefused(
            epoch.folder,
            f"its job imports {error.name}, which is not installed here",
            f"Install {error.name}{_version_of(epoch, error.name)}; the modules of the job itself are in the record",
        ) from error
    except (AttributeError, ImportError) as error:
        raise RecordRefused(
            epoch.folder, f"its job cannot be read here: {error}", "Install the versions that record.json names"
        ) from error
    widths = dict(epoch.head.widths)
    if widths:
        from dataclasses import replace

        image = replace(image, plan=image.plan.with_widths(widths))
    return image


def show_recorded_lines(epoch: Epoch, is_shown: bool = True) -> None:
    """Lets tracebacks and the debugger show the lines of source files as they were recorded, which may have changed or
    may not be here; or those of the files again."""
    for name, text in epoch.sources.items():
        linecache.cache.pop(name, None)
        if is_shown:
            linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)


def _version_of(epoch: Epoch, module: str | None) -> str:
    version = epoch.head.versions.get(str(module).partition(".")[0])
    return "" if version is None else f" {version}"


def is_record(folder: str | os.PathLike[str]) -> bool:
    """Returns whether a folder holds a record."""
    return (Path(folder) / HEAD).is_file()
