"""Output folder: hidden part files, and a manifest per checkpoint that makes its part files visible at once.

::

    .parts/<vertex>-<index>-<generation>-<incarnation>-<checkpoint>.jsonl   prepared; visible if a manifest names it
    _manifests/<checkpoint, 20 digits>.json                                 created once, never changed
    _manifests/owner.json                                                   the job that owns the output

A manifest is created atomically. Only ``withdraw`` and a start with overwrite remove what a manifest names. A part file
that no manifest names may still be committed, until a checkpoint at or after its own is.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress

import msgspec

from clonos.connectors.connector_errors import (
    ConnectorMisused,
    OutputConflict,
    OutputCorrupt,
    OutputFailed,
    OutputInUse,
    OutputTaken,
)
from clonos.connectors.filesystem.durable_files import WRITING, DurableFile, is_in_use, output_errors, sync_folder
from clonos.connectors.filesystem.output_parts import (
    MANIFEST_NAME,
    MANIFESTS,
    OUTPUT_FORMAT,
    OWNER,
    PART_NAME,
    PARTS,
    Manifest,
    Owner,
    Part,
    decode_part,
    decode_record,
    manifest_name,
)


class OutputFolder:
    """Output folder as the driver manages it."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._parts = f"{path}/{PARTS}"
        self._manifests = f"{path}/{MANIFESTS}"

    def prepare(self, job_id: str, resume: bool, overwrite: bool) -> None:
        """Claims the folder at the start of a job.

        Raises: OutputInUse: a fresh start finds other content. OutputTaken: it belongs to another job.
        ConnectorMisused: both ``resume`` and ``overwrite`` are set.
        """
        if resume and overwrite:
            raise ConnectorMisused(self.path, "a start can either resume or overwrite", "Choose one.")
        owner = self._owner()
        if resume and owner is not None:
            self._check_owner(job_id, owner)
            self.sweep()
            return
        if overwrite:
            if owner is not None and owner.job_id == job_id:
                raise OutputInUse(self.path, self._content(job_id, owner))
            self._clear()
        elif not resume and (content := self._content(job_id, owner)):
            raise OutputInUse(self.path, content)
        with output_errors(self.path, "created"):
            is_new = not os.path.isdir(self.path)
            for folder in (self.path, self._parts, self._manifests):
                os.makedirs(folder, exist_ok=True)
            sync_folder(self.path)
            if is_new:
                sync_folder(os.path.dirname(self.path))
        if not self._create(OWNER, msgspec.json.encode(Owner(OUTPUT_FORMAT, job_id))):
            raise OutputTaken(self.path, job_id, getattr(self._owner(), "job_id", "that is just starting"))

    def check(self, replaces: str) -> bool:
        """Checks that a fresh start can claim the folder; returns whether it holds output of the job ``replaces``.

        Raises: OutputInUse: it holds other content.
        """
        owner = self._owner()
        if owner is not None and owner.job_id == replaces:
            return True
        if content := self._content("", owner):
            raise OutputInUse(self.path, content)
        return False

    def release(self, job_id: str) -> None:
        """Gives the folder back when the start of the job has failed, if nothing was committed."""
        owner = self._owner()
        if owner is None or owner.job_id != job_id or self._numbers():
            return
        self._clear()
        for folder in (self._parts, self._manifests):
            with suppress(OSError):
                os.rmdir(folder)

    def commit(self, job_id: str, checkpoint: int, parts: Iterable[bytes]) -> None:
        """Makes the parts visible at once; a repeated call with equal parts does nothing.

        Raises: OutputConflict: the checkpoint has other parts already. OutputCorrupt, OutputFailed: a part file is
        damaged or missing. OutputTaken: the folder belongs to another job.
        """
        found = sorted((decode_part(part, self.path) for part in parts), key=_order)
        if not found:
            return
        self._check_owner(job_id, self._owner())
        manifest = Manifest(OUTPUT_FORMAT, job_id, checkpoint, tuple(found))
        if (earlier := self._manifest(checkpoint)) is not None:
            self._check_equal(manifest, earlier)
            return
        if len({(part.task, part.checkpoint) for part in found}) < len(found):
            raise OutputConflict(self.path, checkpoint, "a task prepared two parts for one barrier")
        for part in found:
            self._check_there(part)
        if not self._create(manifest_name(checkpoint), msgspec.json.format(msgspec.json.encode(manifest), indent=1)):
            created = self._manifest(checkpoint)
            assert created is not None, "a manifest is never removed while its job runs"
            self._check_equal(manifest, created)

    def manifests(self) -> list[Manifest]:
        """Returns all manifests in order of checkpoints.

        Raises: OutputCorrupt: a manifest cannot be read, or two name the same part file.
        """
        found = [manifest for number in self._numbers() if (manifest := self._manifest(number)) is not None]
        names = [part.name for manifest in found for part in manifest.parts]
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise OutputCorrupt(f"{self._manifests}", "each part in one manifest", f"{twice} in two")
        return found

    def withdraw(self, job_id: str, checkpoint: int) -> list[int]:
        """Removes the output committed after ``checkpoint``; returns the numbers of those checkpoints, latest first.

        The visible output is that of some checkpoint at every moment.
        """
        owner = self._owner()
        if owner is None:
            return []
        self._check_owner(job_id, owner)
        withdrawn = sorted((number for number in self._numbers() if number > checkpoint), reverse=True)
        for number in withdrawn:
            self._remove(f"{self._manifests}/{manifest_name(number)}")
        self.sweep(valid_until=checkpoint)
        return withdrawn

    def sweep(self, valid_until: int | None = None) -> int:
        """Removes files that can never become visible; returns their number.

        These are unfinished files that no process has open, and unnamed part files that were prepared at or before the
        last committed checkpoint or after ``valid_until``. The others may still be committed.
        """
        manifests = self.manifests()
        visible = {part.name for manifest in manifests for part in manifest.parts}
        last = max((manifest.checkpoint for manifest in manifests), default=-1)
        swept = 0
        for folder in (self._parts, self._manifests):
            for name in _names_in(folder):
                if name.endswith(WRITING):
                    is_dead = not is_in_use(f"{folder}/{name}")
                elif folder == self._parts and name not in visible and (match := PART_NAME.fullmatch(name)):
                    number = int(match["checkpoint"])
                    is_dead = number <= last or (valid_until is not None and number > valid_until)
                else:
                    continue
                if is_dead:
                    self._remove(f"{folder}/{name}")
                    swept += 1
        return swept

    def part_path(self, part: Part) -> str:
        """Returns the path of a part file."""
        return f"{self._parts}/{part.name}"

    def _owner(self) -> Owner | None:
        path = f"{self._manifests}/{OWNER}"
        data = _content_of(path)
        owner: Owner | None = None if data is None else decode_record(data, Owner, path)
        return owner

    def _check_owner(self, job_id: str, owner: Owner | None) -> None:
        actual = "no job (its folder is gone)" if owner is None else owner.job_id
        if actual != job_id:
            raise OutputTaken(self.path, job_id, actual)

    def _content(self, job_id: str, owner: Owner | None) -> str:
        """Describes what occupies the folder; "" if it is free for a fresh start."""
        if owner is not None:
            same = " (this job itself: do two of its sinks write to one folder?)" if owner.job_id == job_id else ""
            return f"{len(self._numbers())} committed checkpoints of the job {owner.job_id}{same}"
        visible = [name for name in _names_in(self.path) if not name.startswith(".") and name != MANIFESTS]
        if visible:
            return f"{len(visible)} files or folders that are not output of clonos, such as {visible[0]!r}"
        return "part files without an owner" if _names_in(self._parts) or self._numbers() else ""

    def _clear(self) -> None:
        """Removes an earlier output and nothing else: manifests first, latest checkpoint first."""
        for number in reversed(self._numbers()):
            self._remove(f"{self._manifests}/{manifest_name(number)}")
        self._remove(f"{self._manifests}/{OWNER}")
        for folder in (self._parts, self._manifests):
            for name in _names_in(folder):
                if name.endswith(WRITING) or PART_NAME.fullmatch(name):
                    self._remove(f"{folder}/{name}")

    def _numbers(self) -> list[int]:
        matches = map(MANIFEST_NAME.fullmatch, _names_in(self._manifests))
        return sorted(int(match["checkpoint"]) for match in matches if match)

    def _manifest(self, checkpoint: int) -> Manifest | None:
        path = f"{self._manifests}/{manifest_name(checkpoint)}"
        data = _content_of(path)
        manifest: Manifest | None = None if data is None else decode_record(data, Manifest, path)
        if manifest is not None and manifest.checkpoint != checkpoint:
            raise OutputCorrupt(path, f"what checkpoint {checkpoint} made visible", f"checkpoint {manifest.checkpoint}")
        return manifest

    def _check_equal(self, manifest: Manifest, earlier: Manifest) -> None:
        if manifest != earlier:
            names = ", ".join(sorted({part.name for part in manifest.parts} ^ {part.name for part in earlier.parts}))
            raise OutputConflict(self.path, manifest.checkpoint, f"its manifest exists with other parts ({names})")

    def _check_there(self, part: Part) -> None:
        path = self.part_path(part)
        try:
            actual_bytes = os.stat(path).st_size
        except OSError as error:
            reason = f"the driver does not find it: {error.strerror}; {part.task} wrote it under this path"
            raise OutputFailed(path, "committed", reason) from error
        if actual_bytes != part.size_bytes:
            raise OutputCorrupt(path, f"{part.size_bytes} bytes", f"{actual_bytes} bytes")

    def _create(self, name: str, data: bytes) -> bool:
        """Creates a file in ``_manifests`` atomically; returns False if it exists."""
        file = DurableFile.create_beside(f"{self._manifests}/{name}")
        try:
            file.write(data)
            return file.publish_if_absent(f"{self._manifests}/{name}")
        finally:
            file.discard()

    def _remove(self, path: str) -> None:
        with output_errors(path, "removed"):
            try:
                os.unlink(path)
            except FileNotFoundError:
                return
            sync_folder(os.path.dirname(path))


def readable_files(folder: str) -> list[str]:
    """Lists the input files of a folder: the committed part files of an output, else all files that are not hidden."""
    if os.path.isdir(f"{folder}/{MANIFESTS}"):
        output = OutputFolder(folder)
        return [output.part_path(part) for manifest in output.manifests() for part in manifest.parts]
    names = [name for name in _names_in(folder) if not name.startswith((".", "_"))]
    return [f"{folder}/{name}" for name in names if os.path.isfile(f"{folder}/{name}")]


def _order(part: Part) -> tuple[int, str, str]:
    return part.checkpoint, part.task, part.name


def _names_in(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise OutputFailed(folder, "listed", error.strerror or str(error)) from error


def _content_of(path: str) -> bytes | None:
    try:
        with open(path, "rb") as file:
            return file.read()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise OutputFailed(path, "read", error.strerror or str(error)) from error
