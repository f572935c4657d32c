"""``nats.sink`` on a real server: ids that a stream recognises, full streams, rows that are refused."""

from __future__ import annotations

import asyncio
import json
import logging
from contextlib import closing
from typing import Any

import nats as library
import pytest

from clonos.connectors import nats
from clonos.connectors.kit.broker_sink import Outgoing, Published
from clonos.connectors.kit.external_system import MessageRefused, SystemRefused, SystemUnreachable
from clonos.connectors.nats.subject_publisher import SubjectPublisher
from tests.connectors.nats.streams import add_stream, found
from tests.connectors.registered_writers import registered
from tests.connectors.servers.nats import PASSWORD, READER, NatsServer

pytestmark = pytest.mark.connectors


def test_rows_that_are_published_again_are_in_the_stream_once(server: NatsServer) -> None:
    add_stream(server, "ONCE")
    sink = nats.sink("once", url=server.full_url)
    with closing(registered(sink)) as writer:
        assert writer.write(0, [{"n": n} for n in range(300)]) == 300
        assert writer.write(290, [{"n": n} for n in range(290, 310)]) == 310
    with closing(registered(sink, 200)) as successor:
        assert successor.write(200, [{"n": n} for n in range(200, 400)]) == 400
    messages = found(server, "ONCE")
    assert [json.loads(body)["n"] for _, _, body in messages] == list(range(400))
    assert messages[7][1] == {"Nats-Msg-Id": "job-1/out/0/0/7"}


def test_rows_after_a_rollback_have_new_ids(server: NatsServer) -> None:
    add_stream(server, "BACK")
    sink = nats.sink("back", url=server.full_url)
    for generation in (0, 1):
        with closing(registered(sink, 0, generation)) as writer:
            writer.write(0, [generation])
    assert [headers["Nats-Msg-Id"] for _, headers, _ in found(server, "BACK")] == ["job-1/out/0/0/0", "job-1/out/0/1/0"]


def test_rows_go_to_their_subjects_with_their_headers(server: NatsServer) -> None:
    add_stream(server, "CITIES", "cities.*")
    sink = nats.sink(
        lambda row: f"cities.{row['city']}",
        url=server.full_url,
        stream="CITIES",
        encode=lambda row: row["city"].encode(),
        headers=lambda row: {"city": row["city"]},
    )
    sink.check_start()
    with closing(registered(sink)) as writer:
        writer.write(0, [{"city": "bonn"}, {"city": "kiel"}])
    messages = found(server, "CITIES")
    assert [(subject, headers["city"], body) for subject, headers, body in messages] == [
        ("cities.bonn", "bonn", b"bonn"),
        ("cities.kiel", "kiel", b"kiel"),
    ]


def test_a_full_stream_gets_the_rest_when_there_is_space(server: NatsServer) -> None:
    add_stream(server, "FULL", max_msgs=3, discard="new")
    hasty = nats.sink("full", url=server.full_url, timeout="10ms")
    with closing(registered(hasty)) as writer, pytest.raises(SystemUnreachable, match="maximum messages exceeded"):
        writer.write(0, [0, 1, 2, 3])
    assert [body for _, _, body in found(server, "FULL")] == [b"0", b"1", b"2"]
    server.ask(lambda jetstream: jetstream.purge_stream("FULL"))
    with closing(registered(hasty)) as writer:
        assert writer.write(3, [3]) == 4
    assert [body for _, _, body in found(server, "FULL")] == [b"3"]


@pytest.mark.parametrize(
    ("options", "size", "reason"),
    [({"max_msg_size": 100}, 200, "message size exceeds maximum"), ({}, 2 << 20, "the server takes 1048576")],
    ids=["stream", "server"],
)
def test_a_row_that_is_too_large_is_an_error_of_the_job(
    server: NatsServer, options: dict[str, Any], size: int, reason: str
) -> None:
    add_stream(server, "SMALL", **options)
    sink = nats.sink("small", url=server.full_url)
    with closing(registered(sink)) as writer, pytest.raises(MessageRefused, match=reason):
        writer.write(0, ["a", "b" * size])
    assert [body for _, _, body in found(server, "SMALL")] == [b"a"]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"subject": "nowhere"}, "no stream has it"),
        ({"subject": "is", "stream": "MISSING"}, "stream not found"),
        ({"subject": "silent"}, "its no_ack confirms no message"),
    ],
    ids=["subject", "stream", "no-ack"],
)
def test_a_sink_without_a_stream_that_confirms_is_refused_at_the_start(
    server: NatsServer, options: dict[str, Any], reason: str
) -> None:
    add_stream(server, "IS")
    add_stream(server, "SILENT", no_ack=True)
    with pytest.raises(SystemRefused, match=reason):
        nats.sink(**options, url=server.full_url).check_start()


def test_a_short_duplicate_window_is_warned_about_at_the_start(
    server: NatsServer, caplog: pytest.LogCaptureFixture
) -> None:
    add_stream(server, "WINDOWED", duplicate_window=5.0)
    with caplog.at_level(logging.WARNING, logger="clonos.driver"):
        nats.sink("windowed", url=server.full_url).check_start()
    assert "for 5 s only" in caplog.text


def test_a_subject_that_no_stream_has_or_that_is_of_another_stream_is_named(server: NatsServer) -> None:
    add_stream(server, "TAKES")
    sink = nats.sink(lambda row: row, url=server.full_url, timeout="10ms")
    with closing(registered(sink)) as writer, pytest.raises(SystemUnreachable, match="no stream takes the subject"):
        writer.write(0, ["takes", "nobody"])
    other = nats.sink("takes", url=server.full_url, stream="OTHER", timeout="10ms")
    with closing(registered(other)) as writer, pytest.raises(SystemRefused, match="expected stream does not match"):
        writer.write(0, ["x"])


def test_a_user_who_may_not_publish_is_refused(server: NatsServer) -> None:
    add_stream(server, "CLOSED")
    sink = nats.sink("closed", url=f"nats://{READER}:{PASSWORD}@{server.place}")
    with closing(registered(sink)) as writer, pytest.raises(SystemRefused, match="permissions violation for publish"):
        writer.write(0, ["x"])


def test_a_server_that_dies_is_a_fault_and_takes_the_rest_when_it_is_back(server: NatsServer) -> None:
    add_stream(server, "DIES")
    patient = registered(nats.sink("dies", url=server.full_url))
    hasty = registered(nats.sink("dies", url=server.full_url, timeout="10ms"))
    patient.write(0, [0, 1])
    server.kill()
    with closing(hasty), pytest.raises(SystemUnreachable):
        hasty.write(0, [0])
    server.launch()
    with closing(patient):
        assert patient.write(2, [2, 3]) == 4  # begun before the server answers
    server.wait()
    assert [body for _, _, body in found(server, "DIES")] == [b"0", b"1", b"2", b"3"]


def test_an_answer_of_a_service_on_the_subject_confirms_no_row(server: NatsServer) -> None:
    sink = nats.sink("served", url=server.full_url)

    def publish() -> Published:
        with closing(SubjectPublisher(sink.server, None, confirm_s=0.3)) as publisher:
            return publisher.publish([Outgoing(7, "served", b"row", {}, "row")])

    async def serve(_jetstream: Any) -> Published:
        async def answer(message: Any) -> None:
            for data in (b'{"ok": true}', b"thanks", b'["seq", 1]'):
                await message.respond(data)

        service = await library.connect(server.full_url)
        await service.subscribe("served", cb=answer)
        await service.flush()
        try:
            return await asyncio.to_thread(publish)
        finally:
            await service.close()

    published: Published = server.ask(serve)
    assert published.confirmed == set()
    assert "no stream has confirmed in 0.3 s, but something else has answered" in str(published.failure)
