"""Certificates of a test's own authority for servers on 127.0.0.1."""

from __future__ import annotations

import datetime
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

ADDRESS = "127.0.0.1"
OTHER_ADDRESS = "127.0.0.2"
DAY = datetime.timedelta(days=1)


class Authority:
    """An authority, and what it has signed. All files are in PEM; ``ca`` is the one to trust."""

    def __init__(self, folder: Path, name: str = "clonos tests") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.ca = folder, folder / "ca.pem"
        self._name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
        self._key = ec.generate_private_key(ec.SECP256R1())
        self.ca.write_bytes(_text(self._signed(self._name, self._key, x509.BasicConstraints(True, None))))

    def server(self, address: str = ADDRESS) -> tuple[Path, Path]:
        """A certificate for a server at an address, and its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(address))])
        return self._stored(f"server-{address}", key, self._signed(_named(address), key, names))

    def client(self, name: str) -> Path:
        """One file with the certificate of a client and its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        usage = x509.BasicConstraints(False, None)
        certificate, secret = self._stored(f"client-{name}", key, self._signed(_named(name), key, usage))
        both = self.folder / f"client-{name}.pem"
        both.write_bytes(secret.read_bytes() + certificate.read_bytes())
        return both

    def _signed(
        self, name: x509.Name, key: ec.EllipticCurvePrivateKey, extension: x509.ExtensionType
    ) -> x509.Certificate:
        now, own = datetime.datetime.now(datetime.UTC), self._key.public_key()
        builder = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - DAY)
            .not_valid_after(now + DAY)
            .add_extension(extension, critical=isinstance(extension, x509.BasicConstraints))
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(own), critical=False)
        )
        return builder.sign(self._key, hashes.SHA256())

    def _stored(self, name: str, key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate) -> tuple[Path, Path]:
        paths = self.folder / f"{name}.crt", self.folder / f"{name}.key"
        paths[0].write_bytes(_text(certificate))
        form = serialization.PrivateFormat.PKCS8
        paths[1].write_bytes(key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()))
        return paths


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])


def _text(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)
