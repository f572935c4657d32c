"""Golden traces: a text of commands, each followed by its effects, rewritten from a dialogue."""

from __future__ import annotations

from typing import Protocol


class Dialogue(Protocol):
    """Runs commands of a trace and returns the lines that each led to."""

    def run(self, command: str) -> list[str]:
        """Runs ``command``, the text after ``"> "``."""


def play(text: str, dialogue: Dialogue) -> str:
    """Runs the commands of ``text`` and writes below each what it leads to now. Comments and empty lines stay."""
    found: list[str] = []
    for line in text.splitlines():
        if line.startswith("> "):
            found.append(line)
            found += [f"  {line}" for line in dialogue.run(line[2:])]
        elif not line.startswith("  "):
            found.append(line)
    return "\n".join(found) + "\n"
