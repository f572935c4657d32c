"""A server with TLS: its clients check the certificate, and nothing is answered without it."""

from __future__ import annotations

import ipaddress
import urllib.error
import urllib.request
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from clonos.cli.server_client import ServerClient, ServerUnreachable
from tests.processes.harness.running_server import TOKEN, running_server
from tests.speed import scaled

pytestmark = [pytest.mark.processes, pytest.mark.timeout(400)]


def _certificate(folder: Path) -> tuple[Path, Path]:
    """A certificate of 127.0.0.1 that signs itself, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "a server of the tests")])
    now = datetime.now(UTC)
    built = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    certificate_file, key_file = folder / "cert.pem", folder / "key.pem"
    certificate_file.write_bytes(built.public_bytes(serialization.Encoding.PEM))
    form = serialization.PrivateFormat.PKCS8
    key_file.write_bytes(key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()))
    return certificate_file, key_file


def test_a_server_with_tls_is_reached_only_by_clients_that_trust_its_certificate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate, key = _certificate(tmp_path)
    with running_server(tmp_path, "--tls-cert", str(certificate), "--tls-key", str(key)) as server:
        assert server.url.startswith("https://127.0.0.1:")
        with pytest.raises(ServerUnreachable, match="certificate"):
            server.client.get("/jobs")
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        assert ServerClient(server.url, TOKEN).get("/jobs") == {"jobs": []}
        with pytest.raises((urllib.error.URLError, ConnectionError)):
            urllib.request.urlopen(server.url.replace("https", "http"), timeout=scaled(10))
