"""HTTPS: certificates are verified, and a TLS socket keeps deadline and byte count like a plain one."""

from __future__ import annotations

import datetime
import ipaddress
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from clonos.io.http import http_sockets
from clonos.io.http.http_client import HttpClient, HttpLimits, HttpRequest
from clonos.io.http.http_errors import HttpBodyTooLarge, HttpConnectionFailed, HttpTimeout
from tests.unit.services.hostile import Conversation, answer, hostile

LIMITS = HttpLimits(
    timeout_s=30.0, connect_timeout_s=30.0, retries_max=0, redirects_max=5, body_bytes_max=1_000, is_repeatable=True
)
QUICK = HttpLimits(
    timeout_s=0.5, connect_timeout_s=30.0, retries_max=0, redirects_max=5, body_bytes_max=1 << 30, is_repeatable=True
)


def certified(folder: Path, address: str) -> ssl.SSLContext:
    """A server's context, whose certificate is for this address and stands in ``certificate.pem``."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "clonos test")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(address))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    (folder / "certificate.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    (folder / "key.pem").write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "certificate.pem", folder / "key.pem")
    return context


@pytest.fixture
def tls(tmp_path: Path) -> ssl.SSLContext:
    return certified(tmp_path, "127.0.0.1")


@pytest.fixture
def client() -> Iterator[HttpClient]:
    """A client that reads the trusted certificates again."""
    http_sockets.tls_context.cache_clear()
    client = HttpClient()
    yield client
    client.close()
    http_sockets.tls_context.cache_clear()


@pytest.fixture
def trusting_client(client: HttpClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> HttpClient:
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "certificate.pem"))
    return client


def test_a_server_with_a_trusted_certificate_is_asked(tls: ssl.SSLContext, trusting_client: HttpClient) -> None:
    def script(conversation: Conversation) -> None:
        for _ in range(2):
            conversation.read()
            conversation.send(answer(b"kept secret"))

    with hostile(script, tls=tls) as server:
        replies = [trusting_client.send(HttpRequest("POST", server.url, body=b"x"), LIMITS) for _ in range(2)]
    assert [reply.body for reply in replies] == [b"kept secret"] * 2


def test_a_certificate_that_is_not_trusted_is_refused(tls: ssl.SSLContext, client: HttpClient) -> None:
    with hostile(lambda conversation: None, tls=tls) as server:
        with pytest.raises(HttpConnectionFailed, match=r"certificate verify failed.*the request was not sent"):
            client.send(HttpRequest("POST", server.url), LIMITS)
        assert not server.requests


def test_a_certificate_for_another_host_is_refused(tmp_path: Path, trusting_client: HttpClient) -> None:
    with hostile(lambda conversation: None, tls=certified(tmp_path, "127.0.0.2")) as server:
        with pytest.raises(HttpConnectionFailed, match=r"certificate is not valid for '127\.0\.0\.1'.*was not sent"):
            trusting_client.send(HttpRequest("POST", server.url), LIMITS)
        assert not server.requests


def test_a_slow_answer_ends_at_the_deadline(tls: ssl.SSLContext, trusting_client: HttpClient) -> None:
    def script(conversation: Conversation) -> None:
        conversation.read()
        conversation.send(b"HTTP/1.1 200 OK\r\nX-Long: ")
        conversation.drip()

    with hostile(script, tls=tls) as server, pytest.raises(HttpTimeout):
        trusting_client.send(HttpRequest("GET", server.url), QUICK)


def test_a_request_that_is_read_slowly_ends_at_the_deadline(tls: ssl.SSLContext, trusting_client: HttpClient) -> None:
    with hostile(Conversation.sip, tls=tls, receive_bytes=4_096) as server, pytest.raises(HttpTimeout):
        trusting_client.send(HttpRequest("POST", server.url, body=bytes(64 << 20)), QUICK)


def test_a_truncated_answer_is_an_error_at_every_byte(tls: ssl.SSLContext, trusting_client: HttpClient) -> None:
    def script(conversation: Conversation) -> None:
        conversation.read()
        conversation.flood(b"HTTP/1.1 100 Continue\r\n\r\n" * 100)

    with hostile(script, tls=tls) as server, pytest.raises(HttpBodyTooLarge):
        trusting_client.send(HttpRequest("GET", server.url), LIMITS)
