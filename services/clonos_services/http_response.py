"""Response of an HTTP request: the part of it that is recorded."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from encodings import normalize_encoding
from encodings.aliases import aliases
from typing import Any, Final

from clonos.io.http.http_errors import HttpStatusError, redacted_url

EXCERPT_CHARACTERS_MAX: Final = 200
FIRST_STATUS_OF_ERRORS: Final = 400
CHARSET_CHARACTERS_MAX: Final = 40
CHARSETS: Final = frozenset(
    {
        *("ascii", "utf_8", "utf_8_sig", "utf_16", "utf_16_be", "utf_16_le", "utf_32", "utf_32_be", "utf_32_le"),
        *("latin_1", *(f"iso8859_{part}" for part in (*range(2, 12), *range(13, 17)))),
        *("cp437", "cp850", "cp866", "cp874", *(f"cp{page}" for page in range(1250, 1259))),
        *("koi8_r", "koi8_u", "mac_cyrillic", "mac_roman"),
        *(
            "big5",
            "big5hkscs",
            "cp932",
            "cp949",
            "euc_jp",
            "euc_kr",
            "gb18030",
            "gb2312",
            "gbk",
            "iso2022_jp",
            "shift_jis",
        ),
    }
)
"""Python's codecs for text on the web. A server may not choose other codecs: `punycode` takes quadratic time, up to
half a minute for a megabyte, and `idna` raises."""


class Headers(Mapping[str, str]):
    """Header fields by name, case-insensitive. A field that occurs several times is joined by commas."""

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


def _codec_of(charset: str) -> str:
    """Returns Python's name of a charset, "" for a charset that is not in ``CHARSETS``. Loads no codec."""
    if len(charset) > CHARSET_CHARACTERS_MAX:
        return ""
    name = normalize_encoding(charset).lower()
    codec = aliases.get(name, name)
    return codec if codec in CHARSETS else ""


@dataclass(frozen=True, slots=True)
class Response:
    """Response of a request. ``headers``: the recorded ones (``keep_headers=``); ``url``: final URL, after redirects;
    ``content``: body in bytes, decompressed."""

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
        """Charset that the response names, if it is a charset of text on the web; else UTF-8."""
        for parameter in self.headers.get("content-type", "").split(";")[1:]:
            name, _, value = parameter.partition("=")
            if name.strip().lower() == "charset" and _codec_of(charset := value.strip().strip("\"'")):
                return charset
        return "utf-8"

    @property
    def text(self) -> str:
        """Body as text; bytes that are invalid in its charset become U+FFFD."""
        return self.content.decode(_codec_of(self.encoding), "replace")

    def json(self) -> Any:
        """Parses the body as JSON. Raises: ValueError when the body is no JSON or is nested too deeply."""
        try:
            return json.loads(self.content)
        except RecursionError:
            raise ValueError("the JSON of the body is nested too deeply") from None

    def raise_for_status(self) -> Response:
        """Returns this response. Raises: HttpStatusError for a status of 400 or above."""
        if self.ok:
            return self
        excerpt = self.text[:EXCERPT_CHARACTERS_MAX]
        raise HttpStatusError(self.method, redacted_url(self.url), self.status_code, self.reason, excerpt)
