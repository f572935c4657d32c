"""Escaping of text from other processes for logs and terminals: no control sequences, no forged lines (protocol 4)."""

from __future__ import annotations

TEXT_CHARACTERS_MAX = 20_000
"""Maximum length of a text in a log; the rest is cut."""


def escaped(text: str) -> str:
    """Returns the text with control characters as escape sequences. Line breaks and tabs stay."""
    if text.isprintable():
        return text
    return "".join(
        letter if letter.isprintable() or letter in "\n\t" else letter.encode("unicode_escape").decode("ascii")
        for letter in text
    )


def indented(text: str) -> str:
    """Returns the text for one log entry: escaped, cut, and with every line but the first indented."""
    return escaped(text[:TEXT_CHARACTERS_MAX]).replace("\n", "\n    ")
