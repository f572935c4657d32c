"""Text of other processes as it may stand in a log or on a terminal: without control sequences and forged lines."""

from __future__ import annotations

TEXT_CHARACTERS_MAX = 20_000
"""Of a text in a log; what follows is cut."""


def escaped(text: str) -> str:
    """The text with control characters as escape sequences; line breaks and tabs stay."""
    if text.isprintable():
        return text
    return "".join(
        letter if letter.isprintable() or letter in "\n\t" else letter.encode("unicode_escape").decode("ascii")
        for letter in text
    )


def indented(text: str) -> str:
    """The text for one entry of a log: escaped, cut, and no line but its first begins at the margin."""
    return escaped(text[:TEXT_CHARACTERS_MAX]).replace("\n", "\n    ")
