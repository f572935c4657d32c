"""Limits of the HTTP client: time, attempts and bytes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace

import pytest

from clonos.io.http import http_client
from clonos.io.http.http_client import (
    HttpClient,
    HttpLimits,
    HttpReply,
    HttpRequest,
    close_shared_client,
    shared_client,
)
from clonos.io.http.http_errors import (
    HttpBodyTooLarge,
    HttpConnectionFailed,
    HttpRequestInvalid,
    HttpTimeout,
    redacted_url,
)
from tests.unit.services.loopback import Loopback, loopback

LIMITS = HttpLimits(
    timeout_s=5.0, connect_timeout_s=1.0, retries_max=2, redirects_max=3, body_bytes_max=1 << 20, is_repeatable=True
)
NANOSECONDS_PER_SECOND = 1_000_000_000


class PausesSeen:
    """Time that passes only by pauses."""

    def __init__(self) -> None:
        self.pauses_s: list[float] = []

    def monotonic_ns(self) -> int:
        return int(sum(self.pauses_s) * NANOSECONDS_PER_SECOND)

    def sleep(self, seconds: float) -> None:
        self.pauses_s.append(seconds)


@pytest.fixture
def server() -> Iterator[Loopback]:
    with loopback() as state:
        yield state


@pytest.fixture
def time() -> PausesSeen:
    return PausesSeen()


@pytest.fixture
def client(time: PausesSeen) -> Iterator[HttpClient]:
    client = HttpClient(time.monotonic_ns, time.sleep)
    yield client
    client.close()


def get(client: HttpClient, url: str, limits: HttpLimits = LIMITS) -> HttpReply:
    return client.send(HttpRequest("GET", url, (("x-one", "1"),)), limits)


def test_a_reply_has_status_headers_and_body(server: Loopback, client: HttpClient) -> None:
    reply = get(client, server.url + "/count")
    assert (reply.status_code, reply.reason, reply.body) == (200, "OK", b'{"count": 1}')
    assert reply.url == server.url + "/count"
    assert ("x-trace", "t") in reply.headers
    assert server.seen[0].headers["x-one"] == "1"


def test_a_busy_server_is_retried_after_growing_pauses(server: Loopback, client: HttpClient, time: PausesSeen) -> None:
    server.failures_left = 2
    assert get(client, server.url + "/flaky").status_code == 200
    assert time.pauses_s == [0.1, 0.2]


def test_a_request_that_must_not_be_repeated_is_sent_once(server: Loopback, client: HttpClient) -> None:
    once = replace(LIMITS, is_repeatable=False)
    server.failures_left = 2
    assert get(client, server.url + "/flaky", once).status_code == 503
    with pytest.raises(HttpConnectionFailed) as raised:
        get(client, server.url + "/cut", once)
    assert raised.value.was_sent
    assert len(server.seen) == 2


def test_a_broken_connection_is_reopened_for_a_repeatable_request(server: Loopback, client: HttpClient) -> None:
    server.failures_left = 2
    assert get(client, server.url + "/cut").status_code == 200
    assert len(server.seen) == 3


def test_a_failed_connect_is_retried_for_every_request(client: HttpClient, time: PausesSeen) -> None:
    with loopback() as gone:
        url = gone.url
    with pytest.raises(HttpConnectionFailed, match="refused") as raised:
        get(client, url, replace(LIMITS, is_repeatable=False))
    assert not raised.value.was_sent
    assert time.pauses_s == [0.1, 0.2]


def test_the_time_for_all_attempts_together_is_limited(server: Loopback, client: HttpClient, time: PausesSeen) -> None:
    server.failures_left = 9
    reply = get(client, server.url + "/flaky", replace(LIMITS, retries_max=9, timeout_s=1.0))
    assert reply.status_code == 503
    assert time.pauses_s == [0.1, 0.2, 0.4]


def test_a_server_that_does_not_answer_in_time_is_a_timeout(server: Loopback) -> None:
    client = HttpClient()
    with pytest.raises(HttpTimeout, match=r"GET http://127\.0\.0\.1:\d+/hold: .*0\.1 s"):
        get(client, server.url + "/hold?secret=1", replace(LIMITS, timeout_s=0.1))


def test_an_endless_body_is_a_timeout(server: Loopback) -> None:
    with pytest.raises(HttpTimeout, match="reading the body"):
        get(HttpClient(), server.url + "/drip", replace(LIMITS, timeout_s=0.2))


def test_a_body_beyond_the_limit_is_refused_before_it_is_read(server: Loopback, client: HttpClient) -> None:
    with pytest.raises(HttpBodyTooLarge, match="1000 bytes"):
        get(client, server.url + "/zipped", replace(LIMITS, body_bytes_max=1_000))
    with pytest.raises(HttpBodyTooLarge):
        get(client, server.url + "/drip", replace(LIMITS, body_bytes_max=10))


def test_a_compressed_body_is_decompressed(server: Loopback, client: HttpClient) -> None:
    assert get(client, server.url + "/zipped").body == b"x" * 100_000


def test_redirects_are_followed_to_their_limit(server: Loopback, client: HttpClient) -> None:
    reply = get(client, server.url + "/moved")
    assert (reply.status_code, reply.url) == (200, server.url + "/count")
    assert get(client, server.url + "/moved", replace(LIMITS, redirects_max=0)).status_code == 302


def test_a_redirect_of_a_post_is_followed_with_get(server: Loopback, client: HttpClient) -> None:
    assert client.send(HttpRequest("POST", server.url + "/seen-other", body=b"x"), LIMITS).status_code == 200
    assert [(seen.method, seen.body) for seen in server.seen] == [("POST", b"x"), ("GET", b"")]


@pytest.mark.parametrize("url", ["", "localhost/x", "ftp://localhost/x", "http://", "http://[::1/x"])
def test_a_url_that_is_not_http_is_a_job_error(client: HttpClient, url: str) -> None:
    with pytest.raises(HttpRequestInvalid):
        get(client, url)


def test_a_header_with_a_line_break_is_a_job_error(server: Loopback, client: HttpClient) -> None:
    with pytest.raises(HttpRequestInvalid):
        client.send(HttpRequest("GET", server.url, (("x-bad", "1\r\nx-more: 2"),)), LIMITS)


def test_error_messages_show_no_secrets_of_a_url() -> None:
    assert redacted_url("https://user:word@host:1/path?key=1#part") == "https://host:1/path"
    assert redacted_url("http://[") == "(a malformed URL)"


def test_the_process_shares_one_client_until_it_is_closed_or_forked() -> None:
    first = shared_client()
    assert shared_client() is first
    close_shared_client()
    second = shared_client()
    assert second is not first
    http_client.forget_shared_client()
    assert shared_client() is not second
    close_shared_client()


NO_FILES = """
import resource
from clonos.io.http.http_requests import _check_host
resource.setrlimit(resource.RLIMIT_NOFILE, (0, 0))
_check_host("example.org")
"""


def test_a_host_name_is_checked_by_a_process_that_can_open_no_file() -> None:
    done = subprocess.run([sys.executable, "-c", NO_FILES], capture_output=True, text=True)
    assert not done.stderr
