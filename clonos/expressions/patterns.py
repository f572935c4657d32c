"""Regular expressions as RE2 reads them: their groups, and replacements in the spelling of Polars."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from clonos.expressions.expression_errors import ExpressionMisused

REFERENCE: Final = re.compile(r"\$(?:(\$)|(\w+)|\{(\w+)\})|(\\)")
GROUPS_MAX: Final = 9
"""Groups that a replacement of RE2 can name."""

GROUP: Final = re.compile(r"\((?:\?P?<(\w+)>)?")


def group_starts(pattern: str) -> Iterator[tuple[int, str | None]]:
    """Yields the index of the parenthesis that opens each group, and the name of the group."""
    index = 0
    while index < len(pattern):
        character = pattern[index]
        if character == "\\":
            index += 2
            continue
        if character == "[":
            index = _class_end(pattern, index)
            continue
        if character == "(":
            if pattern[index + 1 : index + 2] != "?":
                yield index, None
            elif (found := GROUP.match(pattern, index)) and found[1]:
                yield index, found[1]
        index += 1


def _class_end(pattern: str, index: int) -> int:
    """Returns the index after a class of characters that begins at ``index``."""
    index += 2 if pattern[index + 1 : index + 2] == "^" else 1
    if pattern[index : index + 1] == "]":
        index += 1
    while index < len(pattern) and pattern[index] != "]":
        if pattern.startswith("[:", index) and (end := pattern.find(":]", index)) > 0:
            index = end + 2
        else:
            index += 2 if pattern[index] == "\\" else 1
    return index + 1


def checked_group(where: str, pattern: str, group: object) -> None:
    """Checks the number of a group.

    Raises: ExpressionMisused: the pattern does not have it.
    """
    count = len(list(group_starts(pattern)))
    if type(group) is not int or not 0 <= group <= count:
        groups = "no group" if not count else "1 group" if count == 1 else f"{count} groups"
        raise ExpressionMisused(
            f"{where}({pattern!r:.80}, {group!r:.20})",
            f"names a group of a pattern that has {groups}",
            "Put what is wanted in parentheses, or give 0 for the whole match.",
        )


def replacement_text(where: str, pattern: str, value: str) -> str:
    """Returns the replacement for RE2 of one for Polars: ``$1``, ``${1}`` or ``${name}`` is a group, ``$$`` a dollar.

    Raises: ExpressionMisused: it names a group after the ninth.
    """
    names = [name for _, name in group_starts(pattern)]

    def reference(found: re.Match[str]) -> str:
        dollar, bare, braced, backslash = found.groups()
        if dollar:
            return "$"
        if backslash:
            return r"\\"
        name = bare or braced
        number = int(name) if name.isdecimal() else names.index(name) + 1 if name in names else len(names) + 1
        if number > len(names):
            return ""  # as Polars has it
        if number > GROUPS_MAX:
            raise ExpressionMisused(f"{where}({value!r:.80})", f"names group {number}", "Name one of the first nine.")
        return f"\\{number}"

    return REFERENCE.sub(reference, value)


def with_named_group(pattern: str, group: int) -> str:
    """Returns the pattern with one group, which is named "group"; 0 is the whole match.

    The other groups capture nothing.
    """
    if group == 0:
        return f"(?P<group>{_without_groups(pattern, None)})"
    return _without_groups(pattern, group)


def _without_groups(pattern: str, wanted: int | None) -> str:
    pieces, end = [], 0
    for number, (start, name) in enumerate(group_starts(pattern), 1):
        found = GROUP.match(pattern, start)
        assert found is not None, (pattern, name)
        pieces += [pattern[end:start], "(?P<group>" if number == wanted else "(?:"]
        end = found.end()
    return "".join([*pieces, pattern[end:]])
