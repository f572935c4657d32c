"""Digest of what a call asked for, in its entry of the log: a replay compares it with its own (protocol 2).

It has six bytes: two for the service, whose name is found again by them, and four of the digest of service and request.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

ASKED_BYTES: Final = 6
SERVICE_BYTES: Final = 2
_REQUEST_BITS: Final = 8 * (ASKED_BYTES - SERVICE_BYTES)
NAMES_MAX: Final = 4_096
"""Names of services that a process remembers. Later ones are not named in errors."""

_code_of: dict[str, bytes] = {}
_name_of: dict[bytes, str] = {}


def request_digest(service: str, request: bytes) -> bytes:
    """Returns the 16 bytes that identify a request."""
    return blake2b(service.encode() + b"\0" + request, digest_size=16).digest()


def idempotency_key(key_space: str, place: str, digest: bytes) -> str:
    """Returns the idempotency key of a request at this place in a task's log or input, or in an asynchronous call."""
    return blake2b(f"{key_space}/{place}/".encode() + digest, digest_size=16).hexdigest()


def code_of_service(service: str) -> bytes:
    """Returns the two bytes of a service, and remembers its name."""
    code = _code_of.get(service)
    if code is None:
        code = blake2b(service.encode(), digest_size=SERVICE_BYTES).digest()
        if len(_code_of) < NAMES_MAX:
            _code_of[service] = code
            _name_of.setdefault(code, service)
    return code


def names_of_services() -> tuple[str, ...]:
    """Returns the names of the services that this process has used or declared."""
    return tuple(_code_of)


def asked_of(service: str, digest: bytes) -> int:
    """Returns what a call asks for, of the ``request_digest`` of its request."""
    return int.from_bytes(code_of_service(service) + digest[: ASKED_BYTES - SERVICE_BYTES], "big")


def service_of(asked: int) -> str:
    """Returns the name of the service that was called, "" if this process has neither used nor declared it."""
    return _name_of.get(asked.to_bytes(ASKED_BYTES, "big")[:SERVICE_BYTES], "")


def is_same_service(one: int, other: int) -> bool:
    """Returns whether two calls ask the same service, for whatever."""
    bits = 8 * (ASKED_BYTES - SERVICE_BYTES)
    return one >> bits == other >> bits


def described(asked: int) -> str:
    """Describes a logged call: ``rate`` if a service of this name was used, or declared, in this process."""
    return service_of(asked) or "a service that this process has not used yet"


def without_request(asked: int) -> int:
    """Returns what a redacted log has of a call: its service, with zeros in place of the digest of its request."""
    return asked >> _REQUEST_BITS << _REQUEST_BITS


def without_intent(intent: bytes) -> bytes:
    """Returns what a redacted log has of an intent, which begins with the code of its service."""
    return intent[:SERVICE_BYTES].ljust(len(intent), b"\0")


def may_be(logged: int | bytes, wanted: int | bytes) -> bool:
    """Returns whether a redacted log has this call or intent: it knows the service alone."""
    if isinstance(logged, int) and isinstance(wanted, int):
        return logged == without_request(wanted)
    return isinstance(logged, bytes) and isinstance(wanted, bytes) and logged == without_intent(wanted)
