"""Replication coverage (protocol 3): a log is sent until enough failure domains hold it. Domains count, not tasks."""

from __future__ import annotations

from clonos.core.external.external_output import KeeperLink, held_by
from clonos.core.log.causal_log import CausalLogs
from clonos.core.log.replication_coverage import Coverage
from clonos.core.model.ids import LogId, SlotId, TaskId, log_of
from clonos.core.wire.control_messages import SlotAddress, View
from clonos.core.wire.log_delta import Delta
from tests.harnesses.sample_plans import number

TASK = TaskId(1)
OWN, OTHER = log_of(TASK), log_of(TaskId(0))
DOMAINS = {1: "here", 2: "here", 3: "there", 4: "there", 5: "beyond"}
"""By slot; the task lives in slot 1."""


def coverage(replicas: int) -> Coverage:
    found = Coverage(TASK, SlotId(1), replicas)
    slots = tuple(SlotAddress(SlotId(slot), domain, "", "", b"") for slot, domain in DOMAINS.items())
    found.apply_view(View(number(1), 1, "job", slots, ()))
    return found


def logs(own: bytes = b"", other: bytes = b"") -> CausalLogs:
    found = CausalLogs()
    found.begin(OWN, 0, own)
    found.begin(OTHER, 0, other)
    return found


def keeper(slot: int, is_ready: bool = True, **acknowledged: int) -> KeeperLink:
    link = KeeperLink(SlotId(slot))
    link.is_ready = is_ready
    link.acknowledged = {{"own": OWN, "other": OTHER}[name]: end for name, end in acknowledged.items()}
    return link


def test_the_own_log_is_sent_until_keepers_in_enough_other_domains_acknowledged_it() -> None:
    knows, held = coverage(2), logs(own=b"0123")
    knows.grew(OWN)
    knows.acknowledged(held_by([keeper(3, own=4), keeper(4, own=4)]), held)  # one domain
    knows.acknowledged(held_by([keeper(3, own=4), keeper(2, own=4)]), held)  # the own one
    knows.acknowledged(held_by([keeper(3, own=4), keeper(5, is_ready=False, own=4)]), held)
    assert (knows.covered.get(OWN, 0), list(knows.uncovered)) == (0, [OWN])
    knows.acknowledged(held_by([keeper(3, own=4), keeper(5, own=3)]), held)
    assert (knows.covered[OWN], list(knows.uncovered)) == (3, [OWN])
    knows.acknowledged(held_by([keeper(3, own=4), keeper(5, own=4)]), held)
    assert (knows.covered[OWN], list(knows.uncovered)) == (4, [])


def test_a_log_received_from_another_domain_counts_as_replicated_there() -> None:
    knows = coverage(1)
    knows.came(OTHER, SlotId(2), 4)
    assert list(knows.uncovered) == [OTHER]
    knows.came(OTHER, SlotId(3), 6)
    assert (knows.covered[OTHER], list(knows.uncovered)) == (6, [])


def test_a_keeper_in_the_senders_domain_adds_no_domain() -> None:
    knows, held = coverage(2), logs(other=b"0123")
    knows.came(OTHER, SlotId(3), 4)
    knows.acknowledged(held_by([keeper(4, other=4)]), held)
    assert list(knows.uncovered) == [OTHER]
    knows.acknowledged(held_by([keeper(5, other=4)]), held)
    assert not knows.uncovered


def test_a_log_received_from_two_domains_counts_for_neither() -> None:
    knows, held = coverage(2), logs(other=b"0123")
    knows.came(OTHER, SlotId(3), 2)
    knows.came(OTHER, SlotId(5), 4)
    knows.acknowledged(held_by([keeper(3, other=4)]), held)
    assert list(knows.uncovered) == [OTHER]


def test_only_the_owner_leaves_out_replicated_parts_of_a_log() -> None:
    knows, held = coverage(1), logs(own=b"0123", other=b"abcd")
    knows.covered.update({OWN: 3, OTHER: 3})
    knows.uncovered.update({OWN: None, OTHER: None})
    shipped: dict[LogId, int] = {}
    assert knows.deltas(shipped, held) == (Delta(OWN, 3, True, b"3"), Delta(OTHER, 0, True, b"abcd"))
    assert knows.deltas(shipped, held) == ()
