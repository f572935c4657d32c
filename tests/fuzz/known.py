"""Known findings that are not fixed yet, counted separately so that a run shows new ones. A fix removes its entry.

By target, what raises: the class of the exception, or "" for any, and how the place where it is raised begins.
"""

from __future__ import annotations

from typing import Final

KNOWN: Final[dict[str, tuple[tuple[str, str], ...]]] = {
    "outcomes": (("", "clonos/core/log/call_outcomes.py"),),
    "http replies": (("HttpRequestInvalid", "clonos/io/http/http_client.py"),),
}


def is_known(target: str, error: str, place: str) -> bool:
    """Whether a finding is one of these."""
    return any(error == (known or error) and place.startswith(where) for known, where in KNOWN.get(target, ()))
