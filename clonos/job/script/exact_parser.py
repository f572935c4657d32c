"""Parser of command lines that takes options by their whole names, and names the nearest one of a wrong option."""

from __future__ import annotations

import argparse
from difflib import get_close_matches
from typing import Any, Final, NoReturn

NAME_CUTOFF: Final = 0.75
KEY_CUTOFF: Final = 0.8
"""How alike two names have to be (0 to 1) for one to be meant by the other."""


class ExactParser(argparse.ArgumentParser):
    """Parser without abbreviations: ``--overwr`` must not delete what ``--overwrite`` deletes. Its commands are parsers
    of this class too."""

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords | {"allow_abbrev": False})
        self._commands: dict[str, ExactParser] = {}

    def add_subparsers(self, **keywords: Any) -> Any:
        """Adds the commands of this parser; the arguments are those of argparse."""
        added = super().add_subparsers(**keywords)
        self._commands = added.choices
        return added

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Returns the parsed arguments; ends the program for wrong ones."""
        parsed, unknown = self.parse_known_args(args, namespace)
        if unknown:
            self.refuse(unknown)
        return parsed

    def refuse(self, unknown: list[str], command: str = "") -> NoReturn:
        """Ends the program with the message about arguments that ``command``, or the program itself, does not have."""
        parser = self._commands.get(command, self)
        parser.error(f"unrecognized arguments: {' '.join(unknown)}{parser._advice(unknown)}")

    def _advice(self, unknown: list[str]) -> str:
        from clonos.config import keys

        given, equals, value = unknown[0].partition("=")
        names = self._option_names()
        key = given.removeprefix("--").replace("-", "_")
        options = keys() if "--option" in names else ()
        if key not in options:
            found = _nearest(given, names)
            if found:
                return f". Did you mean {found}{equals}{value}?"
            key = (get_close_matches(key, options, n=1, cutoff=KEY_CUTOFF) or [""])[0]
        value = value or (unknown[1] if len(unknown) > 1 else "VALUE")
        return f". Set the options of a job by --option, here: --option {key}={value}" if key else ""

    def _option_names(self) -> list[str]:
        """Returns the names of the options of this parser and of its commands."""
        own = [name for name in self._option_string_actions if name.startswith("--")]
        return [*own, *(name for command in self._commands.values() for name in command._option_names())]


def _nearest(given: str, names: list[str]) -> str:
    if not given.startswith("--"):
        return ""
    begun = [name for name in dict.fromkeys(names) if name.startswith(given)]
    return " or ".join(begun or get_close_matches(given, names, n=1, cutoff=NAME_CUTOFF))
