"""Options of ``nats.source`` and ``nats.sink``, and the splits of a source; no server is asked."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clonos.connectors import nats, secrets
from clonos.connectors.connector_errors import InvalidConnector, SplitMalformed
from clonos.connectors.kit.external_system import SystemUnreachable
from clonos.connectors.nats.stream_splits import StreamSplit, overlap, split_of
from clonos.operators.connector_contract import WriterIdentity
from clonos.operators.row_errors import RowNotWritable

URL = "nats://shop:s3cret@localhost:4222"


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"stream": "a.b"}, "the stream is 'a.b'"),
        ({"stream": ""}, "the stream is ''"),
        ({"start": 0}, "start is 0"),
        ({"start": datetime(2026, 1, 1)}, "start is datetime"),
        ({"start": "first"}, "start is 'first'"),
        ({"until": "empty"}, "until is 'empty'"),
        ({"subjects": []}, "subjects is \\[\\]"),
        ({"subjects": ["a b"]}, "subjects is \\['a b'\\]"),
        ({"subjects": ["orders.*", "orders.eu"]}, "the subjects 'orders.\\*' and 'orders.eu' overlap"),
        ({"idle_after": "5s"}, "idle_after without out_of_order"),
        ({"url": "http://localhost"}, "url is no URL of NATS"),
        ({"url": "nats://localhost", "password": "a"}, "password= without a user"),
        ({"password": "a", "token": "b"}, "password= and token= exclude each other"),
    ],
)
def test_an_option_of_a_source_that_cannot_work_is_refused(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidConnector, match=problem):
        nats.source(**{"stream": "ORDERS", "url": URL, **options})


@pytest.mark.parametrize("subject", ["", "a b", "a..b", "orders.*", "orders.>", 7])
def test_a_sink_needs_a_subject_without_wildcards(subject: Any) -> None:
    with pytest.raises(InvalidConnector, match="the subject is"):
        nats.sink(subject, url=URL)


@pytest.mark.parametrize(
    ("one", "other", "both"),
    [
        ("a", "a", True),
        ("a", "b", False),
        ("a.*", "a.b", True),
        ("a.*", "a.b.c", False),
        ("a.>", "a.b.c", True),
        ("a.>", "a", False),
        ("*.b", "a.*", True),
        ("*.b", "a.c", False),
        (">", "a.b", True),
    ],
)
def test_subjects_overlap_if_a_message_may_belong_to_both(one: str, other: str, both: bool) -> None:
    assert overlap(one, other) is both
    assert overlap(other, one) is both


def test_no_text_shows_the_password_of_a_url() -> None:
    source, sink = nats.source("ORDERS", url=URL), nats.sink("totals", url=f"{URL},nats://t0ken@other:4222")
    shown = repr(source) + repr(sink) + str(sink.describe_output())
    assert "s3cret" not in shown
    assert "t0ken" not in shown
    assert "nats://localhost:4222,nats://other:4222" in shown
    assert "NATS_URL" in repr(nats.source("ORDERS", url=secrets.env("NATS_URL")))


def test_a_split_of_another_stream_or_subject_is_refused() -> None:
    source = nats.source("ORDERS", url=URL, subjects=["orders.eu", "orders.us"])
    source.check_split(StreamSplit("ORDERS", "orders.us", 7, -1, "now").encoded())
    for wrong in (StreamSplit("OTHER", "orders.us", 7, -1, ""), StreamSplit("ORDERS", "", 7, -1, "")):
        with pytest.raises(SplitMalformed, match="does not read it"):
            source.check_split(wrong.encoded())
    with pytest.raises(SplitMalformed, match="part of a stream"):
        split_of(b"{}")


@given(st.text(max_size=9), st.text(max_size=9), st.integers(1, 1 << 60), st.integers(-1, 1 << 60))
def test_a_split_read_back_equals_what_was_stored(stream: str, subject: str, start: int, end: int) -> None:
    split = StreamSplit(stream, subject, start, end, "2026-11-23 11:08:05.633136+00:00")
    assert split_of(split.encoded()) == split


def test_a_mark_that_is_no_sequence_is_refused() -> None:
    reader = nats.source("ORDERS", url=URL).reader()
    with pytest.raises(SplitMalformed, match="sequence of NATS"):
        reader.open(StreamSplit("ORDERS", "", 1, -1, "").encoded(), b"x")


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"subject": lambda row: row["to"]}, "its subject: 'a b' is not a subject"),
        ({"subject": lambda row: row["from"]}, "its subject: 'from'"),
        ({"headers": lambda row: {"h": 7}}, "its headers: 7 is no str"),
        ({"headers": {"h": "a\r\nb"}}, "its headers: 'a.*' is no str without line ends"),
    ],
)
def test_a_row_that_cannot_be_a_message_is_named(options: dict[str, Any], reason: str) -> None:
    writer = nats.sink(**{"subject": "totals", "url": URL, **options}).immediate_writer()
    with pytest.raises(RowNotWritable, match=reason):
        writer.write(0, [{"n": 1, "to": "a b"}])
    writer.close()


def test_a_server_that_does_not_run_is_named() -> None:
    with pytest.raises(SystemUnreachable, match="failed at connecting"):
        nats.source("ORDERS", url="nats://127.0.0.1:9").splits(1)
    writer = nats.sink("totals", url="nats://127.0.0.1:9", timeout="1ms").immediate_writer()
    with pytest.raises(SystemUnreachable):
        writer.register(WriterIdentity("job-1", "out/0", 0, 0), 0)


def test_a_url_that_cannot_be_parsed_is_not_shown() -> None:
    with pytest.raises(InvalidConnector, match="the url cannot be parsed") as refused:
        nats.source("ORDERS", url="nats://shop:s3cret@localhost:port").splits(1)
    assert "s3cret" not in str(refused.value)
