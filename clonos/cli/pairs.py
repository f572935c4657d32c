"""Options of a job on the command line, as ``--option key=value``."""

from __future__ import annotations

from collections.abc import Sequence

from clonos.core.model.errors import JobError


def pairs(given: Sequence[str]) -> dict[str, object]:
    """Returns the options that ``--option`` sets, by key. Raises: JobError: one has no ``=``."""
    options: dict[str, object] = {}
    for pair in given:
        key, equals, value = pair.partition("=")
        if not equals:
            raise JobError(
                f"--option is {pair!r}, but key=value is expected, for example: --option checkpoint_every=5s"
            )
        options[key.strip().replace("-", "_")] = value
    return options
