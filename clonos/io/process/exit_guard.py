"""Guard against user code that ends its process by ``os._exit``: in a guarded thread the call raises.

Otherwise the process would end without a word, and so would its successors, at the same record.
"""

from __future__ import annotations

import os
import threading
from typing import Final, NoReturn

from clonos.core.model.errors import ExitCalled

_EXIT: Final = os._exit

_guarded = threading.local()


def guard_thread() -> None:
    """Lets ``os._exit`` raise ``ExitCalled`` in this thread from now on, but not in processes that it forks."""
    _guarded.pid = os.getpid()
    setattr(os, "_exit", _exit)  # noqa: B010  to mypy it is a function that cannot be replaced


def _exit(status: int) -> NoReturn:
    if getattr(_guarded, "pid", None) == os.getpid():
        raise ExitCalled(f"os._exit({status})")
    _EXIT(status)
