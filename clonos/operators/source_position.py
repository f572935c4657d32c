"""Position of a source's task in its splits, in a snapshot; and how positions are dealt again to another width."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
from msgspec import structs

from clonos.core.wire.log_delta import Count
from clonos.operators.event_time.source_watermarks import dealt_times


class SplitPosition(msgspec.Struct, frozen=True, array_like=True):
    """Position in a split.

    ``mark`` None: not begun. ``is_done``: all records were taken. ``found``: the split, if it was found at run time.
    """

    split: Count
    mark: bytes | None
    skip: Count
    is_done: bool
    found: bytes


class SourcePosition(msgspec.Struct, frozen=True, array_like=True):
    """Position in all splits of a task.

    ``elsewhere`` has splits that other tasks found before the width changed: they are not found again. ``times`` is the
    state of ``SourceWatermarks``, empty without watermarks.
    """

    splits: tuple[SplitPosition, ...]
    elsewhere: tuple[bytes, ...] = ()
    times: bytes = b""


_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(SourcePosition)

encode_position = _encoder.encode
decode_position = _decoder.decode


def dealt_position(positions: Sequence[bytes], listed: int, index: int, width: int) -> bytes:
    """Returns the position of task ``index`` of ``width``, from those of all tasks of the width before.

    The ``listed`` splits of the job's first start keep their numbers. Those that were found later are numbered after
    them, in the order of their numbers before. Split k belongs to task k mod ``width``. Positions are empty if no task
    had begun, as those of a source that a savepoint does not have.
    """
    if not any(positions):
        return b""
    before = [decode_position(position) for position in positions]
    splits = sorted((split for each in before for split in each.splits), key=lambda split: split.split)
    found = [split.split for split in splits if split.found]
    numbers = {split.split: split.split for split in splits if not split.found}
    numbers |= {number: listed + place for place, number in enumerate(found)}
    mine = tuple(
        structs.replace(split, split=numbers[split.split]) for split in splits if numbers[split.split] % width == index
    )
    known = dict.fromkeys(split.found for split in splits if split.found)
    known |= dict.fromkeys(split for each in before for split in each.elsewhere)
    own = {split.found for split in mine}
    elsewhere = tuple(split for split in known if split not in own)
    # A task that has read all of its splits holds no watermark back.
    open_tasks = [each for each in before if not all(split.is_done for split in each.splits)] or before
    times = dealt_times([each.times for each in open_tasks], numbers, {split.split for split in mine})
    return encode_position(SourcePosition(mine, elsewhere, times))
