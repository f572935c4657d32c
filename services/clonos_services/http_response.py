"""What came back from an HTTP request: the recorded part of it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from clonos.io.http_errors import HttpStatusError, shown_url

EXCERPT_CHARACTERS_MAX: Final = 200
FIRST_STATUS_OF_ERRORS: Final = 400


class Headers(Mapping[str, str]):
    """Header fields by name, whatever its case; a field that came several times is joined by commas."""

    __slots__ = ("_fields",)

    def __init__(self, fields: Mapping[str, str] | Iterable[tuple[str, str]] = ()) -> None:
        pairs = fields.items() if isinstance(fields, Mapping) else fields
        self._fields: dict[str, str] = {}
        for name, value in pairs:
            key = name.lower()
            self._fields[key] = f"{self._fields[key]}, {value}" if key in self._fields else value

    def __getitem__(self, name: str) -> str:
        return self._fields[name.lower()]

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name.lower() in self._fields

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields)

    def __len__(self) -> int:
        return len(self._fields)

    def __repr__(self) -> str:
        return f"Headers({self._fields!r})"


@dataclass(frozen=True, slots=True)
class Response:
    """An answer. ``headers`` has those that were chosen (``keep_headers=``); ``url`` is where it came from."""

    method: str
    url: str
    status_code: int
    reason: str
    headers: Headers
    content: bytes

    @property
    def ok(self) -> bool:
        """True for a status below 400."""
        return self.status_code < FIRST_STATUS_OF_ERRORS

    @property
    def encoding(self) -> str:
        """The charset that the answer names, else UTF-8."""
        for parameter in self.headers.get("content-type", "").split(";")[1:]:
            name, _, value = parameter.partition("=")
            if name.strip().lower() == "charset" and value.strip():
                return value.strip().strip("\"'")
        return "utf-8"

    @property
    def text(self) -> str:
        """The body as text; what is no text in its charset is replaced by U+FFFD."""
        try:
            return self.content.decode(self.encoding, "replace")
        except LookupError:  # a charset that nobody knows
            return self.content.decode("utf-8", "replace")

    def json(self) -> Any:
        """The body read as JSON; ``ValueError`` if it is none."""
        return json.loads(self.content)

    def raise_for_status(self) -> Response:
        """This response, or ``HttpStatusError`` for a status of 400 or above."""
        if self.ok:
            return self
        excerpt = self.text[:EXCERPT_CHARACTERS_MAX]
        raise HttpStatusError(self.method, shown_url(self.url), self.status_code, self.reason, excerpt)
