"""Messages that a driver admits to its coordinator."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from clonos.core.coordinator.coordinator_events import Received
from clonos.core.model.element_kind import ElementKind
from clonos.core.model.errors import MessageMalformed
from clonos.core.model.ids import ChannelId, CheckpointId, Incarnation, SlotId, TaskId, ViewNumber
from clonos.core.wire.channel_messages import Batch
from clonos.core.wire.control_messages import Logged, Release, SlotStatus, Snapshotted, Warned
from clonos.core.wire.messages import Message
from clonos.core.wire.recovery_messages import LogRequest
from clonos_standby.driver.driver import Driver
from tests.harnesses.idle_driver import idle_driver


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[Driver]:
    with idle_driver(tmp_path) as made:
        yield made


LIFE = Incarnation(1)


@pytest.mark.parametrize(
    "message",
    [
        Batch(ChannelId(0), LIFE, LIFE, 1, 0, 0, ElementKind.ROWS, 1, CheckpointId(0), ()),
        LogRequest(TaskId(0), LIFE, ViewNumber(1), TaskId(0), False),
        Release(SlotId(7), ""),
        Snapshotted(TaskId(9), LIFE, CheckpointId(1), ("a",), 0, (), False),
        SlotStatus(SlotId(8), ViewNumber(1), CheckpointId(0), (), (), ()),
    ],
    ids=lambda message: type(message).__name__,
)
def test_a_message_type_that_slots_do_not_send_costs_the_connection_and_not_the_job(
    driver: Driver, message: Message
) -> None:
    with pytest.raises(MessageMalformed, match="slot 7"):
        driver.on_message(SlotId(7), message, b"")
    assert driver._events == []


def test_every_valid_message_of_a_slot_reaches_the_coordinator(driver: Driver) -> None:
    status = SlotStatus(SlotId(7), ViewNumber(1), CheckpointId(0), (), (), ())
    driver.on_message(SlotId(7), status, b"")
    driver.on_message(SlotId(7), Logged(SlotId(7), 10, "clonos.job", "a line"), b"")
    driver.on_message(SlotId(7), Warned(SlotId(7), "a warning", ()), b"")
    (event,) = driver._events
    assert isinstance(event, Received)
    assert event.message == status
