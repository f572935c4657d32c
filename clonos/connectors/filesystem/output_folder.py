"""Output folder: committed part files, and beside it a hidden folder with prepared parts and a manifest per checkpoint.

::

    out/part-<checkpoint>-<vertex>-<index>-<generation>-<incarnation>.jsonl   committed
    .out.clonos/parts/part-<...>.jsonl.prepared                               not committed, or of a single file
    .out.clonos/manifests/<checkpoint, 20 digits>.manifest                    created once, never changed
    .out.clonos/manifests/owner                                               the job that owns the output
    .out.clonos/manifests/last                                                checkpoint of the last manifest

A commit renames the parts of a durable checkpoint into the output folder and then creates the manifest, atomically. So
all rows in the output folder are committed, and a manifest names only files that are there. The resume of the job
repeats a commit that was interrupted. Only ``roll_back`` and overwriting remove what a manifest names. A part
file that no manifest names may still be committed, until a checkpoint at or after its own is. Of files whose records
choose their names, the manifest comes first (``check_names_free``).

Each manifest names the one before, and ``last`` names the last one. So a lost manifest is an error: without it, its
rows would be gone, and its parts would look like those of a dead task.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from contextlib import nullcontext, suppress

import msgspec

from clonos.connectors.connector_errors import (
    InvalidConnector,
    NotOutputOwner,
    OutputConflict,
    OutputCorrupt,
    OutputFailed,
    OutputInUse,
    UnexpectedOutput,
)
from clonos.connectors.filesystem.durable_files import WRITING, at_first_start, output_errors
from clonos.connectors.filesystem.output_files import files_of
from clonos.connectors.filesystem.output_parts import (
    LAST,
    MANIFEST_NAME,
    MANIFESTS,
    NO_CHECKPOINT,
    OUTPUT_FORMAT,
    OWNER,
    PARTS,
    PREPARED,
    LastManifest,
    Manifest,
    Owner,
    Part,
    check_names_free,
    decode_parts,
    decode_record,
    is_part,
    manifest_name,
    part_match,
    part_order,
    still_hidden,
)
from clonos.core.wire.decoding import FormatUnknown

logger = logging.getLogger("clonos.run")


class OutputFolder:
    """Output as the driver manages it: a folder, or a single file that appears when the job has ended."""

    def __init__(self, path: str) -> None:
        self.files, self.path = files_of(path)
        self.state = self.files.state_folder(self.path)
        self._parts = f"{self.state}/{PARTS}"
        self._manifests = f"{self.state}/{MANIFESTS}"

    def prepare(self, job_id: str, resume: bool, overwrite: bool, is_single: bool = False) -> bool:
        """Claims the output at the start of a job; returns whether it is new.

        Raises: OutputInUse, UnexpectedOutput: a fresh start finds other content. NotOutputOwner: it belongs to another
        job. InvalidConnector: both ``resume`` and ``overwrite`` are set, or the folder cannot be an output.

        If a manifest is missing, a resume changes nothing: ``roll_back`` and ``commit`` judge whether it is needed.
        """
        if resume and overwrite:
            raise InvalidConnector(self.path, "a start can either resume or overwrite", "Choose one.")
        with nullcontext() if resume else at_first_start():
            return self._prepare(job_id, resume, overwrite, is_single)

    def _prepare(self, job_id: str, resume: bool, overwrite: bool, is_single: bool) -> bool:
        self.files.check_place(self.path, is_single, is_part)
        owner = self._owner()
        if resume and owner is not None:
            self._check_owner(job_id, owner)
            if owner.is_single != is_single:
                started = "with" if owner.is_single else "without"
                raise InvalidConnector(
                    self.path, f"the job was started {started} single=True", "Resume it with the same option."
                )
            self._make_output(is_single)
            manifests, missing = self._read_chain()
            if missing is None:
                if manifests and self._last() is None:
                    self._write_last(manifests[-1].checkpoint)
                self._show_named(part for manifest in manifests for part in manifest.parts)
                self.sweep()
                self._warn_of_missing_parts(is_single)
            return False
        if not overwrite or (owner is not None and owner.job_id == job_id):
            self._check_free(job_id, owner, is_single, resume)
        if not resume:
            self._clear(owner)
        for folder in (self._parts, self._manifests):
            self.files.make_folder(folder)
        if not self._create(OWNER, msgspec.json.encode(Owner(OUTPUT_FORMAT, job_id, is_single))):
            raise NotOutputOwner(self.path, job_id, getattr(self._owner(), "job_id", "that is just starting"))
        self._make_output(is_single)
        return True

    def check(self, replaces: str, is_single: bool = False) -> bool:
        """Checks that a fresh start can claim the folder; returns whether it holds output of the job ``replaces``.

        Raises: OutputInUse, UnexpectedOutput: it holds other content. InvalidConnector, OutputUnusable: it cannot be an
        output.
        """
        with at_first_start():
            self.files.check_place(self.path, is_single, is_part)
            owner = self._owner()
            if owner is not None and owner.job_id == replaces:
                return True
            self._check_free("", owner, is_single, resume=False)
            return False

    def release(self, job_id: str) -> None:
        """Gives the folder back when the start of the job has failed, if nothing was committed."""
        owner = self._owner()
        if owner is None or owner.job_id != job_id or self._numbers():
            return
        self._clear(None)  # without the file of a user, which only the end of a job replaces
        for folder in (self._parts, self._manifests, self.state, self.path):
            self.files.remove_folder(folder)

    def commit(self, job_id: str, checkpoint: int, parts: Iterable[bytes]) -> None:
        """Makes the parts visible; a repeated call with equal parts does nothing.

        Raises: OutputConflict: the checkpoint has other parts already. OutputCorrupt, OutputFailed: a part file is
        damaged or missing, or an earlier manifest. NotOutputOwner: the folder belongs to another job.
        """
        found = sorted((part for data in parts for part in decode_parts(data, self.path)), key=part_order)
        if not found:
            return
        owner = self._owner()
        self._check_owner(job_id, owner)
        if (earlier := self._manifest(checkpoint)) is not None:
            self._check_equal(Manifest(OUTPUT_FORMAT, job_id, checkpoint, earlier.previous, tuple(found)), earlier)
            if self._numbers()[-1] == checkpoint:
                self._write_last(checkpoint)  # the driver may have died before it did
            self._show_named(found)
            return
        manifest = Manifest(OUTPUT_FORMAT, job_id, checkpoint, self._previous(checkpoint), tuple(found))
        names = {part.name for part in found}
        lives = {(part.task, part.checkpoint, part.generation, part.incarnation) for part in found}
        if len(names) < len(found) or len({life[:2] for life in lives}) < len(lives):
            raise OutputConflict(self.path, checkpoint, "a task prepared two parts for one barrier")
        hidden = [part for part in found if self._check_there(part)]
        if any(part.shown_as for part in found):
            check_names_free(self.files, self.path, checkpoint, found)
        elif owner is not None and not owner.is_single:
            self._show(hidden)
        if not self._create(manifest_name(checkpoint), msgspec.json.format(msgspec.json.encode(manifest), indent=1)):
            created = self._manifest(checkpoint)
            assert created is not None, "a manifest is never removed while its job runs"
            self._check_equal(manifest, created)
        self._write_last(checkpoint)
        self._show_named(found)

    def manifests(self) -> list[Manifest]:
        """Returns all manifests in order of checkpoints.

        Raises: OutputCorrupt: a manifest is missing or cannot be read, or two name the same part file.
        """
        found, missing = self._read_chain()
        if missing is not None:
            raise self._lost(missing)
        names = [part.name for manifest in found for part in manifest.parts]
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise OutputCorrupt(f"{self._manifests}", "each part in one manifest", f"{twice} in two")
        return found

    def has_manifests(self) -> bool:
        """Returns whether the folder is the output of a job."""
        return self.files.is_folder(self._manifests)

    def committed_files(self) -> list[tuple[Manifest, Part, str]]:
        """Returns the committed part files with their manifests and paths, in order of checkpoints."""
        owner = self._owner()
        is_single = owner is not None and owner.is_single
        found = [(manifest, part) for manifest in self.manifests() for part in manifest.parts]
        return [
            (m, p, self.files.input_path(self._prepared(p.name) if is_single else self._shown(p))) for m, p in found
        ]

    def roll_back(self, job_id: str, checkpoint: int) -> list[int]:
        """Removes the output committed after ``checkpoint``; returns the numbers of those checkpoints, latest first.

        The manifests show the output of some checkpoint at every moment.

        Raises: OutputCorrupt: a manifest at or before ``checkpoint`` is missing. If it is that of ``checkpoint``, the
        commit that follows writes it again.
        """
        owner = self._owner()
        if owner is None:
            return []
        self._check_owner(job_id, owner)
        withdrawn = sorted((number for number in self._numbers() if number > checkpoint), reverse=True)
        if withdrawn:
            self._remove_single(owner)
        self._lower_last(checkpoint, withdrawn)
        for number in withdrawn:
            self._remove_named(number)
            self.files.remove(f"{self._manifests}/{manifest_name(number)}")
        if self._read_chain()[1] != checkpoint:
            self.sweep(valid_until=checkpoint)
        return withdrawn

    def sweep(self, valid_until: int | None = None) -> int:
        """Removes files that can never become committed; returns their number.

        These are unfinished files that no process has open, and unnamed part files that were prepared at or before the
        last committed checkpoint or after ``valid_until``.

        Raises: OutputCorrupt: a manifest is missing, so that its parts look as if no checkpoint had committed them.
        """
        manifests = self.manifests()
        named = {part.name for manifest in manifests for part in manifest.parts}
        last = max((manifest.checkpoint for manifest in manifests), default=-1)
        swept = 0
        visible = []
        # The output comes last: a commit of a driver that was replaced may meanwhile rename parts into it.
        for folder in (self._manifests, self._parts, self.path):
            for name in self._names_below(folder):
                if folder != self.path and name.endswith(WRITING):
                    is_dead = not self.files.is_in_use(f"{folder}/{name}")
                elif (match := part_match(name)) and match[0] not in named:
                    number = int(match["checkpoint"])
                    is_dead = number <= last or (valid_until is not None and number > valid_until)
                else:
                    continue
                if is_dead:
                    self._remove(folder, name)
                    swept += 1
                    visible += [name] if folder == self.path and valid_until is None else []
        if visible:
            logger.warning(
                "%d part files that no manifest names were removed from %s, such as %s: an interrupted commit of"
                " another driver left them there",
                *(len(visible), self.path, visible[0]),
            )
        return swept

    def abort(self, job_id: str, checkpoint: int, generation: int) -> None:
        """Removes prepared part files that no checkpoint will commit: see ``connector_contract.AbortingSink``."""
        owner = self._owner()
        self._check_owner(job_id, owner)
        is_single = owner is not None and owner.is_single  # whose committed parts stay where they are
        named = {part.name for manifest in (self.manifests() if is_single else ()) for part in manifest.parts}
        for name in self._names_below(self._parts):
            match = None if name.endswith(WRITING) else part_match(name)
            if not match or match[0] in named or int(match["generation"]) > generation:
                continue
            if int(match["checkpoint"]) <= checkpoint:
                self.files.remove(f"{self._parts}/{name}")

    def check_job(self, job_id: str) -> None:
        """Raises NotOutputOwner unless the output belongs to the job."""
        self._check_owner(job_id, self._owner())

    def _prepared(self, name: str) -> str:
        return f"{self._parts}/{name}{PREPARED}"

    def _shown(self, part: Part) -> str:
        return f"{self.path}/{part.place}"

    def _show(self, parts: list[Part]) -> None:
        """Renames prepared parts into the output folder."""
        for part in parts:
            path = self._shown(part)
            self._make_folders(part.place.rpartition("/")[0])
            with output_errors(path, "created"):
                self.files.move(self._prepared(part.name), path)
        for folder in sorted({part.place.rpartition("/")[0] for part in parts}):
            self.files.sync(f"{self.path}/{folder}" if folder else self.path)

    def _show_named(self, parts: Iterable[Part]) -> None:
        """Shows the parts of a manifest whose records have chosen their names, unless it was done."""
        self._show(still_hidden(self.files, self._parts, parts))

    def _remove_named(self, number: int) -> None:
        """Removes the files of a checkpoint whose records have chosen their names."""
        for part in getattr(self._manifest(number), "parts", ()):
            if part.shown_as:
                self._remove(self.path, part.place)

    def _make_folders(self, folder: str) -> None:
        """Creates a folder of the output level by level, each durably."""
        path = self.path
        for name in folder.split("/") if folder else ():
            path = f"{path}/{name}"
            self.files.make_folder(path)

    def _names_below(self, folder: str) -> list[str]:
        """Returns the files in a folder of this output, in the output itself with those of its partitions."""
        if not self.files.is_folder(folder):
            return []
        return self.files.files_below(folder) if folder == self.path else self.files.names(folder)

    def _owner(self) -> Owner | None:
        path = f"{self._manifests}/{OWNER}"
        data = self.files.content(path)
        owner: Owner | None = None if data is None else decode_record(data, Owner, path)
        return owner

    def _check_owner(self, job_id: str, owner: Owner | None) -> None:
        actual = f"no job ({self.state} is gone)" if owner is None else owner.job_id
        if actual != job_id:
            raise NotOutputOwner(self.path, job_id, actual)

    def _warn_of_missing_parts(self, is_single: bool) -> None:
        """Warns of committed part files that somebody has removed: the job does not write them again."""
        folder = self._parts if is_single else self.path
        there = {name.removesuffix(PREPARED) for name in self._names_below(folder)}
        parts = [part for _, part, _ in self.committed_files() if part.place not in there]
        missing = [part.place for part in parts if not (part.shown_as and self.files.is_file(self._shown(part)))]
        if missing:
            logger.warning(
                "%d committed part files of %s are no longer there, such as %s: the job does not write them again",
                *(len(missing), self.path, missing[0]),
            )

    def _check_free(self, job_id: str, owner: Owner | None, is_single: bool, resume: bool) -> None:
        """Raises OutputInUse or UnexpectedOutput if the output is not free for a fresh start."""
        is_there = self.files.exists(self.path)
        if owner is not None and (is_there or is_single):
            raise OutputInUse(self.path, f"{len(self._numbers())} committed checkpoints of the job {owner.job_id}")
        if is_single and self.files.is_file(self.path):
            raise UnexpectedOutput(self.path, "is a file that no job wrote", "which replaces it when the job has ended")
        names = [] if is_single else self.files.names(self.path)
        parts = [name for name in ([] if is_single else self._names_below(self.path)) if part_match(name)]
        if resume and (parts or self._numbers()):
            raise OutputCorrupt(self.state, f"the owner and the manifests of the output {self.path}", "not all of them")
        if parts:
            raise OutputInUse(self.path, f"{len(parts)} part files of a job")
        if visible := [name for name in names if not name.startswith(".")]:
            count = f"{len(visible)} {'file' if len(visible) == 1 else 'files'}"
            raise UnexpectedOutput(
                self.path,
                f"has {count} that no job wrote, such as {visible[0]!r}",
                "which leaves them there, among its part files",
            )

    def _make_output(self, is_single: bool) -> None:
        """Creates the output folder. A single file takes the place of an empty folder when the job ends."""
        if not is_single:
            self.files.make_folder(self.path)
        elif self.files.is_folder(self.path):
            self.files.remove_folder(self.path)
            if self.files.is_folder(self.path):
                raise OutputFailed(self.path, "replaced by a file", "the folder is not empty")

    def _clear(self, owner: Owner | None) -> None:
        """Removes an earlier output and nothing else: manifests first, latest checkpoint first."""
        self.files.remove(f"{self._manifests}/{LAST}")
        for number in reversed(self._numbers()):
            with suppress(OutputCorrupt, FormatUnknown):
                self._remove_named(number)
            self.files.remove(f"{self._manifests}/{manifest_name(number)}")
        self.files.remove(f"{self._manifests}/{OWNER}")
        for folder in (self._manifests, self._parts, self.path):
            for name in self._names_below(folder):
                if (folder != self.path and name.endswith(WRITING)) or part_match(name):
                    self._remove(folder, name)
        if owner is not None:
            self._remove_single(owner)

    def _remove(self, folder: str, name: str) -> None:
        """Removes a file, and the partitions that are empty without it."""
        self.files.remove(f"{folder}/{name}")
        while name := name.rpartition("/")[0]:
            self.files.remove_folder(f"{folder}/{name}")

    def _remove_single(self, owner: Owner) -> None:
        if owner.is_single and self.files.is_file(self.path):
            self.files.remove(self.path)

    def _read_chain(self) -> tuple[list[Manifest], int | None]:
        """Returns the manifests in order of checkpoints, and the checkpoint of the first missing one."""
        last = self._last()
        while True:
            found = [manifest for number in self._numbers() if (manifest := self._manifest(number)) is not None]
            there = {manifest.checkpoint for manifest in found}
            expected: int | None = None
            missing: int | None = None
            for manifest in found:
                if manifest.previous is not None and manifest.previous not in there:
                    missing = manifest.previous
                    break
                if manifest.previous != expected:
                    path = f"{self._manifests}/{manifest_name(manifest.checkpoint)}"
                    raise OutputCorrupt(path, f"a manifest that names that of {expected}", str(manifest.previous))
                expected = manifest.checkpoint
            if missing is None and last and (expected is None or expected < last):
                missing = last
            # A rollback lowers the last number before it removes manifests.
            read_again = self._last()
            if read_again == last:
                if last is None and found:
                    self._warn_of_lost_last(found[-1].checkpoint)
                return found, missing
            last = read_again

    def _lost(self, checkpoint: int) -> OutputCorrupt:
        path = f"{self._manifests}/{manifest_name(checkpoint)}"
        return OutputCorrupt(path, f"the manifest of checkpoint {checkpoint}, which committed rows", "no file")

    def _warn_of_lost_last(self, checkpoint: int) -> None:
        logger.warning(
            "the file %s/%s is missing, which names the last manifest. There is none after checkpoint %d:"
            " if the job has committed a later one, restore the folder from a backup",
            *(self._manifests, LAST, checkpoint),
        )

    def _last(self) -> int | None:
        """Returns the checkpoint of the last manifest, 0 before the first one; None if the file is missing."""
        path = f"{self._manifests}/{LAST}"
        data = self.files.content(path)
        return None if data is None else decode_record(data, LastManifest, path).checkpoint

    def _write_last(self, checkpoint: int) -> None:
        path = f"{self._manifests}/{LAST}"
        file = self.files.new_file_beside(path)
        try:
            file.write(msgspec.json.encode(LastManifest(OUTPUT_FORMAT, checkpoint)))
            file.publish(path)
        finally:
            file.discard()

    def _lower_last(self, checkpoint: int, withdrawn: list[int]) -> None:
        """Notes which manifest will be the last one when those that are withdrawn, latest first, are gone."""
        last = self._last()
        if last is None or last <= checkpoint:
            return
        earliest = self._manifest(withdrawn[-1]) if withdrawn else None
        previous = max((number for number in self._numbers() if number <= checkpoint), default=None)
        if earliest is not None and earliest.previous is not None and earliest.previous <= checkpoint:
            previous = earliest.previous  # also if it is missing
        self._write_last(previous or NO_CHECKPOINT)

    def _previous(self, checkpoint: int) -> int | None:
        """Returns the checkpoint of the manifest before a new one.

        It writes the file ``LAST`` if it is missing, so that no manifest is there without it.

        Raises: OutputCorrupt: it is missing.
        """
        last = self._last()
        if last and last < checkpoint and self._manifest(last) is None:
            raise self._lost(last)
        if last == checkpoint:
            logger.warning(
                "the manifest of checkpoint %d of %s was missing: it is written again", checkpoint, self.path
            )
        numbers = self._numbers()
        previous = max((number for number in numbers if number < checkpoint), default=None)
        if last is None:
            if numbers:
                self._warn_of_lost_last(numbers[-1])
            self._write_last(previous or NO_CHECKPOINT)
        return previous

    def _numbers(self) -> list[int]:
        matches = map(MANIFEST_NAME.fullmatch, self.files.names(self._manifests))
        return sorted(int(match["checkpoint"]) for match in matches if match)

    def _manifest(self, checkpoint: int) -> Manifest | None:
        path = f"{self._manifests}/{manifest_name(checkpoint)}"
        data = self.files.content(path)
        manifest: Manifest | None = None if data is None else decode_record(data, Manifest, path)
        if manifest is not None and manifest.checkpoint != checkpoint:
            raise OutputCorrupt(path, f"what checkpoint {checkpoint} made visible", f"checkpoint {manifest.checkpoint}")
        return manifest

    def _check_equal(self, manifest: Manifest, earlier: Manifest) -> None:
        if manifest != earlier:
            names = ", ".join(sorted({part.name for part in manifest.parts} ^ {part.name for part in earlier.parts}))
            raise OutputConflict(self.path, manifest.checkpoint, f"its manifest exists with other parts ({names})")

    def _check_there(self, part: Part) -> bool:
        """Checks the size of a part; returns whether it is not yet in the output folder."""
        path = self._prepared(part.name)
        try:
            try:
                actual_bytes, is_hidden = self.files.size_bytes(path), True
            except FileNotFoundError:  # an interrupted commit may have moved it
                actual_bytes, is_hidden = self.files.size_bytes(self._shown(part)), False
        except OSError as error:
            reason = f"the driver does not find it: {error.strerror}; {part.task} wrote it under this path"
            raise OutputFailed(path, "committed", reason) from error
        if actual_bytes != part.size_bytes:
            raise OutputCorrupt(path, f"{part.size_bytes} bytes", f"{actual_bytes} bytes")
        return is_hidden

    def _create(self, name: str, data: bytes) -> bool:
        """Creates a file in the folder of manifests atomically; returns False if it exists."""
        return self.files.create(f"{self._manifests}/{name}", data)


def readable_files(folder: str) -> list[str]:
    """Lists the input files of a folder: the committed part files of an output, else all files that are not hidden.

    Files in folders ``column=value`` are among them.
    """
    output = OutputFolder(folder)
    if output.has_manifests():
        return [path for _, _, path in output.committed_files()]
    names = [
        path for path in output.files.files_below(output.path) if not path.rpartition("/")[2].startswith((".", "_"))
    ]
    return [output.files.input_path(f"{output.path}/{name}") for name in names]
