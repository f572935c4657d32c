"""Answers to a capture: pages of a task's logs and of the in-flight logs of its channels, read where they are
(protocol 6.13).

Nothing changes by them: no session, no credit, no position. A page is copied in the I/O thread, so it is small.
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from clonos.core.channel.inflight_log import InflightLog
from clonos.core.model.ids import log_of
from clonos.core.slot.hosted_task import HostedTask
from clonos.core.wire.capture_messages import (
    CapturedElements,
    CapturedLog,
    CaptureElements,
    CaptureLog,
    Elements,
    digest_of,
    encode_page,
    with_digests,
)

PAGE_BYTES_MAX: Final = 1 << 20
"""Bytes of a page, whatever is asked for; one chunk always fits."""

FILE_PAGE_BYTES_MAX: Final = 4 << 20
"""Bytes of a page for a file, which no connection carries."""

PAGE_CHUNKS_MAX: Final = 10_000


def captured_log(hosted: HostedTask, asked: CaptureLog) -> tuple[CapturedLog, bytes]:
    """Returns a page of a log of the task, and its payload."""
    replica = hosted.logs.replicas.get(asked.log)
    start_bytes, end_bytes = (replica.start_bytes, replica.end_bytes) if replica is not None else (0, 0)
    is_own = asked.log == log_of(hosted.task)
    reply = CapturedLog(
        asked.task,
        asked.incarnation,
        asked.log,
        asked.from_bytes,
        start_bytes,
        end_bytes,
        hosted.running.unfinished if is_own else b"",
        asked.number,
    )
    if replica is None or not start_bytes <= asked.from_bytes < end_bytes:
        return reply, b""
    at = asked.from_bytes - start_bytes
    return reply, bytes(replica.data[at : at + min(asked.bytes_max, PAGE_BYTES_MAX)])


def captured_elements(hosted: HostedTask, asked: CaptureElements) -> tuple[CapturedElements, bytes] | None:
    """Returns a page of an in-flight log of the task, and its payload; None while it is loaded from the disk."""
    logs = (*hosted.outputs.inflight_logs, *hosted.output_gate.inflight_logs)
    log = next((each for each in logs if each.channel == asked.channel), None)
    if log is None:
        return None  # the channels are not open yet
    head = asked.channel, asked.task, asked.incarnation, asked.from_seq
    elements = _elements(log, asked)
    if elements is None:
        return None
    reply = CapturedElements(*head, log.start_seq, log.next_seq, asked.number, asked.file, asked.offset_bytes)
    if asked.file:
        reply = replace(reply, digests=encode_page(with_digests(elements)))
    return reply, encode_page(elements)


def _elements(log: InflightLog, asked: CaptureElements) -> list[Elements] | None:
    found: list[Elements] = []
    seq, page_bytes = asked.from_seq, 0
    end_seq = min(log.next_seq, asked.until_seq) if asked.until_seq else log.next_seq
    bytes_max = min(asked.bytes_max, FILE_PAGE_BYTES_MAX if asked.file else PAGE_BYTES_MAX)
    while log.start_seq <= seq < end_seq and len(found) < PAGE_CHUNKS_MAX:
        chunk = log.read(seq)
        if chunk is None:
            break
        page_bytes += len(chunk.payload)
        if found and page_bytes > bytes_max:
            return found
        payload = digest_of(chunk.payload) if asked.has_digests else bytes(chunk.payload)
        found.append(Elements(log.channel, chunk.first_seq, chunk.kind, chunk.count, chunk.checkpoint, payload))
        seq = chunk.first_seq + chunk.count
    is_there = found or not log.start_seq <= seq < end_seq
    return found if is_there else None
