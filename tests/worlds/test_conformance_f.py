"""Part F of the conformance list, 28 to 30: external output of a dying sink, for each kind of sink and each mode."""

from __future__ import annotations

import pytest

from clonos_chaos.sim.sim_tables import ExternalKind
from tests.worlds.playing import incarnations_of, is_done, played, played_scene, scenes_of

pytestmark = [pytest.mark.worlds, pytest.mark.slow]


@pytest.mark.parametrize("scene", [*scenes_of(28), *scenes_of(29)])
def test_f28_f29_a_dead_sink_neither_loses_nor_repeats_output_and_nothing_rolls_back(scene: str) -> None:
    for world in played_scene(scene):  # the world's own verdict counts each row
        assert is_done(world)
        assert incarnations_of(world, "sink/0") > 1
        assert world.outcome.rollbacks == 0


def test_f30_without_keepers_an_immediate_sink_repeats_rows_with_an_alarm_that_counts_them() -> None:
    for world in played(30, "immediate sink without keepers dies"):
        assert is_done(world)
        assert world.outcome.rollbacks >= 1
        announced = [fields for _, fields in world.warnings if "first" in fields]
        repeated = sum(int(fields["next"]) - int(fields["first"]) for fields in announced)
        assert repeated >= sum(len(external.superseded) for external in world.externals.values()) > 0


TABLES = [kind for kind in ExternalKind if kind not in (ExternalKind.ALARMING, ExternalKind.FORGETTING)]


@pytest.mark.parametrize("kind", TABLES)
def test_f30_a_table_has_each_row_once_after_its_writer_died_with_its_keepers(kind: ExternalKind) -> None:
    for world in played(30, f"writer of a table dies with its keepers: {kind}"):  # its verdict compares the table
        assert is_done(world)
        assert world.outcome.rollbacks >= 1
        assert sum(external.withdrawn for external in world.externals.values()) > 0
        assert not [fields for _, fields in world.warnings if "first" in fields]


SCENES_OF_STREAMS = (
    "writer of a stream dies with its keepers: forgetting",
    "successor of a writer whose log is lost dies too",
)


@pytest.mark.parametrize("scene", SCENES_OF_STREAMS)
def test_f30_no_id_names_two_rows_and_none_is_lost_after_a_writer_died_with_its_keepers(scene: str) -> None:
    for world in played(30, scene):  # its verdict compares the rows that count with those in the stream
        assert is_done(world)
        assert world.outcome.rollbacks >= 1
        assert [fields["first"] for _, fields in world.warnings if "first" in fields]


def test_f30_without_keepers_a_transactional_sink_stays_exactly_once() -> None:
    for world in played(30, "transactional sink without keepers dies"):
        assert is_done(world)
        assert incarnations_of(world, "sink/0") > 1
