"""Endpoint of a model: an OpenAI-compatible server, the key that it wants, and how a request is sent to it.

The key is looked up for each request that is sent. It is in no reply, no error and no entry of the log.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Protocol
from urllib.parse import urlsplit

from clonos.io.http.http_errors import redacted_url
from clonos_services.http_response import Response
from clonos_services.http_session import Session
from clonos_services.model_answer import ModelCallInvalid, usage_in
from clonos_services.model_limits import ModelLimits

OPENAI: Final = "https://api.openai.com/v1"
MASK: Final = b"***"
MASKED_CHARACTERS_MIN: Final = 16
"""Shorter keys, such as "none", are words that a reply may have."""


class SecretKey(Protocol):
    """Key that is looked up where it is used, such as ``secrets.env(...)``."""

    def reveal(self) -> str:
        """Returns the key."""
        ...


ApiKey = str | SecretKey | None


@dataclass(frozen=True, slots=True)
class ModelEndpoint:
    """Model on a server, with its key and its limits. It has no connection of its own and may be pickled."""

    model: str
    base_url: str
    api_key: ApiKey = field(repr=False)
    session: Session = field(repr=False)
    limits: ModelLimits

    def shown_url(self, path: str) -> str:
        """Returns an address for messages."""
        return redacted_url(self.base_url + path)

    def answer(self, path: str, asked: Mapping[str, Any]) -> bytes:
        """Sends one request within the limits, inside a recorded call; returns the body of the reply, without the key.

        Raises: HttpStatusError for a status of 400 or above; another HttpError when there is no reply; SecretMissing;
        BudgetExceeded.
        """
        self.limits.begin(self.model)
        key = self.api_key if self.api_key is None or isinstance(self.api_key, str) else self.api_key.reveal()
        headers = {"authorization": f"Bearer {key}"} if key else None
        found = self.session.post(self.base_url + path, headers=headers, json=asked, intent=False)
        content = _masked(found, key or "").raise_for_status().content
        self.limits.end(self.model, usage_in(content))
        return content


def endpoint_of(
    model: str,
    base_url: str,
    api_key: ApiKey,
    timeout: float,
    retries: int,
    headers: Mapping[str, str] | None,
    limits: ModelLimits,
) -> ModelEndpoint:
    """Returns the endpoint of a model.

    Raises: ModelCallInvalid: the address is no HTTP address, or the model has no name; SettingInvalid for a timeout or
    retries that cannot be used.
    """
    try:
        parts = urlsplit(base_url)
        is_address = parts.scheme in ("http", "https") and bool(parts.hostname) and not parts.query
    except ValueError:
        is_address = False
    if not is_address:
        raise ModelCallInvalid(f"base_url= is {redacted_url(base_url)!r}, expected http:// or https:// without a query")
    if not model:
        raise ModelCallInvalid("the model has no name")
    session = Session(timeout=timeout, retries=retries, headers=headers)
    return ModelEndpoint(model, base_url.rstrip("/"), api_key, session, limits)


def _masked(response: Response, key: str) -> Response:
    """Returns a response that does not repeat the key."""
    if not key or (response.ok and len(key) < MASKED_CHARACTERS_MIN):
        return response
    content = response.content.replace(key.encode(), MASK)
    return replace(response, content=content, reason=response.reason.replace(key, MASK.decode()))
