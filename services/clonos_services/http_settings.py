"""Settings of HTTP requests, and those that all requests of a process have by default.

The driver sends its own with the job to the slots. This module imports no HTTP client, which most jobs do without.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Final

from clonos.core.model.errors import JobError

if TYPE_CHECKING:
    from clonos_services.http_response import Response

RECORDED_HEADERS: Final = ("content-type", "etag", "last-modified", "link", "location", "retry-after")


@dataclass(frozen=True, slots=True)
class SessionConfig:
    """Settings of requests. Times in seconds, sizes in bytes."""

    base_url: str = ""
    headers: Mapping[str, str] | None = None
    timeout: float = 10.0  # seconds for the whole call, including retries and pauses
    connect_timeout: float = 3.0  # seconds for one attempt to connect
    retries: int = 2  # after the first attempt; only if the request was not sent, or may be sent twice
    redirects: int = 5  # redirects that are followed
    body_bytes_max: int = 1 << 20  # limit for the response; every process downstream keeps a copy
    keep_headers: tuple[str, ...] = RECORDED_HEADERS  # recorded headers of the response
    redact: Callable[[Response], Response] | None = None  # returns the response to record and to pass to user code


class SettingUnknown(JobError):
    """A setting is not a field of ``SessionConfig``."""

    names: tuple[str, ...]

    def __str__(self) -> str:
        known = ", ".join(field.name for field in fields(SessionConfig))
        return f"HTTP requests have no setting {', '.join(self.names)}. The settings are: {known}."


class SettingInvalid(JobError):
    """The value of a setting cannot be used."""

    name: str
    value: str
    expected: str

    def __str__(self) -> str:
        return f"the setting {self.name} of HTTP requests is {self.value}. Give {self.expected}."


SECONDS_MAX: Final = 86_400


def _check(name: str, value: Any) -> None:
    """Raises: SettingInvalid: the value of a number is of another type, or out of its range."""
    if name in ("timeout", "connect_timeout"):
        if type(value) not in (int, float) or not 0 < value <= SECONDS_MAX:  # false for NaN too
            raise SettingInvalid(name, f"{value!r:.80}", f"seconds: a number above 0, at most {SECONDS_MAX}")
    elif name in ("retries", "redirects", "body_bytes_max"):
        least = 1 if name == "body_bytes_max" else 0
        if type(value) is not int or value < least:
            raise SettingInvalid(name, f"{value!r:.80}", f"a whole number, at least {least}")


def changed(settings: SessionConfig, changes: Mapping[str, Any]) -> SessionConfig:
    """Returns the settings with these changes.

    Raises: SettingUnknown: a change is not a field. SettingInvalid: its value cannot be used.
    """
    known = {field.name for field in fields(SessionConfig)}
    if unknown := tuple(sorted(set(changes) - known)):
        raise SettingUnknown(unknown)
    for name, value in changes.items():
        _check(name, value)
    if "keep_headers" in changes:
        changes = {**changes, "keep_headers": tuple(name.lower() for name in changes["keep_headers"])}
    return replace(settings, **changes)


_common = SessionConfig()


def common_settings() -> SessionConfig:
    """Returns the default settings of all requests of this process; they are sent to the slots with the job."""
    return _common


def use_common_settings(settings: SessionConfig) -> None:
    """Sets the default settings; called in a slot with the driver's ``common_settings``."""
    global _common
    _common = settings
