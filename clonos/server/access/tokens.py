"""Tokens of a server: where they come from, and their roles.

A token is an argument, a variable of the environment, or the content of a file. Without a token for writing, a fresh
one is written to a file that only this user may read, and shown once.
"""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from clonos.core.model.errors import JobError
from clonos.server.job_api.guard import Role

TOKEN_VARIABLE: Final = "CLONOS_TOKEN"
READ_TOKEN_VARIABLE: Final = "CLONOS_READ_TOKEN"
TOKEN_CHARACTERS_MIN: Final = 16
TOKEN_FILE: Final = "token"


class TokenUnfit(JobError):
    """A token is too short, or its file is open to others."""

    what: str
    reason: str

    def __str__(self) -> str:
        return f"{self.what} {self.reason}. A fit one is the output of: openssl rand -hex 24"


@dataclass(frozen=True, slots=True)
class Tokens:
    """Tokens of a server by role. ``fresh_file``: the file of a token that was created by this start; else None."""

    by_token: Mapping[str, Role]
    fresh_file: Path | None


def find_tokens(
    folder: Path, token: str | None, read_token: str | None, environment: Mapping[str, str] = os.environ
) -> Tokens:
    """Returns the tokens of a server. ``token``, ``read_token``: "@FILE" stands for the content of a file.

    Raises: TokenUnfit.
    """
    writing = _value("--token", token, TOKEN_VARIABLE, environment)
    reading = _value("--read-token", read_token, READ_TOKEN_VARIABLE, environment)
    fresh: Path | None = None
    if writing is None:
        file = folder / TOKEN_FILE
        if not file.exists():
            fresh = file
            descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "w", encoding="ascii") as opened:
                opened.write(secrets.token_urlsafe(32) + "\n")
        writing = _of_file(file)
    tokens = {writing: Role.WRITE}
    if reading is not None:
        if reading == writing:
            raise TokenUnfit("the token for reading", "is that for writing, so its holder could do everything")
        tokens[reading] = Role.READ
    return Tokens(tokens, fresh)


def _value(option: str, given: str | None, variable: str, environment: Mapping[str, str]) -> str | None:
    """Returns the token of an option or a variable. Raises: TokenUnfit."""
    name, value = (option, given) if given is not None else (variable, environment.get(variable))
    if value is None:
        return None
    if value.startswith("@"):
        return _of_file(Path(value[1:]))
    return _checked(f"the token of {name}", value)


def _of_file(file: Path) -> str:
    """Returns the token in a file. Raises: TokenUnfit."""
    what = f"the token file {file}"
    try:
        mode = file.stat().st_mode
        text = file.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise TokenUnfit(what, f"cannot be read: {error}") from None
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise TokenUnfit(what, f"can be read by other users: chmod 600 {file}")
    return _checked(what, text)


def _checked(what: str, token: str) -> str:
    """Raises: TokenUnfit."""
    if len(token) < TOKEN_CHARACTERS_MIN or not token.isascii() or not token.isprintable() or " " in token:
        reason = f"needs at least {TOKEN_CHARACTERS_MIN} printable ASCII characters without spaces"
        raise TokenUnfit(what, reason)
    return token
