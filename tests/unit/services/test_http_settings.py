"""Settings of ``http.configure`` go to the processes that run the functions of a job."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import replace

import pytest

from clonos.io.process.pickling import pack
from clonos.operators.job_image import JobImage
from clonos.testing import Harness
from clonos_services import http
from clonos_services.http import Response, SessionConfig
from tests.harnesses.lone_slot import small_image


@pytest.fixture(autouse=True)
def _settings_of_before() -> Iterator[None]:
    before = http.common_settings()
    yield
    http.use_common_settings(before)


def sent(image: JobImage) -> JobImage:
    """The image as another process has it, whose settings are still the defaults."""
    packed = pack(image)
    http.use_common_settings(SessionConfig())
    received: JobImage = pickle.loads(packed)  # noqa: S301  it was packed here
    return received


def test_the_settings_at_the_start_of_a_job_are_sent_with_it() -> None:
    def without_body(response: Response) -> Response:
        return replace(response, content=b"")

    http.configure(timeout=1, headers={"x-team": "prices"}, redact=without_body)
    received = sent(small_image())
    http.use_common_settings(received.http)
    assert (http.common_settings().timeout, http.common_settings().headers) == (1, {"x-team": "prices"})
    redact = http.common_settings().redact
    assert redact is not None
    assert redact(Response("GET", "http://x", 200, "OK", http.Headers(), b"secret")).content == b""


def test_a_later_start_sends_the_settings_of_then() -> None:
    http.configure(timeout=1)
    first = small_image()
    http.configure(timeout=2)
    second = small_image()
    assert [sent(image).http.timeout for image in (first, second)] == [1, 2]


@pytest.mark.slow
def test_a_harness_replays_in_another_process_with_the_settings() -> None:
    http.configure(base_url="http://rates")
    with Harness(lambda number: (number, http.get("now").url), http=lambda request: "") as asking:
        assert asking.push([7]) == [(7, "http://rates/now")]
        asking.crash()
        asking.restore()
        assert asking.replay(elsewhere=True) == [(7, "http://rates/now")]
