"""Random texts as Arrow arrays, made from whole arrays of random numbers."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

LETTERS: Final = np.frombuffer(b"abcdefghijklmnopqrstuvwxyz      ", np.uint8)
"""Characters of texts: 32, so that a random byte chooses one without bias."""

WORD: Final = np.frombuffer(b"abcdefghijklmnopqrstuvwxyzabcdef", np.uint8)
LENGTH_MIN: Final = 3
STATES: Final = ("AZ", "CA", "ID", "OR", "WA", "WY")
CITIES: Final = (
    *("Phoenix", "Los Angeles", "San Francisco", "Boise", "Portland"),
    *("Bend", "Redmond", "Seattle", "Kent", "Cheyenne"),
)
FIRST_NAMES: Final = ("Peter", "Paul", "Luke", "John", "Saul", "Vicky", "Kate", "Julie", "Sarah", "Deiter", "Walter")
LAST_NAMES: Final = ("Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones", "Noris")
HOT_CHANNELS: Final = ("Google", "Facebook", "Baidu", "Apple")
OTHER_CHANNELS: Final = 10_000
SITE: Final = "https://www.nexmark.com/"
URL_SEED: Final = 7

Generator = np.random.Generator


def _text_array(lengths: np.ndarray[Any, Any], characters: np.ndarray[Any, Any]) -> Any:
    offsets = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    return pa.StringArray.from_buffers(len(lengths), pa.py_buffer(offsets), pa.py_buffer(characters))


def _characters(rng: Generator, alphabet: np.ndarray[Any, Any], count: int) -> np.ndarray[Any, Any]:
    found: np.ndarray[Any, Any] = alphabet[np.frombuffer(rng.bytes(count), np.uint8) & (len(alphabet) - 1)]
    return found


def words(rng: Generator, count: int, length_max: int) -> Any:
    """Returns random words of 3 to ``length_max`` letters."""
    lengths = rng.integers(LENGTH_MIN, length_max + 1, count)
    return _text_array(lengths, _characters(rng, WORD, int(lengths.sum())))


def digits(rng: Generator, count: int, length: int) -> Any:
    """Returns texts of ``length`` random digits."""
    return _text_array(np.full(count, length), rng.integers(48, 58, count * length, np.uint8))


def chosen(rng: Generator, count: int, values: Sequence[str]) -> Any:
    """Returns ``count`` random ones of the values."""
    return pa.array(values).take(pa.array(rng.integers(0, len(values), count)))


def joined(*parts: Any) -> Any:
    """Concatenates arrays and texts element by element."""
    return pc.binary_join_element_wise(*(part if isinstance(part, pa.Array) else pa.scalar(part) for part in parts), "")


def pairs(rng: Generator, count: int, first: Sequence[str], second: Sequence[str]) -> Any:
    """Returns random pairs with a space between them."""
    return joined(chosen(rng, count, first), " ", chosen(rng, count, second))


def padding(rng: Generator, count: int, length_mean: int) -> Any:
    """Returns random texts of a mean length, within 20 %."""
    spread = round(length_mean * 0.2)
    lengths = length_mean - spread + rng.integers(0, 2 * spread + 1, count)
    return _text_array(lengths, _characters(rng, LETTERS, int(lengths.sum())))


def channels(rng: Generator, count: int) -> tuple[Any, Any]:
    """Returns channels, half of them one of four, and their URLs."""
    hot = rng.integers(0, 2, count) > 0
    numbers = np.where(
        hot,
        OTHER_CHANNELS + rng.integers(0, len(HOT_CHANNELS), count),
        rng.integers(0, OTHER_CHANNELS, count),
    )
    names, urls = _known_channels()
    at = pa.array(numbers)
    return names.take(at), urls.take(at)


@cache
def _known_channels() -> tuple[Any, Any]:
    """Returns the names of all channels, the hot ones last, and the URL of each, which are those of every seed."""
    rng = np.random.default_rng(URL_SEED)
    count = OTHER_CHANNELS + len(HOT_CHANNELS)
    names = [f"channel-{number}" for number in range(OTHER_CHANNELS)] + list(HOT_CHANNELS)
    with_id = rng.integers(0, 10, OTHER_CHANNELS) > 0
    numbers = rng.permutation(1 << 20)[:OTHER_CHANNELS]
    ends = [f"&channel_id={number}" if has else "" for number, has in zip(numbers, with_id, strict=True)]
    parts = [words(rng, count, 5) for _ in range(3)]
    return pa.array(names), joined(
        SITE, parts[0], "/", parts[1], "/", parts[2], "/item.htm?query=1", pa.array(ends + [""] * len(HOT_CHANNELS))
    )
