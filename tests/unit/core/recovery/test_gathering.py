"""Gathering (protocol 6.4, 6.5): the holders that a recovering task asks, and the log that the replies give."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from clonos.core.model.errors import LogDiverged
from clonos.core.model.ids import SlotId, TaskId, log_of
from clonos.core.recovery.gathering import (
    Gathering,
    Holder,
    begin_gathering,
    collect_reply,
    gathered_logs,
    has_replicated_log,
    holders_of,
    join_pieces,
    recovered_logs,
)
from clonos.core.wire.control_messages import View
from clonos.core.wire.log_delta import Delta
from tests.harnesses.sample_plans import chain_of, number, placement, view

PLAN = chain_of(4)
"""a -> b -> c -> d, where d has a keeper."""

KEEPER = Holder(TaskId(3), True, SlotId(9))


def living(
    *, keepers: tuple[int, ...] = (9,), is_fresh: bool = False, slots: tuple[int | None, ...] = (1, 2, 3, 4)
) -> View:
    placements = [placement(task, number(1), slots[task], is_fresh=is_fresh) for task in range(3)]
    placements.append(placement(3, number(1), slots[3], is_fresh=is_fresh, keepers=keepers))
    return view(1, placements)


def holder(task: int) -> Holder:
    return Holder(TaskId(task), False, SlotId(task + 1))


def delta(task: int, offset: int, data: bytes) -> Delta:
    return Delta(log_of(TaskId(task)), offset, True, data)


def test_log_requests_go_to_all_downstream_tasks_and_keepers_of_those_with_effects() -> None:
    assert holders_of(PLAN, living(), TaskId(1)) == (holder(2), holder(3), KEEPER)


def test_a_task_with_effects_sends_a_log_request_to_its_own_keeper() -> None:
    assert holders_of(PLAN, living(), TaskId(3)) == (KEEPER,)


def test_with_a_sharing_depth_only_holders_within_it_and_their_keepers_are_asked() -> None:
    plan = chain_of(4, 1)
    assert holders_of(plan, living(), TaskId(1)) == (holder(2),)
    assert holders_of(plan, living(), TaskId(2)) == (holder(3), KEEPER)


def test_every_keeper_is_asked_while_one_is_being_changed_for_another() -> None:
    asked = holders_of(PLAN, living(keepers=(9, 10)), TaskId(3))
    assert asked == (KEEPER, Holder(TaskId(3), True, SlotId(10)))


def test_no_log_request_is_sent_to_an_unplaced_task() -> None:
    asked = holders_of(PLAN, living(slots=(1, 2, None, 4), keepers=()), TaskId(1))
    assert asked == (holder(3),)


def test_a_fresh_incarnation_sends_no_log_request() -> None:
    gathering = begin_gathering(PLAN, living(is_fresh=True), TaskId(1))
    assert gathering.is_complete
    assert gathered_logs(gathering) == {}


def test_the_longest_copy_wins_for_every_order_of_replies() -> None:
    log = b"0123456789"
    replies = [
        (holder(2), (delta(1, 0, log[:4]), delta(0, 0, b"x"))),
        (holder(3), (delta(1, 2, log[2:8]), delta(0, 0, b"xyz"))),
        (KEEPER, ()),
    ]
    for order in itertools.permutations(replies):
        gathering = begin_gathering(PLAN, living(), TaskId(1))
        for who, deltas in order:
            assert not gathering.is_complete
            gathering = collect_reply(gathering, number(1), who, deltas)
        assert gathering.is_complete
        assert gathered_logs(gathering) == {
            log_of(TaskId(1)): delta(1, 2, log[2:8]),
            log_of(TaskId(0)): delta(0, 0, b"xyz"),
        }


def test_of_copies_with_the_same_end_the_earliest_start_wins() -> None:
    gathering = Gathering(
        number(1), frozenset(), ((holder(2), (delta(1, 4, b"45"),)), (KEEPER, (delta(1, 0, b"012345"),)))
    )
    assert gathered_logs(gathering)[log_of(TaskId(1))].offset_bytes == 0


def test_a_repeated_reply_counts_once_and_an_unrequested_one_is_ignored() -> None:
    first = begin_gathering(PLAN, living(), TaskId(1))
    once = collect_reply(first, number(1), holder(2), ())
    assert collect_reply(once, number(1), holder(2), (delta(1, 0, b"later"),)) is once
    assert collect_reply(once, number(1), Holder(TaskId(2), False, SlotId(77)), ()) is once
    assert collect_reply(once, number(1), Holder(TaskId(3), True, SlotId(3)), ()) is once


def test_a_reply_to_an_earlier_request_is_ignored() -> None:
    gathering = begin_gathering(PLAN, living(), TaskId(1))
    assert collect_reply(gathering, number(7), holder(2), ()) is gathering


def test_copies_that_differ_where_they_overlap_are_a_divergence() -> None:
    gathering = begin_gathering(PLAN, living(), TaskId(1))
    for who, data in ((holder(2), b"abcd"), (holder(3), b"abXd"), (KEEPER, b"ab")):
        gathering = collect_reply(gathering, number(1), who, (delta(1, 5, data),))
    with pytest.raises(LogDiverged) as raised:
        gathered_logs(gathering)
    assert (raised.value.log, raised.value.offset_bytes) == ("the causal log of task 1", 7)


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_with_a_sharing_depth_pieces_are_joined_in_every_order(order: tuple[int, ...]) -> None:
    pieces = [delta(1, 3, b"3456"), delta(1, 0, b"01234"), delta(1, 6, b"678")]
    assert join_pieces(2, log_of(TaskId(1)), [pieces[i] for i in order]) == (b"2345678", 9)


def test_pieces_that_differ_where_they_overlap_are_a_divergence() -> None:
    with pytest.raises(LogDiverged):
        join_pieces(0, log_of(TaskId(1)), [delta(1, 0, b"0123"), delta(1, 2, b"2X")])


def test_pieces_after_a_hole_are_reported_separately_from_the_log() -> None:
    replies = ((holder(2), (delta(1, 0, b"01"),)), (KEEPER, (delta(1, 5, b"5678"),)))
    found, furthest = recovered_logs(
        Gathering(number(1), frozenset(), replies), replace(PLAN, replicas=1), TaskId(1), 0
    )
    own = log_of(TaskId(1))
    assert found == {own: Delta(own, 0, False, b"01")}
    assert furthest == 9


def test_with_a_sharing_depth_the_keepers_of_all_holders_are_asked() -> None:
    placements = [placement(task, number(1), task + 1, keepers=(task + 5,)) for task in range(4)]
    asked = holders_of(replace(PLAN, replicas=1), view(1, placements), TaskId(1))
    assert asked == (holder(2), holder(3), *(Holder(TaskId(t), True, SlotId(t + 5)) for t in (1, 2, 3)))


def replicated(*, since: int, deltas: tuple[Delta, ...], is_keeper: bool = True) -> bool:
    """Whether the log of d is found with one holder, a keeper since a view, in the generation of view 3."""
    placements = [placement(task, number(3), task + 1) for task in range(3)]
    placements.append(placement(3, number(5), 4, keepers=(9,), keepers_since=(number(since),)))
    stands = view(5, placements, generation=number(3))
    asked = Holder(TaskId(3), is_keeper, SlotId(9))
    return has_replicated_log(Gathering(stands.number, frozenset(), ((asked, deltas),)), stands, TaskId(3))


def test_a_keeper_since_the_generation_began_shows_all_output_even_without_a_log() -> None:
    assert replicated(since=3, deltas=())
    assert replicated(since=2, deltas=())


def test_a_keeper_that_was_named_later_shows_the_output_only_if_it_has_the_log() -> None:
    assert replicated(since=4, deltas=(delta(3, 0, b""),))
    assert not replicated(since=4, deltas=())
    assert not replicated(since=4, deltas=(delta(2, 0, b"other"),))
    assert not replicated(since=4, deltas=(delta(3, 0, b""),), is_keeper=False)


def test_without_replies_no_keeper_has_the_log() -> None:
    assert not has_replicated_log(Gathering(number(1), frozenset(), ()), living(), TaskId(3))
