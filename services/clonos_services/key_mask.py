"""Mask over the key of a model's server, in what the server sends back."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

MASK: Final = "***"
CUT_CHARACTERS_MIN: Final = 8
"""Shorter beginnings of a key, at the end of a body, are no part of it that has been cut."""


@dataclass(frozen=True, slots=True)
class KeyMask:
    """Mask over a key. ``key``: "" for no key."""

    key: str

    def body(self, content: bytes) -> bytes:
        """Returns a body without the key, also where JSON escapes a part of it, once or more often, and without a
        beginning of the key at the end of a body that is cut."""
        if not self.key:
            return content
        if b"\\" in content:
            content = _escaped(self.key).sub(MASK.encode(), content)
        else:
            content = content.replace(self.key.encode(), MASK.encode())
        cut = _length_cut(content, self.key.encode())
        return content[:-cut] + MASK.encode() if cut >= CUT_CHARACTERS_MIN else content

    def whole(self, text: str) -> str:
        """Returns a text without the key."""
        return text.replace(self.key, MASK) if self.key else text

    def so_far(self, text: str) -> str:
        """Returns the text so far without the key. Its end is held back while the key may begin with that."""
        masked = self.whole(text)
        return masked[: len(masked) - _length_cut(masked, self.key)]


def _length_cut(text: str | bytes, key: str | bytes) -> int:
    """Returns the length of the longest end of a text that is a beginning of the key."""
    return next((size for size in range(min(len(key), len(text)), 0, -1) if text[-size:] == key[:size]), 0)


def _escaped(key: str) -> re.Pattern[bytes]:
    """Returns the pattern of a key in JSON, of which each character may be escaped."""
    return re.compile(b"".join(map(_character, key)))


def _character(character: str) -> bytes:
    code = rb"\\+u(?i:%04x)" % ord(character)
    plain = re.escape(character.encode())
    if character == "\\":
        return rb"(?:%s|(?:\\\\)+?|\\)" % code
    return rb"(?:%s|\\*%s)" % (code, plain) if character in '"/' else rb"(?:%s|%s)" % (code, plain)
