"""HTTP as a causal service: each request is made once, and a replay gets the recorded answer::

    answer = http.get("http://localhost:8099/banned/word", timeout=2)
    if answer.raise_for_status().json()["banned"]: ...

- Recorded are the status, chosen headers and the body, or the exception. ``http.configure(redact=...)`` changes what is
  recorded; user code then sees the changed answer in every life, the first included.
- Every request carries an ``Idempotency-Key``, the same whenever the same call is made again, also by a successor.
- GET, HEAD and OPTIONS are reads: made at least once, their answer used once. The others have an effect: made at most
  once, in a step with ``effects=True`` (``Session.request`` says how to state otherwise).
- No cookies: what a request says depends on its arguments only.

Outside a job these send the request and return the answer.
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
from clonos_services.http_session import (
    Session,
    SessionConfig,
    SessionSettings,
    changed,
    common_settings,
    transported_by,
    use_common_settings,
)

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
    """Requests with settings in common: any field of ``SessionConfig``, such as base_url=, headers=, timeout=."""
    return Session(**settings)


def configure(**settings: Unpack[SessionSettings]) -> None:
    """Changes the settings of all requests of this job that do not say otherwise. Call it where the job is built."""
    use_common_settings(changed(common_settings(), settings))
