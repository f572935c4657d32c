"""Options that count something take whole numbers from 1 on; other values are refused at once."""

from collections.abc import Callable
from math import nan
from typing import Any

import pytest

from clonos.connectors import codecs, files, sockets, web
from clonos.core.model.errors import JobError
from clonos_services import http

COUNTS: dict[str, Callable[[Any], object]] = {
    "files.lines(block_bytes)": lambda given: files.lines("folder", block_bytes=given),
    "files.lines(line_bytes_max)": lambda given: files.lines("folder", line_bytes_max=given),
    "files.jsonl(block_bytes)": lambda given: files.jsonl("folder", block_bytes=given),
    "files.jsonl(line_bytes_max)": lambda given: files.jsonl("folder", line_bytes_max=given),
    "files.jsonl(part_rows)": lambda given: files.jsonl("folder", part_rows=given),
    "files.csv(line_bytes_max)": lambda given: files.csv("folder", line_bytes_max=given),
    "files.avro(block_bytes)": lambda given: files.avro("folder", block_bytes=given),
    "files.whole(file_bytes_max)": lambda given: files.whole("folder", file_bytes_max=given),
    "sockets.lines(port)": lambda given: sockets.lines("localhost", given),
    "sockets.lines(line_bytes_max)": lambda given: sockets.lines("localhost", 9, line_bytes_max=given),
    "web.post(batch)": lambda given: web.post("http://localhost/", batch=given),
    "http.session(body_bytes_max)": lambda given: http.session(body_bytes_max=given),
}


@pytest.mark.parametrize("given", [0, -1, True, 1.5, nan, "7"], ids=repr)
@pytest.mark.parametrize("count", COUNTS)
def test_a_count_that_is_not_a_whole_number_from_1_on_is_refused(count: str, given: Any) -> None:
    with pytest.raises(JobError, match=r"(?i)\b(is|=)"):
        COUNTS[count](given)


@pytest.mark.parametrize("given", [0, -1, True, nan, float("inf"), "2s", None], ids=repr)
@pytest.mark.parametrize("setting", ["timeout", "connect_timeout"])
def test_a_time_of_a_request_that_is_not_a_number_of_seconds_above_0_is_refused(setting: Any, given: Any) -> None:
    with pytest.raises(JobError, match=f"the setting {setting} of HTTP requests is .* a number above 0"):
        http.session(**{setting: given})
    good: Any = {setting: 0.5}
    http.session(**good)


@pytest.mark.parametrize("given", [-1, True, 0.5, nan, "3"], ids=repr)
def test_a_number_of_attempts_that_is_not_a_whole_number_is_refused(given: Any) -> None:
    with pytest.raises(JobError, match="retries"):
        http.session(retries=given)
    with pytest.raises(JobError, match="retries_max"):
        codecs.SchemaRegistry("http://localhost", retries_max=given)
    http.session(retries=0)
