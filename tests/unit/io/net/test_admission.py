"""Admission of connections: who is ended at a limit, and which deadline a client has."""

from __future__ import annotations

import ipaddress

import pytest

from clonos.io.net.connection_admission import Admission, AdmissionLimits, Owed, site_of

LIMITS = AdmissionLimits(
    connections_max=4, address_connections_max=3, head_s=10, body_s=30, body_bytes_per_s=100, answer_s=60
)
A, B, C = "10.0.0.1", "10.0.0.2", "10.0.0.3"


class _Port:
    """A port with a clock that the test moves."""

    def __init__(self, limits: AdmissionLimits = LIMITS) -> None:
        self.now_s = 0.0
        self.admission: Admission[str] = Admission(limits, lambda: self.now_s)

    def enter(self, *keys: str, address: str = A) -> list[str | None]:
        """Lets connections in, a second apart."""
        ended = []
        for key in keys:
            self.now_s += 1
            ended.append(self.admission.enter(key, address))
        return ended


def test_the_connection_that_has_waited_longest_is_ended_for_a_new_one_of_its_address() -> None:
    port = _Port()
    assert port.enter("1", "2", "3") == [None] * 3
    assert port.enter("4", "5") == ["1", "2"]
    assert port.enter("6", address=B) == [None]


def test_at_the_limit_of_all_addresses_the_longest_waiting_of_any_address_is_ended() -> None:
    port = _Port()
    port.enter("1", "2", address=A)
    port.enter("3", "4", address=B)
    assert port.enter("5", address=C) == ["1"]


def test_a_connection_that_is_being_served_is_not_ended_but_a_new_connection_is() -> None:
    port = _Port()
    port.enter("1", "2", "3")
    port.admission.owes("1", Owed.NOTHING)
    port.admission.owes("2", Owed.BODY)
    assert port.enter("4") == ["3"]
    port.admission.owes("4", Owed.NOTHING)
    assert port.enter("5") == ["5"]
    port.admission.leave("1")
    assert port.enter("6") == [None]


def test_a_client_that_reads_nothing_or_is_idle_after_an_answer_waits_from_then_on() -> None:
    port = _Port()
    port.enter("1", "2", "3")
    for key in ("1", "2"):
        port.admission.owes(key, Owed.NOTHING)
        port.now_s += 1
        port.admission.owes(key, Owed.READING if key == "1" else Owed.HEAD)
    assert port.enter("4", "5", "6") == ["3", "1", "2"]


def test_pieces_of_a_head_do_not_move_its_deadline() -> None:
    port = _Port()
    port.enter("1")
    for _ in range(10):
        port.now_s += 1
        port.admission.owes("1", Owed.HEAD)
    assert port.admission.overdue() == []
    port.now_s += 0.1
    assert port.admission.overdue() == ["1"]
    assert port.admission.overdue() == []


def test_a_body_may_last_as_long_as_it_comes_fast_enough() -> None:
    port = _Port()
    port.enter("1", "2")
    for _ in range(100):
        port.now_s += 1
        for key, size in (("1", 100), ("2", 1)):
            port.admission.owes(key, Owed.BODY, size)
        if port.now_s == 34:
            assert port.admission.overdue() == ["2"]
    assert port.admission.overdue() == []


def test_an_answer_has_a_deadline_only_while_its_client_does_not_read() -> None:
    port = _Port()
    port.enter("1", "2")
    port.admission.owes("1", Owed.NOTHING)
    port.admission.owes("2", Owed.READING)
    port.now_s += 61
    assert port.admission.overdue() == ["2"]


def test_a_trusted_proxy_and_a_unix_socket_have_no_limit_of_their_own() -> None:
    trusted = (ipaddress.ip_network("10.0.0.1"), ipaddress.ip_network("fd00::1"))
    port = _Port(AdmissionLimits(100, 2, trusted=trusted))
    for address in (A, "fd00::1", ""):
        assert port.enter(*(f"{address} {number}" for number in range(20)), address=address) == [None] * 20
    assert port.enter("1", "2", "3", address="fd00::2") == [None, None, "1"]


@pytest.mark.parametrize(
    ("address", "site"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("2001:db8::1", "2001:db8::/64"),
        ("2001:db8::ffff:1", "2001:db8::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("", ""),
    ],
)
def test_the_addresses_that_one_client_may_choose_count_as_one(address: str, site: str) -> None:
    assert site_of(address) == site
