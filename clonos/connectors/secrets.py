"""Secrets of connectors: ``secrets.env`` and ``secrets.file`` name where a password is, and hold no password.

A ``Secret`` travels in the plan, to the slots and through errors as its description. Its value is looked up by
``reveal`` in the process that connects. ``masked`` hides passwords that users wrote into a URL, ``without`` those that
a client library repeats in its errors.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from clonos.connectors.connector_errors import InvalidConnector
from clonos.core.model.errors import EnvironmentFault
from clonos.core.model.missing_names import explains_names
from clonos.core.model.wrong_calls import explains_calls

__all__ = ["env", "file", "Secret", "SecretMissing", "masked", "without"]

SECRET_BYTES_MAX: Final = 1 << 16
MASK: Final = "***"
DEPTH_MAX: Final = 6
PARTS_MAX: Final = 100
"""How far secrets are looked for in a connector: fields of fields, and parts of one, such as headers."""

_OF_URL: Final = re.compile(r"([\w.+-]+://[^\s:@/?#]*):[^\s/?#]*@")
_OPTION: Final = r"(?:\w*_)?(?:password|passwd|pwd|sslpassword|passphrase|secret|token)"
_OF_QUERY: Final = re.compile(rf"([?&]{_OPTION}=)[^&#\s]*", re.IGNORECASE)
_NAMED: Final = re.compile(rf"((?<![\w?&]){_OPTION}\s*=\s*)('(?:[^'\\]|\\.)*'|[^\s;]*)", re.IGNORECASE)


class SecretMissing(EnvironmentFault):
    """A secret is not where its description says, in the process that needs it."""

    secret: str
    reason: str

    def __str__(self) -> str:
        return (
            f"{self.secret} cannot be used in this process: {self.reason}. Every process of the job that connects needs"
            " it: set the variable where the job and its slots start, or put the file on each machine."
        )


class Secret(msgspec.Struct, frozen=True, repr_omit_defaults=False):
    """Description of a secret, of which texts and pickles show no more. Either ``variable`` or ``path`` is set."""

    variable: str = ""
    path: str = ""

    def __repr__(self) -> str:
        return f"<secret from {f'${self.variable}' if self.variable else self.path}>"

    def reveal(self) -> str:
        """Returns the value, which the caller must neither keep nor show.

        Raises: SecretMissing: the variable is not set in this process, or the file cannot be read; or it is empty.
        """
        value = self._from_file() if self.path else os.environ.get(self.variable)
        if value is None:
            raise SecretMissing(repr(self), f"the variable {self.variable} is not set")
        if not value:
            raise SecretMissing(repr(self), "it is empty")
        return value

    def _from_file(self) -> str:
        try:
            with open(self.path, "rb") as opened:
                data = opened.read(SECRET_BYTES_MAX + 1)
        except OSError as error:
            raise SecretMissing(repr(self), error.strerror or type(error).__name__) from None
        if len(data) > SECRET_BYTES_MAX:
            raise SecretMissing(repr(self), f"the file has more than {SECRET_BYTES_MAX} bytes")
        text = data.decode("utf-8", "replace")
        if text.encode("utf-8") != data:  # a UnicodeDecodeError would carry the secret along
            raise SecretMissing(repr(self), "the file is not text in UTF-8")
        return text.removesuffix("\n").removesuffix("\r")


@explains_calls
def env(name: str) -> Secret:
    """Secret in an environment variable, which every process of the job that connects must have.

    Raises: InvalidConnector: this is not the name of a variable.

    Example::

        postgres.table("postgresql://ann@db/shop", "orders", password=secrets.env("SHOP_PASSWORD"))
    """
    if not name or "=" in name or "\0" in name:
        raise InvalidConnector("secrets.env", "the name is empty or has a '='", "Give the name of a variable.")
    return Secret(variable=name)


@explains_calls
def file(path: str | os.PathLike[str]) -> Secret:
    """Secret in a file, without the line end at its end. The file must be on each machine of the job.

    Raises: InvalidConnector: the path is empty.

    Example::

        postgres.table("postgresql://ann@db/shop", "orders", password=secrets.file("/run/secrets/shop"))
    """
    if not os.fspath(path):
        raise InvalidConnector("secrets.file", "the path is empty", "Give the path of a file.")
    return Secret(path=os.path.abspath(os.path.expanduser(os.fspath(path))))


def revealed(value: str | Secret) -> str:
    """Returns the value of a secret; another text unchanged.

    Raises: SecretMissing: see ``Secret.reveal``.
    """
    return value.reveal() if isinstance(value, Secret) else value


def missing_secrets(connector: object, depth: int = DEPTH_MAX) -> Iterator[Secret]:
    """Yields the secrets that a source or a sink has, in fields of its own or of what it consists of, and that are not
    where their description says in this process."""
    if isinstance(connector, Secret):
        try:
            connector.reveal()
        except SecretMissing:
            yield connector
        return
    parts: Iterable[object] = ()
    if isinstance(connector, Mapping):
        parts = connector.values()
    elif isinstance(connector, list | tuple):
        parts = connector
    elif type(connector).__module__.startswith("clonos"):
        names = (*getattr(connector, "__dict__", ()), *_slots_of(type(connector)))
        parts = [getattr(connector, name, None) for name in names]
    if depth:
        for part in itertools.islice(parts, PARTS_MAX):
            yield from missing_secrets(part, depth - 1)


def _slots_of(kind: type) -> Iterator[str]:
    for base in kind.__mro__:
        slots = base.__dict__.get("__slots__", ())
        yield from (slots,) if isinstance(slots, str) else slots
    if issubclass(kind, msgspec.Struct):
        yield from kind.__struct_fields__


def masked(text: object) -> str:
    """Returns a text without the passwords of URLs in it, nor the values of options such as ``password=``."""
    for pattern, shown in ((_OF_URL, rf"\1:{MASK}@"), (_OF_QUERY, rf"\1{MASK}"), (_NAMED, rf"\1{MASK}")):
        text = pattern.sub(shown, str(text))
    return str(text)


WORD_CHARACTERS_MIN: Final = 6
"""Characters of a word of a secret that is removed by itself, such as the token after "Bearer"."""


def without(text: str, values: Iterable[str]) -> str:
    """Returns a text, such as the error of a client library, in which each of these values is replaced by ``***``."""
    for value in sorted(values, key=len, reverse=True):
        if value:
            text = text.replace(value, MASK)
    return text


def without_secrets(text: str, values: Iterable[Any]) -> str:
    """Returns a text of a server, which may repeat what it was sent, without these secrets and their longer words.

    Raises: SecretMissing.
    """
    texts = [revealed(value) for value in values if isinstance(value, Secret)]
    words = [word for secret in texts for word in secret.split() if len(word) >= WORD_CHARACTERS_MIN]
    return without(text, [*texts, *words])


def check_text(connector: str, option: str, value: str | Secret) -> None:
    """Checks that a text option does not contain the description of a secret, as an f-string puts it there.

    Raises: InvalidConnector: it does.
    """
    if isinstance(value, str) and "<secret from " in value:
        advice = f"Give the secret as an option of its own, for example password=, or the whole {option}= as a secret."
        raise InvalidConnector(connector, f"{option} contains a secret, which an f-string cannot reveal", advice)


explains_names(__name__)
