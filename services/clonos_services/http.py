"""HTTP as a causal service: the response is recorded, and a replay returns it and sends nothing::

    response = http.get("http://localhost:8099/banned/word", timeout=2)
    if response.raise_for_status().json()["banned"]: ...

- The status, selected headers and the body are recorded, or the exception. ``http.configure(redact=...)`` changes what
  is recorded; user code then gets the redacted response in every incarnation, including the first.
- Every request has an ``Idempotency-Key`` header, which is the same when the call is repeated, also by a successor.
- GET, HEAD and OPTIONS are reads: sent at least once, with one response used. The others are effects: sent at most
  once, in a step with ``effects=True`` (``Session.request`` has the options).
- There are no cookies: a request depends on its arguments alone.

Outside a job these functions send the request and return the response.
"""

from __future__ import annotations

from typing import Unpack

from clonos.core.log.call_outcomes import CallInDoubt, CallNeverHappened
from clonos.io.http.http_client import HttpRequest
from clonos.io.http.http_client import close_shared_client as close
from clonos.io.http.http_errors import (
    HttpBodyTooLarge,
    HttpConnectionFailed,
    HttpError,
    HttpRedirectRefused,
    HttpRequestInvalid,
    HttpStatusError,
    HttpTimeout,
)
from clonos_services.http_response import Headers, Response
from clonos_services.http_session import Session, SessionSettings, transported_by
from clonos_services.http_settings import SessionConfig, changed, common_settings, use_common_settings

__all__ = [
    "get",
    "head",
    "options",
    "post",
    "put",
    "patch",
    "delete",
    "request",
    "session",
    "configure",
    "close",
    "Response",
    "Headers",
    "HttpRequest",
    "Session",
    "SessionConfig",
    "HttpError",
    "HttpTimeout",
    "HttpConnectionFailed",
    "HttpStatusError",
    "HttpBodyTooLarge",
    "HttpRedirectRefused",
    "HttpRequestInvalid",
    "CallInDoubt",
    "CallNeverHappened",
    "common_settings",
    "use_common_settings",
    "transported_by",
]

_plain = Session()

get = _plain.get
head = _plain.head
options = _plain.options
post = _plain.post
put = _plain.put
patch = _plain.patch
delete = _plain.delete
request = _plain.request


def session(**settings: Unpack[SessionSettings]) -> Session:
    """Returns a session: requests with common settings, any field of ``SessionConfig`` such as base_url=, headers=,
    timeout=.

    Raises: SettingUnknown when a setting is not a field of ``SessionConfig``; SettingInvalid for an unusable value.
    """
    return Session(**settings)


def configure(**settings: Unpack[SessionSettings]) -> None:
    """Changes the default settings of all requests of this process, and of the jobs that start in it from now on.

    A job has the settings of its start. Call this where the job is built, not in the function of a step.

    Raises: SettingUnknown when a setting is not a field of ``SessionConfig``; SettingInvalid for an unusable value.
    """
    use_common_settings(changed(common_settings(), settings))
