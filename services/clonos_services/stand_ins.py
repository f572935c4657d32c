"""Stand-ins for external systems, in tests and in replays: functions that answer in place of services and of HTTP."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

from clonos.core.model.errors import JobError
from clonos.io.http.http_client import HttpLimits, HttpReply, HttpRequest
from clonos_services.http import transported_by
from clonos_services.service import Service, answered_by

HttpAnswer = Callable[[HttpRequest], Any]
"""Function from a request (method, url, headers, body) to an ``HttpReply``, a status, (status, body) or a body: bytes
and str as they are, all else as JSON. It may raise an ``http.HttpError``."""

Services = Mapping[Any, Callable[..., Any]]
"""Stand-ins by service or by its name."""


class NobodyAnswers(JobError):
    """A job made an HTTP request in a test without a stand-in for HTTP."""

    method: str
    url: str

    def __str__(self) -> str:
        return (
            f"{self.method} {self.url}: a test does not use the network. Pass http=, a function of the request"
            " (method, url, headers, body) that answers it."
        )


@dataclass
class StandIns:
    """Stand-ins for external systems."""

    http: HttpAnswer | None = None
    services: Services = field(default_factory=dict)

    @property
    def named(self) -> dict[str, Callable[..., Any]]:
        """Stand-ins of services by name."""
        return {each.name if isinstance(each, Service) else str(each): f for each, f in self.services.items()}

    @contextmanager
    def answering(self) -> Iterator[None]:
        """Routes calls of this process to the stand-ins, inside the ``with`` block."""
        with ExitStack() as stack:
            stack.enter_context(answered_by(self.named))
            stack.enter_context(transported_by(self.answer))
            yield

    def answer(self, request: HttpRequest, _limits: HttpLimits) -> HttpReply:
        if self.http is None:
            raise NobodyAnswers(request.method, request.url)
        answer = self.http(request)
        if isinstance(answer, HttpReply):
            return answer
        status, body = (
            answer if _is_status_with_body(answer) else (answer, b"") if _is_status(answer) else (200, answer)
        )
        kind = "application/json"
        if isinstance(body, (str, bytes)):
            kind, body = "text/plain; charset=utf-8", body.encode() if isinstance(body, str) else body
        else:
            body = json.dumps(body).encode()
        return HttpReply(status, "", request.url, (("content-type", kind),), body)


def _is_status(answer: Any) -> bool:
    return type(answer) is int and 100 <= answer < 600


def _is_status_with_body(answer: Any) -> bool:
    return type(answer) is tuple and len(answer) == 2 and _is_status(answer[0])
