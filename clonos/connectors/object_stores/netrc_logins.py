"""Users and passwords of servers of files, from a netrc file: ``$NETRC``, or ``.netrc`` in the home folder.

They are looked up in the process that connects, and are in no plan, split or message.
"""

from __future__ import annotations

import errno
import netrc
import os
from typing import NamedTuple


class Login(NamedTuple):
    """User and password, "" for none."""

    user: str
    password: str

    def __repr__(self) -> str:
        return f"<login of {self.user}>"


def login_of(host: str) -> Login | None:
    """Returns the login of a host, also that of ``default``; None if the file has none, or there is no file.

    Raises: OSError: the file cannot be read.
    """
    path = os.environ.get("NETRC") or os.path.expanduser("~/.netrc")
    if not os.path.exists(path):
        return None
    try:
        found = netrc.netrc(path).authenticators(host)
    except netrc.NetrcParseError as error:  # whose text may have a password in it
        raise OSError(errno.EINVAL, f"the netrc file {path} cannot be understood near line {error.lineno}") from None
    except UnicodeDecodeError:
        raise OSError(errno.EINVAL, f"the netrc file {path} is not text in UTF-8") from None
    return None if found is None else Login(found[0] or "", found[2] or "")
