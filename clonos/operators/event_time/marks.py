"""Timestamps of results where a record has any number of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any


class ResultMarks:
    """Number of results before each record of a batch, from which follows which results belong to it."""

    __slots__ = ("_results", "_marks")

    def __init__(self, results: list[Any]) -> None:
        """Creates the marks; ``results`` is the list to which the step appends."""
        self._results = results
        self._marks: list[int] = []

    def note(self, records: Iterator[Any]) -> Iterator[Any]:
        """Yields the records. Called again with the rest after a record that raised, whose results are deleted."""
        results, append = self._results, self._marks.append
        for record in records:
            append(len(results))
            yield record

    def spread(self, times: Sequence[int]) -> list[int]:
        """Returns a timestamp for each result: that of its record."""
        return spread(times, [*self._marks[1:], len(self._results)])


def spread(times: Sequence[int], ends: Sequence[int]) -> list[int]:
    """Returns a timestamp for each result: that of its record.

    ``ends``: the number of results up to each record, itself included.
    """
    found: list[int] = []
    for time_ns, end in zip(times, ends, strict=True):
        found += [time_ns] * (end - len(found))
    return found
