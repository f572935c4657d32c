"""The judge of the demo detects every way in which an output can be wrong."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from clonos.demo.demo_verdict import DemoVerdict, answers_given, committed_rows, judge, silence_ms, words_read
from clonos.demo.text import topic_lines, words_in, words_of, write_text

WORDS = [("a:0:0", "the"), ("a:0:1", "cat"), ("a:8:0", "the")]
COUNTS = [{"word": "the", "count": 2, "identities": ["a:0:0", "a:8:0"]}]
REJECTED = [{"word": "cat", "identity": "a:0:1"}]
ANSWERS = [("a:0:0", False), ("a:0:1", True), ("a:8:0", False)]


def _judged(**changed: Any) -> DemoVerdict:
    given: dict[str, Any] = {"words": WORDS, "counts": COUNTS, "rejected": REJECTED, "answers": ANSWERS} | changed
    return judge(given["words"], given["counts"], given["rejected"], given["answers"])


def test_an_output_that_agrees_with_everything_is_clean() -> None:
    assert _judged() == DemoVerdict(3, 0, 0, 0, 0, {})
    assert _judged().is_clean


def test_a_word_in_neither_output_is_lost() -> None:
    verdict = _judged(rejected=[])
    assert (verdict.lost, verdict.examples) == (1, {"lost": ["a:0:1"]})
    assert not verdict.is_clean


def test_a_word_counted_twice_is_duplicated() -> None:
    assert _judged(counts=[*COUNTS, {"word": "the", "count": 1, "identities": ["a:8:0"]}]).duplicated == 1


def test_a_word_rejected_three_times_is_duplicated_twice() -> None:
    assert _judged(rejected=REJECTED * 3).duplicated == 2


def test_a_word_in_both_outputs_is_contradicted() -> None:
    answers = [*ANSWERS, ("a:8:0", True)]
    verdict = _judged(rejected=[*REJECTED, {"word": "the", "identity": "a:8:0"}], answers=answers)
    assert (verdict.contradicted, verdict.lost, verdict.duplicated) == (1, 0, 0)


def test_a_word_that_disagrees_with_every_answer_is_contradicted() -> None:
    assert _judged(answers=[("a:0:0", False), ("a:0:1", True), ("a:8:0", True)]).contradicted == 1
    assert _judged(answers=[("a:0:0", False), ("a:0:1", False), ("a:8:0", False)]).contradicted == 1


def test_a_word_that_follows_one_of_two_answers_is_only_a_repeated_call() -> None:
    verdict = _judged(answers=[*ANSWERS, ("a:0:1", False), ("a:8:0", False)])
    assert verdict.is_clean
    assert verdict.calls_repeated == 2


def test_a_count_that_is_not_the_number_of_its_identities_is_contradicted() -> None:
    assert _judged(counts=[{"word": "the", "count": 3, "identities": ["a:0:0", "a:8:0"]}]).contradicted == 1


def test_an_identity_that_the_input_does_not_have_is_contradicted() -> None:
    assert not _judged(rejected=[*REJECTED, {"word": "dog", "identity": "a:9:9"}]).is_clean


def test_an_identity_with_another_word_is_contradicted() -> None:
    assert not _judged(rejected=[{"word": "dog", "identity": "a:0:1"}]).is_clean


def _folder(folder: Path, parts: dict[str, list[str]], manifests: dict[int, list[str]]) -> Path:
    output, state = folder / "out", folder / ".out.clonos" / "manifests"
    output.mkdir()
    state.mkdir(parents=True)
    for name, rows in parts.items():
        (output / name).write_text("".join(f"{row}\n" for row in rows), "utf-8")
    for checkpoint, names in manifests.items():
        described = [{"name": name, "task": "sink/0", "rows": len(parts[name])} for name in names]
        manifest = state / f"{checkpoint:020}.manifest"
        manifest.write_text(json.dumps({"checkpoint": checkpoint, "parts": described}), "utf-8")
        os.utime(manifest, ns=(0, checkpoint * 10**9))
    return output


def test_only_parts_named_by_a_manifest_count(tmp_path: Path) -> None:
    folder = _folder(tmp_path, {"a": ['{"n": 1}'], "b": ['{"n": 2}'], "c": ['{"n": 3}']}, {2: ["b"], 1: ["a"]})
    rows = [(row.record["n"], row.commit_ns, row.task) for row in committed_rows(folder)]
    assert rows == [(1, 10**9, "sink/0"), (2, 2 * 10**9, "sink/0")]


def test_a_part_with_rows_missing_is_an_error(tmp_path: Path) -> None:
    folder = _folder(tmp_path, {"a": ['{"n": 1}', '{"n": 2}']}, {1: ["a"]})
    (folder / "a").write_text('{"n": 1}\n', "utf-8")
    with pytest.raises(ValueError, match="1 rows, not 2"):
        list(committed_rows(folder))


def test_a_truncated_line_of_the_log_does_not_count(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text('{"identity": "a:0:0", "banned": true}\n{"identity": "a:0:1", "ban', "utf-8")
    assert list(answers_given(log)) == [("a:0:0", True)]


def test_the_verdict_on_a_stopped_job_covers_words_up_to_the_last_requested_line() -> None:
    words = [*WORDS, ("a:8:1", "dog"), ("a:20:0", "end"), ("b:0:0", "other")]
    assert list(words_read(words, [("a:8:0", True), ("a:0:1", False)])) == words[:4]


def test_a_silence_is_the_longest_pause_that_touches_the_span() -> None:
    instants = [0, 5_000_000, 6_000_000, 9_000_000, 20_000_000]
    assert silence_ms(instants, 6_500_000, 8_000_000) == 3
    assert silence_ms(instants, 5_500_000, 10_000_000) == 11
    assert silence_ms(instants, 30_000_000, 31_000_000) is None
    assert silence_ms([1], 0, 2) is None


def test_the_text_is_distributed_over_the_files_without_loss(tmp_path: Path) -> None:
    paths = write_text(tmp_path, lines=11, files=3)
    written = [path.read_text("utf-8").splitlines() for path in paths]
    assert [len(lines) for lines in written] == [4, 4, 3]
    assert [line for lines in written for line in lines] == topic_lines()[:11]


def test_every_word_has_a_unique_identity(tmp_path: Path) -> None:
    paths = write_text(tmp_path, lines=50, files=2)
    found = list(words_in(paths))
    assert len({identity for identity, _ in found}) == len(found) == sum(len(words_of(x)) for x in topic_lines()[:50])
