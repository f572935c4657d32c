"""A type checker and an editor see clonos from any folder, as ``make setup`` installs it: names, streams, options.

The examples of the documents pass it too: those that import clonos, since the others show parts or other systems.
"""

import re
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.tidy.source import PACKAGE_FOLDERS, ROOT, texts

pytestmark = pytest.mark.static

RIGHT = """
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, NamedTuple, Sized, TypedDict, assert_type

from clonos import Job, KeyedStream, Stream, Tumbling, WindowResult, agg, at_end, collect, each, every, files, values
from clonos.agg import count, sum_, top_k


@dataclass
class Bid:
    auction: int
    price: float


class Pair(NamedTuple):
    left: str


class Row(TypedDict):
    word: str



def max_price(left: Bid, right: Bid) -> Bid:
    return left if left.price > right.price else right


job = Job("etl", parallelism=3, checkpoint_every=timedelta(seconds=1), slots="process")
lines = job.source(files.lines("in/*.txt"))
assert_type(lines, Stream[str])
assert_type(job.source(files.lines("in", with_position=True)), Stream[tuple[str, int, str]])
assert_type(job.source(files.jsonl("in")), Stream[Any])
bids = job.source(files.jsonl("in", schema=Bid, watch="1s"))
assert_type(bids, Stream[Bid])
assert_type(bids.filter(lambda bid: bid.price > 1).map(lambda bid: bid.price), Stream[float])
assert_type(bids.key_by(lambda bid: bid.auction), KeyedStream[int, Bid])
assert_type(bids.key_by(lambda bid: bid.auction).reduce(max_price), Stream[tuple[int, Bid]])
assert_type(bids.key_by("auction").count(), Stream[tuple[Any, int]])
windows = bids.key_by(lambda bid: bid.auction).window(Tumbling("1s"))
assert_type(windows.sum(lambda bid: bid.price).map(lambda result: result.value), Stream[float])
assert_type(job.source(files.jsonl("in", schema=Pair)).map(lambda pair: pair.left), Stream[str])
assert_type(job.source(files.jsonl("in", schema=Row)).map(lambda row: row["word"]), Stream[str])
words = lines.flat_map(str.split).map(lambda word: word.lower()).filter(lambda word: word > "a")
assert_type(words, Stream[str])
assert_type(words.key_by(len), KeyedStream[int, str])
assert_type(words.key_by("field"), KeyedStream[Any, str])
assert_type(words.key_by(lambda word: word[0]).window(Tumbling("1s")).count(), Stream[WindowResult[str, int]])
assert_type(job.source(values([1, 2])).map(lambda number: number / 2), Stream[float])
by_length = words.key_by(lambda word: len(word))
counted = by_length.aggregate(n=count(), total=sum_(lambda word: len(word)), top=top_k(3, by="size"), emit=each(2))
assert_type(counted, Stream[tuple[int, dict[str, Any]]])
assert_type(words.aggregate(n=agg.count_if(lambda word: word.isupper()), emit=at_end()), Stream[dict[str, Any]])
windowed = by_length.window(Tumbling("1s")).aggregate(n=count(), who=agg.distinct(lambda word: word[0]))
assert_type(windowed, Stream[WindowResult[int, dict[str, Any]]])
assert_type(by_length.window(Tumbling("1s")).aggregate(list[str], list.append), Stream[WindowResult[int, list[str]]])
assert_type(agg.sum_(len), agg.Aggregation[Sized, int])
words.sink(collect())
job.run(store="out", lease="2s")
"""

EXAMPLES = {
    "sensor_alerts": (r"\breading\.(\w+)", r"reading.\1_", '"Reading" has no attribute'),
    "trending_tags": (r'\bpost\["(\w+)"\]', r'post["\1_"]', 'TypedDict "Post" has no key'),
    "user_activity": (r'\baction\["(\w+)"\]', r'action["\1_"]', 'TypedDict "Action" has no key'),
}
"""Recipes: a pattern of the fields of their records, what a typing error makes of it, and what mypy says of that."""

WRONG = """
from dataclasses import dataclass
from typing import TypedDict

from clonos import Job, Tumbling, files, values
from clonos.agg import count, count_if, distinct, sum_, top_k


@dataclass
class Bid:
    auction: int
    price: float


class Row(TypedDict):
    word: str


job = Job("etl", paralelism=3)  # call-arg
Job("etl", parallelism="three")  # arg-type
Job("etl", slots="cloud")  # arg-type
job.run(chekpoint_every="5s")  # call-arg
job.join(job)  # attr-defined
numbers = job.source(values([1]))
numbers.join(numbers)  # call-overload
numbers.map(lambda number: number.lower())  # attr-defined
numbers.key_by(str).map(str)  # attr-defined
job.compile()  # attr-defined
bids = job.source(files.jsonl("in", schema=Bid))
bids.map(lambda bid: bid.prise)  # attr-defined
bids.filter(lambda bid: bid.auction > 1).map(lambda bid: bid.item)  # attr-defined
bids.map(lambda bid: bid.price.lower())  # attr-defined
keyed = bids.key_by(lambda bid: bid.auction)
bids.key_by(lambda bid: bid.auctoin)  # attr-defined
keyed.reduce(lambda left, right: left if left.prize > right.price else right)  # attr-defined
keyed.stateful_map(lambda key, state, bid: (state, bid.cost))  # attr-defined
keyed.window(Tumbling("1s")).sum(lambda bid: bid.cost)  # attr-defined
keyed.window(Tumbling("1s")).count().map(lambda result: result.total)  # attr-defined
rows = job.source(files.jsonl("in", schema=Row))
rows.map(lambda row: row["wrod"])  # typeddict-item
files.jsonl("out", schema="Bid")  # call-overload
numbers.key_by(str).aggregate(total=sum_(lambda number: number.prise))  # attr-defined
numbers.key_by(str).aggregate(top=top_k(3, by=lambda number: number.prise))  # attr-defined
numbers.key_by(str).window(Tumbling("1s")).aggregate(who=distinct(lambda number: number.name))  # attr-defined
numbers.aggregate(n=count_if(lambda number: number.isupper()))  # attr-defined
numbers.key_by(str).aggregate(n=count)  # arg-type
numbers.aggregate(n=len)  # arg-type
numbers.aggregate(n=sum_("price"), emit="end")  # arg-type
"""

BLOCK = re.compile(r"^```python *(\S*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
IMPORT = re.compile(r"^(?:from|import) clonos\b", re.MULTILINE)
DOCUMENT = "document_"


@pytest.fixture(scope="module")
def checked(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """What mypy says of all files, by the packages that are installed, with a cache that later runs find again."""
    folder = tmp_path_factory.mktemp("elsewhere")
    (folder / "right.py").write_text(RIGHT, "utf-8")
    (folder / "wrong.py").write_text(WRONG, "utf-8")
    for name, (pattern, misspelt, _) in EXAMPLES.items():
        text = (ROOT / "examples" / f"{name}.py").read_text("utf-8")
        (folder / f"{name}_.py").write_text(re.sub(pattern, misspelt, text), "utf-8")
    for path, text in texts():
        for block in BLOCK.finditer(text) if path.endswith(".md") else ():
            if IMPORT.search(block[2]) and not block[1].startswith("examples/"):
                name, line = re.sub(r"\W", "_", path), text.count("\n", 0, block.start())
                (folder / f"{DOCUMENT}{name}_{line}.py").write_text(block[2], "utf-8")
    # pyarrow has no types: a user with strict settings has this section, whose messages are not ours. Agents of other
    # libraries are not installed here.
    (folder / "mypy.ini").write_text(
        "[mypy]\n[mypy-pyarrow.*,agents.*,openai.*]\nignore_missing_imports = true\n", "utf-8"
    )
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--strict",
        "--config-file=mypy.ini",
        f"--cache-dir={ROOT}/.mypy_cache/users",
    ]
    done = subprocess.run(
        [*command, *sorted(file.name for file in folder.glob("*.py"))],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    return (done.stdout + done.stderr).splitlines()


def test_the_types_of_a_users_file_are_known_outside_of_the_checkout(checked: list[str]) -> None:
    assert [line for line in checked if line.startswith("right.py")] == []


def test_the_examples_of_the_documents_pass_a_strict_type_checker(checked: list[str]) -> None:
    assert not any("No such file" in line for line in checked)
    assert [line for line in checked if line.startswith(DOCUMENT) and ": note:" not in line] == []


def test_each_mistake_that_a_type_can_show_is_an_error_of_the_type_checker(checked: list[str]) -> None:
    expected = {
        f"wrong.py:{number} {line.partition('# ')[2]}"
        for number, line in enumerate(WRONG.splitlines(), 1)
        if "# " in line
    }
    found = {
        f"{line.split(':')[0]}:{line.split(':')[1]} {line.rpartition('[')[2].rstrip(']')}"
        for line in checked
        if line.startswith("wrong.py") and ": error:" in line
    }
    assert found == expected


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_wrong_field_of_an_example_is_an_error_of_the_type_checker(checked: list[str], name: str) -> None:
    pattern, _, message = EXAMPLES[name]
    found = [line for line in checked if line.startswith(f"{name}_.py") and ": error:" in line]
    assert len(found) == len(re.findall(pattern, (ROOT / "examples" / f"{name}.py").read_text("utf-8"))) >= 1
    assert all(message in line for line in found), found


def test_the_folders_of_the_packages_are_paths_that_an_editor_reads() -> None:
    listed = Path(sysconfig.get_path("purelib"), "clonos_checkout.pth").read_text("utf-8").split()
    assert {str(folder.parent) for folder in PACKAGE_FOLDERS.values()} == set(listed)
