"""Links that lead nowhere, as to a disk that is not mounted: the system says only that something is there already."""

from __future__ import annotations

import os
from pathlib import Path


def error_text(error: OSError, path: str | Path) -> str:
    """Returns the text of an error in making ``path``; if a link at or above it leads nowhere, the text says so.

    Such a link is not followed to make its target, which may belong on a disk that is missing.
    """
    for place in (Path(path), *Path(path).parents):
        if place.is_symlink() and not os.path.exists(place):
            return (
                f"{place} is a link to {os.readlink(place)}, which does not exist: make that folder, or mount its disk"
            )
    return error.strerror or str(error)
