"""Options that connectors to brokers share, said once: functions take them as ``**options: Unpack[...]``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Required, TypedDict

from clonos.connectors.connector_errors import InvalidConnector
from clonos.connectors.secrets import Secret
from clonos.connectors.tls_context import PemFile, Trust
from clonos.operators.event_time.durations import Duration
from clonos.operators.event_time.stamped_records import stamp_of

if TYPE_CHECKING:
    from clonos.api.event_time import Timestamps


class AddressOptions(TypedDict, total=False):
    """Address of a broker, its user, and whom the connection trusts."""

    url: Required[str | Secret]
    password: str | Secret | None
    ca: PemFile | None
    certificate: PemFile | None


class LogOptions(TypedDict, total=False):
    """End of a source that can be read again, and the timestamps that its messages bring."""

    until: Literal["latest"] | None
    out_of_order: Duration | None
    idle_after: Duration | None


def trust_of(connector: str, options: AddressOptions) -> Trust:
    """Returns whom a connection trusts.

    Raises: InvalidConnector: a file has no path.
    """
    return Trust(connector, options.get("ca"), options.get("certificate"))


def is_bounded(connector: str, until: str | None, end: str) -> bool:
    """Returns whether a source ends; ``end`` is the only value of ``until`` for which it does.

    Raises: InvalidConnector: it has another value.
    """
    if until not in (None, end):
        raise InvalidConnector(connector, f"until is {until!r:.80}", f'Give "{end}" or None.')
    return until is not None


def own_timestamps(connector: str, options: LogOptions) -> Timestamps | None:
    """Returns how records get the timestamps of their messages, in nanoseconds; None if they do not.

    Raises: InvalidConnector: one option does not go without the other.
    """
    from clonos.api.event_time import Timestamps

    out_of_order, idle_after = options.get("out_of_order"), options.get("idle_after")
    if out_of_order is not None:
        return Timestamps(stamp_of, unit="ns", out_of_order=out_of_order, idle_after=idle_after)
    if idle_after is not None:
        raise InvalidConnector(connector, "idle_after without out_of_order", "Give out_of_order=, such as '5s', too.")
    return None
