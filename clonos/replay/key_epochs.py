"""Course of one key over several epochs of a task, as ``record=`` keeps them: a folder with a record for each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clonos.replay.epoch import Epoch
from clonos.replay.key_timeline import KeyNotFound, KeyTimeline, timeline_of
from clonos.replay.loading import is_record
from clonos.replay.model_exchange import ChatMessage


@dataclass
class KeyEpochs:
    """Courses of a key in the epochs that have something of it, the earliest first. ``without``: the other epochs."""

    timelines: list[KeyTimeline]
    without: list[int]

    @property
    def is_as_recorded(self) -> bool:
        """Whether each replay did what the live task did."""
        return all(each.is_as_recorded for each in self.timelines)

    def __str__(self) -> str:
        return "\n".join(self._lines()).rstrip("\n")

    def _lines(self) -> Iterator[str]:
        shown_before: dict[str, Sequence[ChatMessage]] = {}
        for timeline in self.timelines:
            if timeline.steps or len(self.timelines) == 1:
                yield from timeline.lines(shown_before)
                yield ""
        idle = sorted([*self.without, *(each.epoch.head.epoch for each in self.timelines if not each.steps)])
        if idle:
            yield f"no record of the key in the epoch{'s' * (len(idle) > 1)} {', '.join(map(str, idle))}"

    def to_json(self) -> list[dict[str, Any]]:
        """Returns the timelines for a program."""
        return [each.to_json() for each in self.timelines]


def records_in(folder: str) -> list[str]:
    """Returns the folders of the records of a task by their epochs; the folder itself if it is one, or has none."""
    if is_record(folder) or not Path(folder).is_dir():
        return [folder]
    found = [each for each in Path(folder).iterdir() if each.name.isdigit() and is_record(each)]
    return [str(each) for each in sorted(found, key=lambda each: int(each.name))] or [folder]


def course_over(folders: Sequence[str], load: Callable[[str], Epoch], key: str, allowed: frozenset[str]) -> KeyEpochs:
    """Returns what a key has gone through in several records, see ``timeline_of``. ``load``: reads one.

    Raises: KeyNotFound: none of them has something of it. RecordRefused, TaskNotInJob: a replay cannot begin.
    """
    found = KeyEpochs([], [])
    for folder in folders:
        epoch = load(folder)
        try:
            found.timelines.append(timeline_of(epoch, key, allowed))
        except KeyNotFound as error:
            found.without.append(epoch.head.epoch)
            if folder == folders[-1] and not found.timelines:
                raise error from None
    return found
