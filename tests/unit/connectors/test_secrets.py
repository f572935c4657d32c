"""Secrets: what holds, prints or carries one shows where it is, and the value is in the process that reveals it."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import cloudpickle
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clonos import Job, collect, postgres, values, web
from clonos.connectors import secrets
from clonos.connectors.connector_errors import InvalidConnector
from clonos.connectors.secrets import (
    SECRET_BYTES_MAX,
    Secret,
    SecretMissing,
    check_text,
    masked,
    missing_secrets,
    revealed,
    without,
)

VALUE = "Tr0ub4dor&3"


def shown_by(error: BaseException) -> str:
    """Everything that a report of the error can show."""
    chained = [each for each in (error, error.__cause__, error.__context__) if each is not None]
    return "".join(f"{each} {each!r} {each.args}" for each in chained)


def test_a_variable_is_read_when_the_secret_is_revealed(monkeypatch: pytest.MonkeyPatch) -> None:
    secret = secrets.env("SHOP_PASSWORD")
    monkeypatch.setenv("SHOP_PASSWORD", VALUE)
    assert secret.reveal() == revealed(secret) == VALUE
    monkeypatch.setenv("SHOP_PASSWORD", "a later one")
    assert secret.reveal() == "a later one"


def test_a_file_is_read_without_its_last_line_end(tmp_path: Path) -> None:
    for content in (VALUE, f"{VALUE}\n", f"{VALUE}\r\n"):
        (tmp_path / "password").write_bytes(content.encode())
        assert secrets.file(tmp_path / "password").reveal() == VALUE
    (tmp_path / "password").write_text(f" {VALUE} \n\n")
    assert secrets.file(tmp_path / "password").reveal() == f" {VALUE} \n"


def test_a_secret_shows_and_carries_where_it_is_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_PASSWORD", VALUE)
    (tmp_path / "password").write_text(VALUE)
    for secret, text in (
        (secrets.env("SHOP_PASSWORD"), "<secret from $SHOP_PASSWORD>"),
        (secrets.file(tmp_path / "password"), f"<secret from {tmp_path / 'password'}>"),
    ):
        secret.reveal()
        assert repr(secret) == str(secret) == f"{secret}" == text
        for data in (pickle.dumps(secret), cloudpickle.dumps(secret)):
            assert VALUE.encode() not in data
            assert cloudpickle.loads(data) == secret
        assert hash(secret) == hash(cloudpickle.loads(pickle.dumps(secret)))
        with pytest.raises(AttributeError):
            secret.variable = "OTHER"  # type: ignore[misc]  # the mistake


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, "No such file or directory"),
        (b"", "it is empty"),
        (b"\n", "it is empty"),
        (VALUE.encode() + b"\xff", "the file is not text in UTF-8"),
        (VALUE.encode() * SECRET_BYTES_MAX, "the file has more than 65536 bytes"),
    ],
)
def test_a_file_that_holds_no_secret_is_named_and_not_shown(tmp_path: Path, content: bytes | None, reason: str) -> None:
    if content is not None:
        (tmp_path / "password").write_bytes(content)
    with pytest.raises(SecretMissing, match=reason) as raised:
        secrets.file(tmp_path / "password").reveal()
    assert f"<secret from {tmp_path / 'password'}> cannot be used in this process" in str(raised.value)
    assert VALUE not in shown_by(raised.value)
    assert str(cloudpickle.loads(pickle.dumps(raised.value))) == str(raised.value)


def test_a_variable_that_is_not_set_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SHOP_PASSWORD", raising=False)
    with pytest.raises(SecretMissing, match="the variable SHOP_PASSWORD is not set"):
        secrets.env("SHOP_PASSWORD").reveal()
    monkeypatch.setenv("SHOP_PASSWORD", "")
    with pytest.raises(SecretMissing, match="it is empty"):
        secrets.env("SHOP_PASSWORD").reveal()


def test_an_empty_name_is_refused() -> None:
    for name in ("", "A=B", "A\0"):
        with pytest.raises(InvalidConnector, match=r"secrets\.env"):
            secrets.env(name)
    with pytest.raises(InvalidConnector, match=r"secrets\.file"):
        secrets.file("")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (f"postgresql://ann:{VALUE}@db:5432/shop", "postgresql://ann:***@db:5432/shop"),
        (f"amqp://:{VALUE}@db", "amqp://:***@db"),
        (f"postgresql://db/shop?user=ann&password={VALUE[:9]}&x=1", "postgresql://db/shop?user=ann&password=***&x=1"),
        (f"host=db password={VALUE} user=ann", "host=db password=*** user=ann"),
        (f"host=db password = 'Tr0ub4d\\'or {VALUE}' user=ann", "host=db password = *** user=ann"),
        ("http://db:80/a@b", "http://db:80/a@b"),
        ("postgresql://ann@db/shop", "postgresql://ann@db/shop"),
        ("no password at all", "no password at all"),
    ],
)
def test_passwords_within_a_text_are_masked(text: str, shown: str) -> None:
    assert masked(text) == shown


@given(st.text("abc@:&'= ", min_size=1, max_size=8), st.text("abc@:&'= ", max_size=30))
def test_a_text_without_values_has_none_of_them(value: str, text: str) -> None:
    assert value not in without(f"{text}{value}{text}", [value]) or value in "***"


def test_a_secret_within_an_f_string_is_refused() -> None:
    secret = Secret(variable="SHOP_PASSWORD")
    check_text("postgres.table", "dsn", secret)
    check_text("postgres.table", "dsn", "postgresql://ann@db/shop")
    with pytest.raises(InvalidConnector, match="dsn contains a secret, which an f-string cannot reveal"):
        check_text("postgres.table", "dsn", f"postgresql://ann:{secret}@db/shop")


@pytest.mark.parametrize(
    "sink",
    [
        web.post("http://127.0.0.1:9/hook", headers={"authorization": secrets.env("CLONOS_TEST_NO_SUCH")}),
        postgres.table("postgresql://ann@127.0.0.1:9/shop", "orders", password=secrets.env("CLONOS_TEST_NO_SUCH")),
    ],
    ids=["web", "postgres"],
)
@pytest.mark.parametrize("end", ["sink", "errors"])
def test_a_missing_secret_ends_the_start_before_anything_is_written(tmp_path: Path, sink: Any, end: str) -> None:
    job = Job("late", store=tmp_path / "store", errors=sink if end == "errors" else None)
    job.source(values([1])).map(lambda number: {"n": number}).sink(sink if end == "sink" else collect())
    with pytest.raises(SecretMissing, match="the variable CLONOS_TEST_NO_SUCH is not set"):
        job.start(slots="thread")
    assert list(tmp_path.iterdir()) == []


def test_a_missing_secret_is_found_in_the_options_of_a_polled_endpoint() -> None:
    source = web.poll("http://127.0.0.1:1/x", every="1s", token=secrets.env("CLONOS_TEST_NO_SUCH_SECRET"), identity="n")
    assert {str(secret) for secret in missing_secrets(source)} == {"<secret from $CLONOS_TEST_NO_SUCH_SECRET>"}
