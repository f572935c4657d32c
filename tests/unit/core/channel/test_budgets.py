"""Budgets of a slot at their limits, and the output budget of a task with several receivers (protocol 4)."""

from __future__ import annotations

import pytest

from clonos.core.channel.budgets import SOFT_PERCENT, BudgetLevel, fullest
from clonos.core.channel.output_channels import OutputChannels
from clonos.core.channel.sender import Behind, ChannelSender
from clonos.core.log.causal_log import CausalLogs
from clonos.core.model.ids import Incarnation, TaskId
from clonos.core.model.options import Options
from clonos.core.ports.effect_collector import EffectCollector
from clonos.core.wire.channel_messages import ChannelHandshake
from tests.harnesses.channel_pair import inflight_log
from tests.harnesses.recording_chain import RecordingMirror
from tests.harnesses.sample_plans import number, placement, shuffle, view

OPTIONS = Options(inflight_memory_bytes=1_000, inflight_disk_bytes=1_000, log_memory_bytes=1_000)
SOFT_BYTES = 1_000 * SOFT_PERCENT // 100
LIFE = Incarnation(number(1))


@pytest.mark.parametrize(
    "used", [(1_000, 0, 0), (0, SOFT_BYTES, 0), (0, 0, SOFT_BYTES), (1_000, SOFT_BYTES, SOFT_BYTES)]
)
def test_a_budget_that_is_used_up_to_its_soft_limit_is_free(used: tuple[int, int, int]) -> None:
    assert fullest(OPTIONS, *used) is None


@pytest.mark.parametrize(
    ("used", "option"),
    [
        ((1_001, 0, 0), "inflight_memory_bytes"),
        ((0, SOFT_BYTES + 1, 0), "inflight_disk_bytes"),
        ((0, 0, SOFT_BYTES + 1), "log_memory_bytes"),
    ],
)
def test_a_budget_one_byte_above_its_soft_limit_is_soft(used: tuple[int, int, int], option: str) -> None:
    found = fullest(OPTIONS, *used)
    assert found is not None
    assert (found.option, found.level) == (option, BudgetLevel.SOFT)


@pytest.mark.parametrize(("used_bytes", "level"), [(1_000, BudgetLevel.SOFT), (1_001, BudgetLevel.HARD)])
def test_a_budget_that_is_used_up_to_its_hard_limit_is_soft(used_bytes: int, level: BudgetLevel) -> None:
    found = fullest(OPTIONS, 0, 0, used_bytes)
    assert found is not None
    assert found.level is level


# ------------------------------------------------------------------ the end of a log


@pytest.mark.parametrize(("found_bytes", "behind"), [(12, Behind(None, 10, 12)), (10, None), (0, None)])
def test_a_log_is_behind_its_furthest_copy(found_bytes: int, behind: Behind | None) -> None:
    outputs = OutputChannels(LIFE, CausalLogs(), None, EffectCollector(lambda _task: RecordingMirror()))
    assert outputs.compare({}, None, 10, found_bytes) == (behind, False)


# ------------------------------------------------------------------ output budget of a task


def test_a_receiver_that_is_being_replaced_takes_nothing_from_the_output_budget() -> None:
    plan = shuffle(2)
    outputs = OutputChannels(LIFE, CausalLogs(), None, EffectCollector(lambda _task: RecordingMirror()))
    senders: list[ChannelSender] = []
    for channel in plan.outputs[TaskId(0)]:
        outputs.add(channel, inflight_log(channel=channel.id), ())
        senders.append(outputs.senders[channel.id])
    outputs.apply_view(view(1, [placement(task, LIFE, 1) for task in plan.tasks]))
    for sender, credit_bytes in zip(senders, (500, 300), strict=True):
        opening = ChannelHandshake(sender.channel.id, number(1), LIFE, LIFE, 1, 0, 0, credit_bytes, ())
        outputs.open_session(sender, opening)
    assert outputs.budget_bytes == 300
    replaced = senders[1].receiving_task
    lives = {task: Incarnation(number(2)) if task == replaced else LIFE for task in plan.tasks}
    outputs.apply_view(view(2, [placement(task, lives[task], 1) for task in plan.tasks]))
    assert outputs.budget_bytes == 500
