"""Choice between the native kernels and their twins in numpy, made once per process."""

from __future__ import annotations

import os
from types import ModuleType
from typing import Final

VARIABLE: Final = "CLONOS_KERNELS"
"""Environment variable; ``numpy`` forces the twins, and nothing else is a valid value."""

FORCED: Final = "numpy"


def is_forced() -> bool:
    """Returns whether the environment asks for the twins."""
    return os.environ.get(VARIABLE) == FORCED


def _load() -> ModuleType | None:
    """Returns the extension, or None where it was not built or is not wanted."""
    if is_forced():
        return None
    try:
        from clonos.kernels import _native
    except ImportError:
        return None
    return _native


native: ModuleType | None = _load()
"""The extension that is in use, or None for the twins. Tests set it."""


def kernels_in_use() -> str:
    """Returns which kernels run, as text for people."""
    if native is not None:
        return "native kernels"
    if is_forced():
        return f"numpy kernels ({VARIABLE} is {FORCED})"
    return "numpy kernels (the native ones were not built: install a C compiler, then Clonos again)"
