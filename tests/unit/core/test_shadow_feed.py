"""Feeds of hot standbys at the task's end: which acknowledgements a session takes."""

from __future__ import annotations

import pytest

from clonos.core.log.causal_log import CausalLogs
from clonos.core.model.errors import MessageMalformed
from clonos.core.model.ids import Incarnation, SlotId, TaskId, log_of
from clonos.core.ports.effect_collector import EffectCollector
from clonos.core.ports.operator_chain import Mirror
from clonos.core.standby.shadow_feed import ShadowFeeds
from clonos.core.wire.shadow_messages import FeedAck

TASK, LIFE, STANDBY, SESSION = TaskId(1), Incarnation(1), SlotId(9), 1


def no_mirror(task: TaskId) -> Mirror:
    raise AssertionError(task)


def feeds() -> ShadowFeeds:
    """The feeds of a task with one session, which has carried nothing."""
    logs = CausalLogs()
    logs.begin(log_of(TASK), 0, b"")
    made = ShadowFeeds(TASK, LIFE, True, logs, EffectCollector(no_mirror), 1_000)
    made.apply_view((STANDBY,))
    made.on_feed_ack(FeedAck(TASK, LIFE, STANDBY, SESSION, 0))
    return made


def test_an_acknowledgement_of_more_than_the_session_has_carried_is_malformed() -> None:
    lied_to = feeds()
    with pytest.raises(MessageMalformed, match="slot 9 is malformed: it acknowledges 1 bytes of a session that has"):
        lied_to.on_feed_ack(FeedAck(TASK, LIFE, STANDBY, SESSION, 1))
    lied_to.validate()


def test_a_repeated_acknowledgement_changes_nothing() -> None:
    fed = feeds()
    fed.on_feed_ack(FeedAck(TASK, LIFE, STANDBY, SESSION, 0))
    fed.validate()
    assert [feed.worked_bytes for feed in fed.feeds.values()] == [0]


def test_a_shadow_that_has_worked_off_what_it_was_sent_is_not_dropped() -> None:
    fed = feeds()
    (feed,) = fed.feeds.values()
    feed.on_sent(90, lag_bytes_max=100)
    fed.on_feed_ack(FeedAck(TASK, LIFE, STANDBY, SESSION, 90))
    feed.on_sent(90, lag_bytes_max=100)
    assert not feed.is_dropped
    feed.on_sent(90, lag_bytes_max=100)
    assert feed.is_dropped
