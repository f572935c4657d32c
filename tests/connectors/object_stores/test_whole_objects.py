"""`files.whole` between folders of an object store: each record is an object of its own key."""

from __future__ import annotations

import pytest

from clonos.connectors import files
from clonos.connectors.connector_errors import OutputNameTaken
from tests.connectors.object_stores.objects import contents, put
from tests.harnesses.s3_server import S3Server
from tests.unit.connectors.reading import read_all
from tests.unit.connectors.writing import JOB, part_of

pytestmark = [pytest.mark.connectors, pytest.mark.keeps_sockets]


def test_each_record_is_an_object_until_its_checkpoint_is_withdrawn(s3: S3Server) -> None:
    put(s3, "whole/in/a.xml", b"<a/>")
    assert read_all(files.whole(s3.url("whole/in/*.xml"))) == [(s3.url("whole/in/a.xml"), b"<a/>")]
    sink = files.whole(s3.url("whole/out"))
    sink.prepare_output(JOB, False, False)
    first = part_of(sink, 1, [("a", b"1"), ("d/x", b"2")])
    assert contents(s3, "whole/out") == {}
    sink.commit(JOB, 1, [first])
    sink.commit(JOB, 2, [part_of(sink, 2, [("d/y", b"3")])])
    assert contents(s3, "whole/out") == {"a": b"1", "d/x": b"2", "d/y": b"3"}
    assert list(files.read_committed(s3.url("whole/out"))) == [("a", b"1"), ("d/x", b"2"), ("d/y", b"3")]
    taken = part_of(sink, 3, [("a", b"4")])
    with pytest.raises(OutputNameTaken):
        sink.commit(JOB, 3, [taken])
    assert sink.roll_back(JOB, 1) == [2]
    assert contents(s3, "whole/out") == {"a": b"1", "d/x": b"2"}
