"""Keepers and external output (protocol 3 and 7): an effect is released in order, once its causes are replicated."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clonos.core.external.external_output import ExternalOutput, KeeperLink, Requirement
from clonos.core.external.keeper import Keeper
from clonos.core.log.causal_log import CausalLogs
from clonos.core.model.element_kind import ElementKind
from clonos.core.model.ids import Incarnation, LogId, SlotId, TaskId, log_of, owner_of
from clonos.core.wire.log_delta import Length
from clonos.core.wire.replication_messages import AppendAck, AppendLog
from tests.harnesses.channel_pair import inflight_log
from tests.harnesses.sample_plans import chain_of

SINK_TASK = TaskId(2)
SINK, MAP = log_of(SINK_TASK), log_of(TaskId(1))
HERE, THERE = SlotId(7), SlotId(8)
LIFE = Incarnation(5)


def held(**logs: bytes) -> CausalLogs:
    found = CausalLogs()
    for name, data in logs.items():
        found.begin({"sink": SINK, "map_": MAP}[name], 0, data)
    return found


def whole(link: KeeperLink, logs: CausalLogs, life: Incarnation = LIFE) -> AppendLog:
    """Message to a keeper that is new to a task, and to any keeper at the heartbeat."""
    link.rewind(logs)
    return link.message(SINK_TASK, life, True, logs)


def more(link: KeeperLink, logs: CausalLogs) -> AppendLog:
    """Message to a keeper when a task's logs have grown."""
    return link.message(SINK_TASK, LIFE, False, logs)


def grow(link: KeeperLink, logs: CausalLogs, log: LogId, data: bytes) -> None:
    logs.append(log, data)
    link.dirty[log] = None


def ready() -> tuple[KeeperLink, CausalLogs, Keeper]:
    link, logs, keeper = KeeperLink(HERE), held(sink=b"sss", map_=b"mmmm"), Keeper(SINK_TASK, LIFE)
    acknowledgement = keeper.keep(whole(link, logs), HERE)
    assert acknowledgement is not None
    link.acknowledge(acknowledgement)
    assert link.is_ready
    return link, logs, keeper


@pytest.mark.parametrize("replicas", [None, 1])
def test_a_keeper_sends_all_its_logs_to_its_tasks_successor(replicas: int | None) -> None:
    plan = replace(chain_of(3), replicas=replicas)
    _, _, keeper = ready()
    assert [delta.log for delta in keeper.reply(SINK_TASK, plan)] == [SINK, MAP]
    assert [delta.log for delta in keeper.reply(owner_of(MAP), plan)] == [MAP]


def test_a_new_keeper_receives_every_log_of_the_task_and_acknowledges_every_length() -> None:
    link, logs, keeper = KeeperLink(HERE), held(sink=b"sss", map_=b"mmmm"), Keeper(SINK_TASK, LIFE)
    message = whole(link, logs)
    assert not link.satisfies({})
    acknowledgement = keeper.keep(message, HERE)
    assert acknowledgement == AppendAck(SINK_TASK, LIFE, HERE, True, (Length(SINK, 3), Length(MAP, 4)))
    assert acknowledgement is not None
    link.acknowledge(acknowledgement)
    assert link.satisfies({SINK: 3, MAP: 4})
    assert not link.satisfies({SINK: 4})


def test_a_keeper_is_sent_only_the_logs_that_grew() -> None:
    link, logs, keeper = ready()
    grow(link, logs, SINK, b"S")
    message = more(link, logs)
    assert [(d.log, d.offset_bytes, d.data) for d in message.deltas] == [(SINK, 3, b"S")]
    acknowledgement = keeper.keep(message, HERE)
    assert acknowledgement is not None
    assert acknowledgement.lengths == (Length(SINK, 4),)


def test_unacknowledged_entries_are_resent_at_the_heartbeat() -> None:
    link, logs, keeper = ready()
    grow(link, logs, SINK, b"S")
    more(link, logs)  # lost
    grow(link, logs, SINK, b"T")
    acknowledgement = keeper.keep(more(link, logs), HERE)
    assert acknowledgement is not None
    link.acknowledge(acknowledgement)  # a gap: it says how far it is
    assert (link.is_ready, link.satisfies({SINK: 4})) == (True, False)
    again = keeper.keep(whole(link, logs), HERE)
    assert again is not None
    link.acknowledge(again)
    assert link.satisfies({SINK: 5})


def test_a_keeper_acknowledges_only_the_incarnation_of_its_view() -> None:
    link, logs, keeper = ready()
    keeper.apply_view(Incarnation(6))
    grow(link, logs, SINK, b"S")
    assert keeper.keep(more(link, logs), HERE) is None
    assert not keeper.is_ready


def test_a_keeper_whose_first_message_was_lost_is_not_ready_though_later_ones_leave_no_gap() -> None:
    """A log that restarts after a completed checkpoint: the delta alone shows no gap, and the map's log is missing."""
    link, logs, keeper = KeeperLink(HERE), held(sink=b"sss", map_=b"mmmm"), Keeper(SINK_TASK, LIFE)
    whole(link, logs)  # lost
    logs.truncate(SINK, 3)
    grow(link, logs, SINK, b"S")
    acknowledgement = keeper.keep(more(link, logs), HERE)
    assert acknowledgement is not None
    link.acknowledge(acknowledgement)
    assert (keeper.is_ready, link.is_ready, link.satisfies({SINK: 4})) == (False, False, False)
    acknowledgement = keeper.keep(whole(link, logs), HERE)
    assert acknowledgement is not None
    link.acknowledge(acknowledgement)
    assert link.satisfies({SINK: 4, MAP: 4})


def test_a_keeper_that_has_missed_a_message_takes_no_entry_without_its_causes() -> None:
    """The lost one had the map's log, the next one only the sink's: a step of elements that nobody could make again."""
    link, logs, keeper = ready()
    grow(link, logs, MAP, b"M")
    more(link, logs)  # lost
    grow(link, logs, SINK, b"S")
    keeper.keep(more(link, logs), HERE)
    assert keeper.logs.end_bytes(SINK) == 3
    acknowledgement = keeper.keep(whole(link, logs), HERE)
    assert acknowledgement is not None
    link.acknowledge(acknowledgement)
    assert link.satisfies({SINK: 4, MAP: 5})


def test_a_restarted_keeper_withdraws_its_acknowledgements() -> None:
    """The keeper's slot installed a view without it and another with it again; the task's slot skipped the first."""
    link, logs, _ = ready()
    keeper = Keeper(SINK_TASK, LIFE)
    grow(link, logs, SINK, b"S")
    acknowledgement = keeper.keep(more(link, logs), HERE)
    assert acknowledgement is not None
    link.acknowledge(acknowledgement)
    assert not link.satisfies({SINK: 3})
    acknowledgement = keeper.keep(whole(link, logs), HERE)
    assert acknowledgement is not None
    link.acknowledge(acknowledgement)
    assert link.satisfies({SINK: 4, MAP: 4})
    assert bytes(keeper.logs.replicas[MAP].data) == b"mmmm"


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 1 << 32))
def test_despite_message_loss_every_acknowledged_entry_is_held(seed: int) -> None:
    rng = random.Random(seed)
    link, logs, keeper = KeeperLink(HERE), held(sink=b"", map_=b""), Keeper(SINK_TASK, LIFE)
    to_keeper: list[AppendLog] = [whole(link, logs)]
    to_task: list[AppendAck] = []
    for _ in range(60):
        match rng.choice(("grow", "more", "heartbeat", "keep", "keep", "acknowledge", "lose", "truncate", "anew")):
            case "grow":
                grow(link, logs, rng.choice((SINK, MAP)), rng.randbytes(rng.randrange(3)))
            case "more" if link.is_ready:
                to_keeper.append(more(link, logs))
            case "heartbeat":
                to_keeper.append(whole(link, logs))
                if keeper.is_ready:
                    to_task.append(keeper.acknowledgement(HERE))
            case "keep" if to_keeper:
                acknowledgement = keeper.keep(to_keeper.pop(0), HERE)
                assert acknowledgement is not None
                to_task.append(acknowledgement)
            case "acknowledge" if to_task:
                link.acknowledge(to_task.pop(0))
            case "lose":
                to_keeper, to_task = to_keeper[rng.randrange(3) :], to_task[rng.randrange(3) :]
            case "truncate":
                task = rng.choice((SINK, MAP))
                end = logs.end_bytes(task)
                logs.truncate(task, rng.randint(end // 2, end))
            case "anew" if rng.random() < 0.1:
                keeper, to_keeper, to_task = Keeper(SINK_TASK, LIFE), [], []
                link.acknowledge(keeper.acknowledgement(HERE))
        if link.is_ready:
            for task, end in link.acknowledged.items():
                assert keeper.logs.end_bytes(task) >= end
                replica, own = keeper.logs.replicas[task], logs.replicas[task]
                first = max(replica.start_bytes, own.start_bytes)
                last = min(replica.end_bytes, own.end_bytes)
                if first < last:
                    assert replica.start_bytes <= own.start_bytes
                    theirs = replica.data[first - replica.start_bytes : last - replica.start_bytes]
                    assert theirs == own.data[first - own.start_bytes : last - own.start_bytes]


# ------------------------------------------------------------------ external output


def links_at(*lengths: Requirement) -> list[KeeperLink]:
    found = []
    for number, requirement in enumerate(lengths):
        link = KeeperLink(SlotId(number + 1))
        ends = tuple(Length(task, end) for task, end in requirement.items())
        link.acknowledge(AppendAck(SINK_TASK, LIFE, link.slot, True, ends))
        found.append(link)
    return found


def released(end: ExternalOutput, *lengths: Requirement, has_keepers: bool = True) -> list[bytes]:
    return [chunk.payload for chunk in end.release(links_at(*lengths), has_keepers)]


def external_at(next_number: int, next_seq: int = 0) -> ExternalOutput:
    end = ExternalOutput(inflight_log(next_seq))
    end.open(next_number)
    return end


def test_output_is_released_in_order_up_to_the_lowest_acknowledgement_of_the_keepers() -> None:
    end = external_at(0)
    for number in (1, 2, 3):
        end.append(ElementKind.ROWS, 1, b"%d" % number, {SINK: number})
    assert released(end, {SINK: 0}, {SINK: 3}) == []
    assert released(end, {SINK: 2}, {SINK: 3}) == [b"1", b"2"]
    assert released(end, {SINK: 2}, {SINK: 3}) == []
    assert released(end, {SINK: 3}, {SINK: 3}) == [b"3"]


def test_a_sink_whose_keeper_is_missing_releases_no_output() -> None:
    end = external_at(0)
    end.append(ElementKind.ROWS, 1, b"1", {})
    assert released(end) == []
    assert released(end, has_keepers=False) == [b"1"]


def test_no_output_is_released_before_the_external_system_registered_the_incarnation() -> None:
    end = ExternalOutput(inflight_log())
    end.append(ElementKind.ROWS, 1, b"1", {})
    assert released(end, {}) == []
    end.open(0)
    assert released(end, {}) == [b"1"]


def test_output_that_the_external_system_holds_is_dropped_by_number_without_a_keeper() -> None:
    end = external_at(3)
    for number in range(5):
        end.append(ElementKind.ROWS, 1, b"%d" % number, {SINK: number + 10})
    assert released(end, {SINK: 0}) == []
    assert end.log.start_seq == 3
    assert released(end, {SINK: 13}) == [b"3"]


def test_a_chunk_that_the_external_system_holds_in_part_is_sent_whole_with_its_first_number() -> None:
    end = external_at(2)
    end.append(ElementKind.ROWS, 4, b"0123", {})
    assert [(c.first_seq, c.count) for c in end.release(links_at({}), True)] == [(0, 4)]


def test_confirmed_output_is_dropped() -> None:
    end = external_at(0)
    for number in range(4):
        end.append(ElementKind.ROWS, 1, b"%d" % number, {})
    released(end, {})
    end.confirm(3)
    end.confirm(1)  # an earlier one, late
    assert (end.confirmed_seq, end.log.start_seq) == (3, 3)


@pytest.mark.parametrize("next_number", [0, 4])
def test_output_before_the_restored_number_is_never_requested(next_number: int) -> None:
    end = external_at(4, next_seq=4) if next_number else external_at(0)
    assert released(end, {}) == []
