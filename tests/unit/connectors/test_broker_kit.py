"""Sinks of brokers publish each row under one id until it is confirmed, over a broker in memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from clonos.connectors.connector_errors import InvalidConnector
from clonos.connectors.kit.broker_sink import BrokerSink, Outgoing, Published
from clonos.connectors.kit.external_system import ExternalSystem, SystemRefused, SystemUnreachable
from clonos.connectors.kit.source_options import is_bounded, own_timestamps
from clonos.operators.connector_contract import Registration, WriterIdentity
from clonos.operators.row_errors import RowNotWritable

LEDGER = ExternalSystem("Ledger", "ledger", "pyledger", "ledger", "Start it, then resume.", "Correct its name.")
TASK = WriterIdentity("job", "sink/0", 2, 1)


class Ledger:
    """Broker that takes ``takes[n]`` messages of the n-th batch, then ends the connection if ``is_hasty``."""

    def __init__(self, takes: list[int], is_hasty: bool = False) -> None:
        self.takes, self.is_hasty = takes, is_hasty
        self.entries: list[tuple[str, str, bytes]] = []
        self.connections = 0

    def publish(self, batch: list[Outgoing]) -> Published:
        taken = batch[: self.takes.pop(0) if self.takes else 0]
        self.entries += [(each.properties["id"], each.target, each.payload) for each in taken]
        confirmed = {each.number for each in taken}
        failure = SystemUnreachable(LEDGER, "host", "publishing", "it is full")
        return Published(confirmed, failure if len(taken) < len(batch) else None, not self.is_hasty)

    def close(self) -> None:
        pass


class LedgerSink(BrokerSink):
    connector, target_word = "ledger.sink", "account"

    def __init__(self, ledger: Ledger, timeout: str = "30s") -> None:
        super().__init__(lambda row: row["account"], {"timeout": timeout})
        self.ledger = ledger

    def publisher(self) -> Ledger:
        self.ledger.connections += 1
        return self.ledger

    def checked_target(self, found: Any) -> str:
        if not isinstance(found, str):
            raise TypeError(f"{found!r} is not an account")
        return found

    def properties(self, message_id: str, headers: Mapping[str, Any], content_type: str | None) -> dict[str, Any]:
        return {**headers, "id": message_id}


class NumberingLedger(Ledger):
    """Ledger that has the rows before its number."""

    number = 0

    def register(self, identity: WriterIdentity, restored_number: int) -> Registration:
        return Registration(self.number, None)


ROWS = [{"account": "a"}, {"account": "b"}, {"account": "c"}]


def test_rows_that_are_not_confirmed_are_published_again_and_the_others_are_not() -> None:
    ledger = Ledger([1, 0, 2])
    writer = LedgerSink(ledger).immediate_writer()
    writer.register(TASK, 5)
    assert writer.write(5, ROWS) == 8
    assert [each[0] for each in ledger.entries] == [f"{TASK.id_space}/{number}" for number in (5, 6, 7)]
    assert [each[1:] for each in ledger.entries] == [(each, b'{"account":"%s"}' % each.encode()) for each in "abc"]


def test_rows_before_the_restored_number_are_not_published_again() -> None:
    ledger = Ledger([3])
    writer = LedgerSink(ledger).immediate_writer()
    writer.register(TASK, 1)
    assert writer.write(0, ROWS) == 3
    assert [each[1] for each in ledger.entries] == ["b", "c"]


def test_rows_before_the_number_of_the_broker_are_not_published_again() -> None:
    ledger = NumberingLedger([1])
    ledger.number = 2
    writer = LedgerSink(ledger).immediate_writer()
    assert writer.register(TASK, 1) == Registration(2, None)
    assert writer.write(0, ROWS) == 3
    assert [each[1] for each in ledger.entries] == ["c"]


def test_a_connection_that_has_ended_is_replaced() -> None:
    ledger = Ledger([1, 2], is_hasty=True)
    writer = LedgerSink(ledger).immediate_writer()
    writer.register(TASK, 0)
    assert writer.write(0, ROWS) == 3
    assert ledger.connections == 2


def test_a_broker_that_confirms_nothing_within_the_timeout_is_unreachable() -> None:
    writer = LedgerSink(Ledger([1]), timeout="1ms").immediate_writer()
    writer.register(TASK, 0)
    with pytest.raises(SystemUnreachable, match=r"Ledger at host failed at publishing: it is full. Start it, then"):
        writer.write(0, ROWS)


def test_a_row_without_a_target_is_named_with_the_part_that_it_lacks() -> None:
    with pytest.raises(RowNotWritable, match=r"ledger.sink cannot write the row .*its account: 7 is not an account"):
        LedgerSink(Ledger([])).check_row({"account": 7})


def test_a_refusal_has_the_advice_of_its_system_or_its_own() -> None:
    assert str(SystemRefused(LEDGER, "host", "reading", "no such book")).endswith("no such book. Correct its name.")
    assert str(SystemRefused(LEDGER, "host", "reading", "closed", "Open it.")).endswith("closed. Open it.")


def test_options_that_do_not_fit_each_other_are_refused() -> None:
    assert is_bounded("ledger.source", "latest", "latest")
    with pytest.raises(InvalidConnector, match=r"until is 'never'. Give .latest. or None"):
        is_bounded("ledger.source", "never", "latest")
    with pytest.raises(InvalidConnector, match="idle_after without out_of_order"):
        own_timestamps("ledger.source", {"idle_after": "1s"})
