"""HTTP in a job: one request for all incarnations, one key for all attempts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace

import cloudpickle
import pytest

from clonos.core.ports.recorder import running
from clonos.io.http.http_client import HttpLimits, HttpReply, HttpRequest
from clonos_services import http
from clonos_services.http import CallInDoubt, Headers, Response
from clonos_services.http_session import ReconciliationInvalid, RedactionInvalid
from clonos_services.http_settings import SettingUnknown
from tests.harnesses.fake_recorder import FakeRecorder
from tests.unit.services.loopback import Loopback, loopback


@pytest.fixture
def server() -> Iterator[Loopback]:
    with loopback() as state:
        yield state
    http.close()


@pytest.fixture(autouse=True)
def _settings_of_before() -> Iterator[None]:
    before = http.common_settings()
    yield
    http.use_common_settings(before)


def test_outside_a_job_each_request_is_made(server: Loopback) -> None:
    assert [http.get(server.url + "/count").json()["count"] for _ in range(2)] == [1, 2]
    assert len(set(server.keys)) == 2


def test_the_next_incarnation_gets_the_logged_answer_without_a_request(server: Loopback) -> None:
    recorder = FakeRecorder()
    with running(recorder):
        first = [http.get(server.url + "/count", params={"word": "ä b"}) for _ in range(2)]
    with running(recorder.successor()):
        second = [http.get(server.url + "/count", params={"word": "ä b"}) for _ in range(2)]
    assert second == first
    assert [response.json()["count"] for response in first] == [1, 2]
    assert first[0].url == server.url + "/count?word=%C3%A4+b"
    assert [seen.path for seen in server.seen] == ["/count?word=%C3%A4+b"] * 2


def test_the_key_of_the_recorder_is_sent_and_is_the_same_for_every_attempt(server: Loopback) -> None:
    recorder = FakeRecorder()
    server.failures_left = 1
    with running(recorder):
        http.get(server.url + "/cut", retries=2)
        http.get(server.url + "/count", headers={"Idempotency-Key": "mine"})
    key = recorder.calls_made[0][2]
    assert server.keys == [key, key, "mine"]


def test_only_chosen_headers_are_recorded(server: Loopback) -> None:
    response = http.get(server.url + "/count")
    assert dict(response.headers) == {"content-type": "application/json"}
    response = http.get(server.url + "/count", keep_headers=("X-Trace",))
    assert dict(response.headers) == {"x-trace": "t"}


def test_the_next_incarnation_gets_the_logged_exception_without_a_request(server: Loopback) -> None:
    recorder = FakeRecorder()
    lives = []
    for life in (recorder, None):
        with running(life or recorder.successor()):
            errors: list[Exception] = []
            with pytest.raises(http.HttpTimeout) as timed_out:
                http.get(server.url + "/hold", timeout=0.1)
            errors.append(timed_out.value)
            with pytest.raises(http.HttpBodyTooLarge) as too_large:
                http.get(server.url + "/count", body_bytes_max=3)
            errors.append(too_large.value)
            with pytest.raises(http.HttpStatusError) as status:
                http.get(server.url + "/refused").raise_for_status()
            errors.append(status.value)
            with pytest.raises(http.HttpConnectionFailed) as failed:
                http.get("http://127.0.0.1:9/", retries=0)
            errors.append(failed.value)
        lives.append([(type(error), error.args) for error in errors])
    assert lives[0] == lives[1]
    assert sorted(seen.path for seen in server.seen if seen.path != "/hold") == ["/count", "/refused"]


@pytest.mark.parametrize("method", ["post", "put", "patch", "delete"])
def test_a_request_with_an_effect_is_logged_before_it_is_sent(server: Loopback, method: str) -> None:
    recorder = FakeRecorder()
    with running(recorder):
        getattr(http, method)(server.url + "/count")
    assert [tag for tag, _ in recorder.log] == ["INTENT", "CALL"]
    with running(recorder.successor()):
        getattr(http, method)(server.url + "/count")
    assert len(server.seen) == 1


def test_a_request_declared_idempotent_by_its_key_is_an_ordinary_call(server: Loopback) -> None:
    recorder = FakeRecorder()
    server.failures_left = 1
    with running(recorder):
        http.post(server.url + "/flaky", json={"a": 1}, intent=False)
    assert [tag for tag, _ in recorder.log] == ["CALL"]
    assert len(server.seen) == 2


@pytest.mark.parametrize(
    ("method", "idempotent", "is_sent_again"),
    [("POST", None, False), ("PATCH", None, False), ("PUT", None, True), ("DELETE", None, True), ("POST", True, True)],
)
def test_a_request_in_doubt_is_sent_again_only_if_it_is_idempotent(
    server: Loopback, method: str, idempotent: bool | None, is_sent_again: bool
) -> None:
    successor = FakeRecorder((("INTENT", f"http.{method.lower()}"),), life=1)
    with running(successor):
        if is_sent_again:
            assert http.request(method, server.url + "/count", idempotent=idempotent).ok
        else:
            with pytest.raises(CallInDoubt):
                http.request(method, server.url + "/count", idempotent=idempotent)
    assert len(server.seen) == int(is_sent_again)


def _in_doubt(method: str = "post") -> FakeRecorder:
    return FakeRecorder((("INTENT", f"http.{method}"),), life=1)


def test_a_request_in_doubt_is_reconciled_by_its_key_with_one_answer_in_every_incarnation(
    server: Loopback,
) -> None:
    asked: list[tuple[str, HttpRequest]] = []

    def find(key: str, request: HttpRequest) -> Response:
        asked.append((key, request))
        return http.get(server.url + "/count", params={"order": key})

    recorder = _in_doubt()
    with running(recorder):
        first = http.post(server.url + "/orders", json={"a": 1}, reconcile=find)
    with running(recorder.successor()):
        second = http.post(server.url + "/orders", json={"a": 1}, reconcile=find)
    assert first == second
    assert first.json() == {"count": 1}
    ((key, request),) = asked
    assert (request.method, request.body, dict(request.headers)["idempotency-key"]) == ("POST", b'{"a":1}', key)
    assert [seen.path for seen in server.seen] == [f"/count?order={key}"]
    assert server.keys != [key], "a server that knows requests by their key must not take the question for the order"


def test_a_request_that_never_took_place_is_sent_again_with_its_key(server: Loopback) -> None:
    def find(key: str, request: HttpRequest) -> Response:
        raise http.CallNeverHappened

    recorder = _in_doubt()
    with running(recorder):
        assert http.post(server.url + "/count", reconcile=find).ok
    assert server.keys == [recorder.calls_made[0][2]]


def test_reconcile_must_return_a_response_and_applies_only_to_requests_with_effects(server: Loopback) -> None:
    with running(_in_doubt()), pytest.raises(ReconciliationInvalid, match="returned str"):
        http.post(server.url + "/count", reconcile=lambda key, request: key)  # type: ignore[arg-type, return-value]
    for method, intent in (("GET", None), ("POST", False)):
        with running(FakeRecorder()), pytest.raises(http.HttpRequestInvalid, match="needs an announced request"):
            http.request(method, server.url, intent=intent, reconcile=lambda key, request: http.get(request.url))
    assert not server.seen


def test_redacted_content_is_neither_recorded_nor_returned(server: Loopback) -> None:
    def without_count(response: Response) -> Response:
        return replace(response, content=b'{"count": "hidden"}', headers=Headers({"x-seen": "by redact"}))

    http.configure(redact=without_count)
    recorder = FakeRecorder()
    with running(recorder):
        first = http.get(server.url + "/count")
    http.configure(redact=None)
    with running(recorder.successor()):
        second = http.get(server.url + "/count")
    assert first == second
    assert first.json() == {"count": "hidden"}
    assert dict(first.headers) == {"x-seen": "by redact"}
    assert b"hidden" in repr(recorder.log).encode()
    assert b'\\"count\\": 1' not in repr(recorder.log).encode()


def test_a_redaction_that_returns_no_response_is_a_job_error(server: Loopback) -> None:
    with running(FakeRecorder()), pytest.raises(RedactionInvalid, match="NoneType"):
        http.get(server.url + "/count", redact=lambda response: None)  # type: ignore[arg-type, return-value]


def test_secrets_in_headers_are_not_part_of_a_calls_identity(server: Loopback) -> None:
    recorder = FakeRecorder()
    with running(recorder):
        http.get(server.url + "/count", auth=("user", "one"))
        http.get(server.url + "/count", auth=("user", "two"))
        http.get(server.url + "/other")
    requests = [request for _, request, _ in recorder.calls_made]
    assert requests[0] == requests[1] != requests[2]
    assert server.seen[0].headers["authorization"] == "Basic dXNlcjpvbmU="


def test_a_session_has_common_settings_and_can_be_pickled(server: Loopback) -> None:
    session = http.session(base_url=server.url + "/api", headers={"X-Team": "a", "Accept": "text/plain"})
    http.configure(headers={"X-Job": "j", "X-Team": "b"})
    travelled = cloudpickle.loads(cloudpickle.dumps(lambda: session.post("echo", data="ä", headers={"accept": "*/*"})))
    response = travelled()
    assert (response.text, response.url) == ("ä", server.url + "/api/echo")
    headers = server.seen[0].headers
    assert (headers["x-team"], headers["x-job"], headers["accept"]) == ("a", "j", "*/*")
    assert headers["content-type"] == "text/plain; charset=utf-8"
    assert session.get(server.url + "/count").url == server.url + "/count"


def test_a_body_may_be_json_form_text_or_bytes(server: Loopback) -> None:
    http.post(server.url, json={"k": ["ä", None]})
    http.post(server.url, data={"k": ["a b", 1]})
    http.post(server.url, data=b"\0")
    http.post(server.url)
    assert [seen.body for seen in server.seen] == ['{"k":["ä",null]}'.encode(), b"k=a+b&k=1", b"\0", b""]
    types = [seen.headers.get("content-type") for seen in server.seen]
    assert types == ["application/json", "application/x-www-form-urlencoded", None, None]


@pytest.mark.parametrize("options", [{"json": {1}}, {"json": float("nan")}, {"json": 1, "data": b""}], ids=repr)
def test_a_body_that_cannot_be_sent_is_a_job_error(options: dict[str, object]) -> None:
    with pytest.raises(http.HttpRequestInvalid):
        http.post("http://127.0.0.1:9/", **options)  # type: ignore[arg-type]


def test_an_unknown_setting_is_refused_with_the_known_ones() -> None:
    with pytest.raises(SettingUnknown, match=r"no setting timeouts.*timeout, connect_timeout"):
        http.session(timeouts=3)  # type: ignore[call-arg]
    with pytest.raises(SettingUnknown, match="wait"):
        http.get("http://127.0.0.1:9/", wait=3)  # type: ignore[call-arg]


def test_a_response_reads_its_charset_and_raises_for_its_status(server: Loopback) -> None:
    response = http.get(server.url + "/refused")
    assert (response.ok, response.encoding, response.text) == (False, "latin-1", "not you")
    with pytest.raises(http.HttpStatusError, match="403 Forbidden: not you"):
        response.raise_for_status()
    good = http.head(server.url + "/count")
    assert good.raise_for_status() is good
    assert good.content == b""
    odd = replace(good, headers=Headers([("A", "1"), ("a", "2"), ("Content-Type", "x; charset=none")]), content=b"\xff")
    assert (odd.text, odd.headers["A"], "a" in odd.headers) == ("\ufffd", "1, 2", True)


def response_in(charset: str, content: bytes) -> Response:
    return Response("GET", "http://x/", 200, "OK", Headers({"content-type": f"text/plain; charset={charset}"}), content)


@pytest.mark.parametrize(
    "charset",
    [
        "punycode",
        "idna",
        "unicode_escape",
        "raw_unicode_escape",
        "utf-7",
        "undefined",
        "rot13",
        "hex",
        "nobody's",
        "x" * 99,
    ],
)
def test_a_charset_that_the_web_does_not_use_is_read_as_utf_8(charset: str) -> None:
    response = response_in(charset, "ä+AOQ-\\xe4-fiq".encode())
    assert (response.text, response.encoding) == ("ä+AOQ-\\xe4-fiq", "utf-8")


@pytest.mark.parametrize(
    ("charset", "content", "text"),
    [
        ("UTF-8", b"\xc3\xa4", "ä"),
        ("iso-8859-1", b"\xe4", "ä"),
        ("us-ascii", b"\xe4", "\ufffd"),
        ("Windows-1252", b"\x80", "€"),
        ("windows-1251", b"\xe4", "д"),
        ("iso-8859-15", b"\xa4", "€"),
        ("koi8-r", b"\xc4", "д"),
        ("Shift_JIS", b"\x82\xa0", "あ"),
        ("euc-jp", b"\xa4\xa2", "あ"),
        ("gb2312", b"\xc4\xe3", "你"),
        ("GBK", b"\xc4\xe3", "你"),
        ("big5", b"\xa7\x41", "你"),
        ("euc-kr", b"\xb0\xa1", "가"),
        ("utf-16le", b"\xe4\0", "ä"),
    ],
)
def test_charsets_of_the_web_are_decoded(charset: str, content: bytes, text: str) -> None:
    assert response_in(f'"{charset}"', content).text == text


def test_json_that_is_nested_too_deeply_is_not_accepted() -> None:
    with pytest.raises(ValueError, match="too deep"):
        response_in("utf-8", b"[" * 1_000_000).json()


def test_a_stand_in_answers_in_place_of_the_network() -> None:
    def answer(request: HttpRequest, limits: HttpLimits) -> HttpReply:
        return HttpReply(200, "OK", request.url, (), json.dumps(dict(request.headers)).encode())

    recorder = FakeRecorder()
    with running(recorder), http.transported_by(answer):
        response = http.get("http://nowhere.invalid/")
    assert response.json()["idempotency-key"] == recorder.calls_made[0][2]
