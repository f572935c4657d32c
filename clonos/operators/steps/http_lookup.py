"""Answers of an HTTP service for records: an address with fields of the record in braces, and what its reply means."""

from __future__ import annotations

from collections.abc import Callable
from string import Formatter
from typing import Any, Final
from urllib.parse import quote

from clonos.operators.fields import Field
from clonos_services.http_response import Response
from clonos_services.http_session import Session

NO_CONTENT: Final = 204
MISSING: Final = frozenset({404, 410, NO_CONTENT})
"""Statuses of a reply that has no answer."""

Answer = Callable[[Response], Any]


class HttpLookup:
    """Lookup of records by GET requests; call it with the URL of a record."""

    def __init__(self, url: str, session: Session, answer: Answer) -> None:
        """Creates it. ``url``: address with fields in braces. ``answer``: makes the answer of a good reply.

        Raises: ValueError: the address is malformed, or names something else than fields.
        """
        self.url, self._session, self._answer = url, session, answer
        self._parts: list[tuple[str, Field | None]] = []
        for text, name, form, conversion in Formatter().parse(url):
            if name is not None and (not name.isidentifier() or form or conversion):
                raise ValueError(f"{{{name}}} is no field")
            self._parts.append((text, None if name is None else Field(name)))

    def url_of(self, record: Any) -> str | None:
        """Returns the URL for a record, None if one of its fields is None. Raises what a missing field raises."""
        found = ""
        for text, field in self._parts:
            found += text
            if field is not None:
                value = field(record)
                if value is None:
                    return None
                found += quote(str(value), safe="")
        return found

    def __call__(self, url: str) -> Any:
        """Returns the answer at a URL, None for a reply without one. Raises: HttpError: there is no good reply."""
        reply = self._session.get(url)
        return None if reply.status_code in MISSING else self._answer(reply.raise_for_status())
