"""Every error class of the library, found by importing all of it."""

from __future__ import annotations

import functools
import importlib
import pkgutil

from clonos.core.model.errors import ClonosError, EnvironmentFault, InternalError, JobError, PeerError
from tests.tidy.source import PACKAGE_FOLDERS

BASES = (JobError, EnvironmentFault, PeerError, InternalError)


@functools.cache
def error_classes() -> dict[str, type[ClonosError]]:
    """Returns all error classes of the library, by name."""
    for name in PACKAGE_FOLDERS:
        if name == "clonos_chaos":
            continue
        package = importlib.import_module(name)
        for module in pkgutil.walk_packages(package.__path__, f"{name}."):
            if not module.name.endswith(("warm_daemon", "__main__")):
                importlib.import_module(module.name)
    found: dict[str, type[ClonosError]] = {}
    waiting: list[type[ClonosError]] = [*BASES]
    while waiting:
        cls = waiting.pop()
        found[cls.__name__] = cls
        waiting += cls.__subclasses__()
    return found
