"""Part files that are shown under names of a record's choice, as `files.whole` writes them.

Their manifest comes before the files, because only a manifest tells such a file from one of others. A commit that was
cut off is repeated by the resume.
"""

from __future__ import annotations

from collections.abc import Iterable

from clonos.connectors.connector_errors import OutputNameTaken
from clonos.connectors.filesystem.output_files import OutputFiles
from clonos.connectors.filesystem.output_parts import PREPARED, Part


def check_names_free(files: OutputFiles, output: str, checkpoint: int, parts: list[Part]) -> None:
    """Checks that no part takes the place of another file or folder, before anything is shown.

    Raises: OutputNameTaken: one does.
    """
    places = {part.place for part in parts}
    if len(places) < len(parts):
        found = [part.place for part in parts]
        twice = next(place for place in found if found.count(place) > 1)
        raise OutputNameTaken(output, checkpoint, twice, "two records of the checkpoint have this name")
    folders = {folder for place in places for folder in folders_of(place)}
    if both := sorted(folders & places):
        raise OutputNameTaken(output, checkpoint, both[0], "it is the name of a file and of a folder")
    for place in sorted(places):
        if files.exists(f"{output}/{place}"):
            raise OutputNameTaken(output, checkpoint, place, "it is there already")
    for folder in sorted(folders):
        if files.is_file(f"{output}/{folder}"):
            raise OutputNameTaken(output, checkpoint, folder, "it is a file, and a record needs a folder of this name")


def folders_of(place: str) -> list[str]:
    """Returns the folders above a place, the innermost first."""
    found = []
    while place := place.rpartition("/")[0]:
        found.append(place)
    return found


def still_hidden(files: OutputFiles, parts_folder: str, parts: Iterable[Part]) -> list[Part]:
    """Returns the named parts that a commit has not moved yet."""
    named = [part for part in parts if part.shown_as]
    there = set(files.names(parts_folder)) if named else set()
    return [part for part in named if f"{part.name}{PREPARED}" in there]
