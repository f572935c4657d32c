"""Verdict of the demo, computed from the input, the committed output and the server's log.

It reads manifests and part files itself and imports nothing of the runtime, so that it can find errors of the runtime.
"""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

EXAMPLES_MAX = 5


@dataclass(frozen=True, slots=True)
class Row:
    """Committed record.

    ``task`` has written it; ``commit_ns`` is when its manifest became visible, in ns since 1970.
    """

    task: str
    commit_ns: int
    record: dict[str, Any]


@dataclass(frozen=True, slots=True)
class DemoVerdict:
    """Counts over all words. ``examples`` are a few identities for each kind of error."""

    records: int
    lost: int
    duplicated: int
    contradicted: int
    calls_repeated: int
    examples: dict[str, list[str]]

    @property
    def is_clean(self) -> bool:
        """Returns whether no word was lost, duplicated or contradicted."""
        return self.lost == self.duplicated == self.contradicted == 0


def committed_rows(folder: Path) -> Iterator[Row]:
    """Yields every record that the manifests of an output make visible, in order.

    Raises: ValueError: a part file has another number of rows than its manifest says.
    """
    for manifest in sorted((folder.parent / f".{folder.name}.clonos" / "manifests").glob("[0-9]*.manifest")):
        commit_ns = manifest.stat().st_mtime_ns
        for part in json.loads(manifest.read_text("utf-8"))["parts"]:
            lines = (folder / part["name"]).read_text("utf-8").splitlines()
            if len(lines) != part["rows"]:
                raise ValueError(f"{folder}: the part {part['name']} has {len(lines)} rows, not {part['rows']}")
            for line in lines:
                yield Row(part["task"], commit_ns, json.loads(line))


def answers_given(log: Path) -> Iterator[tuple[str, bool]]:
    """Yields (identity, banned) for each complete line of the server's log, including repeated requests."""
    with open(log, encoding="utf-8") as lines:
        for line in lines:
            if line.endswith("\n"):
                entry = json.loads(line)
                yield entry["identity"], entry["banned"]


def judge(
    words: Iterable[tuple[str, str]],
    counts: Iterable[dict[str, Any]],
    rejected: Iterable[dict[str, Any]],
    answers: Iterable[tuple[str, bool]],
) -> DemoVerdict:
    """Compares the (identity, word) pairs of the input with both outputs and with all answers.

    A record of a window has ``word``, ``count`` and ``identities``, a rejected record ``word`` and ``identity``.
    """
    word_of = dict(words)
    allowed_given: set[str] = set()
    banned_given: set[str] = set()
    asked = Counter[str]()
    for identity, banned in answers:
        asked[identity] += 1
        (banned_given if banned else allowed_given).add(identity)
    wrong: dict[str, list[str]] = {"lost": [], "duplicated": [], "contradicted": []}
    counted = Counter[str]()
    for record in counts:
        counted.update(record["identities"])
        if record["count"] != len(record["identities"]):
            wrong["contradicted"].append(f"{record['word']} counted {record['count']}: {record['identities']}")
        wrong["contradicted"] += [name for name in record["identities"] if word_of.get(name) != record["word"]]
    refused = Counter[str]()
    for record in rejected:
        refused[record["identity"]] += 1
        if word_of.get(record["identity"]) != record["word"]:
            wrong["contradicted"].append(record["identity"])
    for seen in (counted, refused):
        for identity, times in seen.items():
            wrong["duplicated"] += [identity] * (times - 1)
    wrong["contradicted"] += sorted(counted.keys() & refused.keys())
    wrong["contradicted"] += sorted(counted.keys() - allowed_given)
    wrong["contradicted"] += sorted(refused.keys() - banned_given)
    wrong["lost"] = [identity for identity in word_of if identity not in counted and identity not in refused]
    return DemoVerdict(
        records=len(word_of),
        lost=len(wrong["lost"]),
        duplicated=len(wrong["duplicated"]),
        contradicted=len(wrong["contradicted"]),
        calls_repeated=sum(asked.values()) - len(asked),
        examples={kind: names[:EXAMPLES_MAX] for kind, names in wrong.items() if names},
    )


def words_read(words: Iterable[tuple[str, str]], answers: Iterable[tuple[str, bool]]) -> Iterator[tuple[str, str]]:
    """Yields the words that a stopped job had read: of each file those up to the last line that was looked up."""
    last_bytes: dict[str, int] = {}
    for identity, _ in answers:
        file, offset_bytes, _ = identity.rsplit(":", 2)
        last_bytes[file] = max(int(offset_bytes), last_bytes.get(file, 0))
    for identity, word in words:
        file, offset_bytes, _ = identity.rsplit(":", 2)
        if int(offset_bytes) <= last_bytes.get(file, -1):
            yield identity, word


def silence_ms(instants_ns: Iterable[int], from_ns: int, until_ns: int) -> float | None:
    """Returns the longest gap between neighbouring times that overlaps the interval, in ms; None if there is none."""
    ordered = sorted(set(instants_ns))
    pauses_ns = [
        later - earlier for earlier, later in itertools.pairwise(ordered) if later > from_ns and earlier < until_ns
    ]
    return max(pauses_ns) / 1e6 if pauses_ns else None
