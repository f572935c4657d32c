"""Endpoint of a model: an OpenAI-compatible server, the key that it wants, and how a request is sent to it.

The key is looked up for each request that is sent. It is in no reply, no error and no entry of the log.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol
from urllib.parse import urlsplit

from clonos.core.model.wrong_calls import explains_calls
from clonos.io.http.http_client import RequestWatch, requests_watched
from clonos.io.http.http_errors import redacted_url
from clonos.io.local.reply_cache import ReplyCache
from clonos_services.http_response import Headers, Response
from clonos_services.http_session import Session, is_transported
from clonos_services.http_settings import common_settings
from clonos_services.key_mask import KeyMask
from clonos_services.model_answer import ModelCallInvalid, ReplyInvalid, Unusable, explained, usage_in
from clonos_services.model_limits import ModelLimits
from clonos_services.model_stream import STREAMED, Showing, whole_reply

OPENAI: Final = "https://api.openai.com/v1"
CACHE_SIZE: Final = 10_000
DIGEST_BYTES: Final = 16
MASKED_CHARACTERS_MIN: Final = 16
"""Shorter keys, such as "none", are words that a reply may have."""


class SecretKey(Protocol):
    """Key that is looked up where it is used, such as ``secrets.env(...)``."""

    def reveal(self) -> str:
        """Returns the key."""
        ...


ApiKey = str | SecretKey | None


class Answered(NamedTuple):
    """Body of a reply, and whether it was in the cache."""

    content: bytes
    is_cached: bool


@dataclass(frozen=True, slots=True)
class ModelEndpoint:
    """Model on a server, with its key and its limits. It has no connection of its own and may be pickled."""

    model: str
    base_url: str
    api_key: ApiKey = field(repr=False)
    session: Session = field(repr=False)
    headers: Mapping[str, str] = field(repr=False)
    limits: ModelLimits
    cache: ReplyCache | None = None

    def shown_url(self, path: str) -> str:
        """Returns an address for messages."""
        return redacted_url(self.base_url + path)

    def answer(
        self, path: str, asked: Mapping[str, Any], check: Callable[[bytes], object], showing: Showing | None = None
    ) -> Answered:
        """Returns a reply from the cache, or sends one request within the limits, inside a recorded call.

        ``check``: raises ReplyInvalid if the body of a reply cannot be used; such a reply does not enter the cache.
        ``showing``: gets the reply while it comes.

        Raises: HttpStatusError for a status of 400 or above; another HttpError when there is no reply; SecretMissing;
        BudgetExceeded; CacheUnusable; ReplyInvalid.
        """
        cache = None if is_transported() else self.cache
        if cache is None:
            content = self._sent(path, asked, showing)
            check(content)
            return Answered(content, False)
        digest = self._digest(path, asked)
        if (found := cache.find(digest)) is not None:
            try:
                check(found)
                return Answered(found, True)
            except ReplyInvalid:  # of a job with other classes
                pass
        content = self._sent(path, asked, showing)
        check(content)
        cache.store(digest, content)
        return Answered(content, False)

    def _digest(self, path: str, asked: Mapping[str, Any]) -> bytes:
        """Returns the digest of a request, also of its key and its headers: they may name another account, which has
        replies of its own."""
        common = common_settings().headers or {}
        headers = {name.lower(): value for given in (common, self.headers) for name, value in given.items()}
        text = json.dumps((self.base_url + path, headers, self._key(), asked), sort_keys=True, default=repr)
        return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=DIGEST_BYTES).digest()

    def _key(self) -> str:
        """Looks the key up; "" for none. Raises: SecretMissing."""
        return (self.api_key if self.api_key is None or isinstance(self.api_key, str) else self.api_key.reveal()) or ""

    def _sent(self, path: str, asked: Mapping[str, Any], showing: Showing | None) -> bytes:
        """Sends one request; returns the body of the reply, whole and without the key."""
        self.limits.begin(self.model)
        key = self._key()
        mask = KeyMask(key if len(key) >= MASKED_CHARACTERS_MIN else "")
        headers = {"authorization": f"Bearer {key}"} if key else None
        watch = RequestWatch(retry_pause_s=partial(self.limits.turn_s, self.model))
        if showing is not None:
            showing.mask = mask
            asked, watch = {**asked, **STREAMED}, watch._replace(take=showing.take)
        with requests_watched(watch):
            found = self.session.post(self.base_url + path, headers=headers, json=asked, intent=False)
        if not found.ok:
            _masked_error(found, KeyMask(key)).raise_for_status()
        reply = whole_reply(found.content, mask)
        self.limits.end(self.model, usage_in(reply.body))
        with explained(reply.excerpt, self.shown_url(path), self.model):
            if reply.problem:
                raise Unusable(reply.problem)
        return reply.body


def endpoint_of(
    model: str,
    base_url: str,
    api_key: ApiKey,
    timeout: float,
    retries: int,
    headers: Mapping[str, str] | None,
    limits: ModelLimits,
    cache: ReplyCache | None = None,
) -> ModelEndpoint:
    """Returns the endpoint of a model.

    Raises: ModelCallInvalid: the address is not one of HTTP, or the model has no name; SettingInvalid for a timeout or
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
    return ModelEndpoint(model, base_url.rstrip("/"), api_key, session, dict(headers or {}), limits, cache)


@explains_calls
def reply_cache(path: str | Path, *, size: int = CACHE_SIZE, ttl: float | None = None) -> ReplyCache:
    """Returns a cache of replies for ``chat``: a request that is equal in model, conversation and all parameters gets
    the reply of the earlier one, also in another task, another job, or the next run.

    Args:
        path: a file of SQLite, which is created. Each machine has its own.
        size: the most replies in it; the oldest are removed.
        ttl: seconds after which a reply counts no more; None: without end.

    Raises: ModelCallInvalid: an argument cannot be used.
    """
    if type(size) is not int or size < 1:
        raise ModelCallInvalid(f"size= is {size!r:.80}, expected a number of replies from 1 on")
    if ttl is not None and (type(ttl) not in (int, float) or not ttl > 0):
        raise ModelCallInvalid(f"ttl= is {ttl!r:.80}, expected a number of seconds above 0")
    return ReplyCache(str(Path(path).absolute()), size, ttl)


def _masked_error(response: Response, mask: KeyMask) -> Response:
    """Returns a response of which an error may show the text: it does not repeat the key."""
    content = mask.body(response.text.encode())
    return replace(response, content=content, headers=Headers(), reason=mask.whole(response.reason))
