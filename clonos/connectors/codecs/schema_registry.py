"""Client of a schema registry, by the HTTP protocol of Confluent's.

An id names the same schema for ever, so a replay that asks again gets the same answer. Registering a schema again
gives the same id.
"""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from clonos.connectors.codecs.codec import InvalidCodec
from clonos.connectors.secrets import Secret, revealed
from clonos.core.model.errors import EnvironmentFault
from clonos.core.model.wrong_calls import explains_calls
from clonos.io.http.http_errors import HttpError, redacted_url

if TYPE_CHECKING:
    from clonos.io.http.http_client import HttpReply

MEDIA_TYPE: Final = "application/vnd.schemaregistry.v1+json"


class RegistryFailed(EnvironmentFault):
    """A schema registry does not answer, or refuses to."""

    url: str
    doing: str
    reason: str

    def __str__(self) -> str:
        return f"the schema registry {self.url} failed while {self.doing}: {self.reason}."


@explains_calls
class SchemaRegistry:
    """Registry at a URL. ``user`` and ``password`` are for HTTP basic authentication; both may be left out.

    ``retries_max``: further attempts, at growing intervals within 30 s, while it does not answer or is overloaded.
    """

    def __init__(
        self, url: str, user: str | None = None, password: Secret | str | None = None, retries_max: int = 5
    ) -> None:
        if type(retries_max) is not int or retries_max < 0:
            raise InvalidCodec("codecs.SchemaRegistry", f"retries_max is {retries_max!r:.80}", "Give a number, or 0.")
        self.url = url.rstrip("/")
        self.shown_url = redacted_url(self.url)
        self.user = user
        self.password = password
        self.retries_max = retries_max

    def schema(self, number: int) -> str | None:
        """Returns the text of a schema; None if the registry has none with this id.

        Raises: RegistryFailed: the registry does not answer, or refuses to.
        """
        reply = self._send("GET", f"/schemas/ids/{number}", b"", f"reading schema {number}")
        if reply.status_code == 404:
            return None
        found = _answer(reply).get("schema")
        if reply.status_code != 200 or not isinstance(found, str):
            raise RegistryFailed(self.shown_url, f"reading schema {number}", _refusal(reply))
        return found

    def register(self, subject: str, schema: str) -> int:
        """Registers a schema under a subject, and returns its id.

        Raises: RegistryFailed: the registry does not answer, or refuses the schema, for example as incompatible.
        """
        doing = f"registering a schema under the subject {subject!r}"
        body = json.dumps({"schema": schema}).encode()
        reply = self._send("POST", f"/subjects/{quote(subject, safe='')}/versions", body, doing)
        number = _answer(reply).get("id")
        if reply.status_code != 200 or not isinstance(number, int) or isinstance(number, bool):
            raise RegistryFailed(self.shown_url, doing, _refusal(reply))
        return number

    def _send(self, method: str, path: str, body: bytes, doing: str) -> HttpReply:
        headers = [("accept", MEDIA_TYPE)]
        if body:
            headers.append(("content-type", MEDIA_TYPE))
        if self.user is not None:
            named = f"{self.user}:{revealed(self.password or '')}"
            headers.append(("authorization", f"Basic {base64.b64encode(named.encode()).decode()}"))
        # The client takes long to load, and most jobs that name a codec ask no registry.
        from clonos.io.http.http_client import HttpLimits, HttpRequest, shared_client

        limits = HttpLimits(
            timeout_s=30.0,
            connect_timeout_s=5.0,
            retries_max=self.retries_max,
            redirects_max=3,
            body_bytes_max=16 << 20,
            is_repeatable=True,
        )
        try:
            return shared_client().send(HttpRequest(method, self.url + path, tuple(headers), body or None), limits)
        except HttpError as error:
            raise RegistryFailed(self.shown_url, doing, str(error).rstrip(".")) from error


def _answer(reply: HttpReply) -> dict[str, Any]:
    try:
        found = json.loads(reply.body)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _refusal(reply: HttpReply) -> str:
    message = _answer(reply).get("message")
    return f"it answered {reply.status_code} {reply.reason}" + (f": {message:.300}" if isinstance(message, str) else "")
