"""Random load curves for the autoscaler: steps, ramps, sines and spikes, with what else can be wrong with a job."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import pi, sin
from random import Random

from tests.unit.core.scaling.plant import Plant, PlantVertex

Curve = Callable[[float], float]


@dataclass(frozen=True)
class Case:
    """One job under one load. ``is_scalable``: more tasks can do all that the load asks for."""

    name: str
    seconds: int
    plant: Plant
    rate_max: float
    is_scalable: bool


def _steps(random: Random, low: float, high: float) -> Curve:
    every_s, levels = random.randint(900, 2_400), [random.uniform(low, high) for _ in range(20)]
    return lambda at_s: levels[int(at_s // every_s) % len(levels)]


def _ramp(random: Random, low: float, high: float) -> Curve:
    until_s, falls = random.randint(1_800, 5_400), random.random() < 0.3
    first, last = (high, low) if falls else (low, high)
    return lambda at_s: first + (last - first) * min(1.0, at_s / until_s)


def _sine(random: Random, low: float, high: float) -> Curve:
    period_s = random.randint(60, 7_200)
    return lambda at_s: low + (high - low) * (1.0 - sin(2 * pi * at_s / period_s + pi / 2)) / 2


def _spikes(random: Random, low: float, high: float) -> Curve:
    every_s, width_s = random.randint(300, 1_800), 5 * random.randint(1, 20)
    return lambda at_s: high if at_s % every_s < width_s else low


CURVES = (_steps, _ramp, _sine, _spikes)


def random_case(seed: int) -> Case:
    """Returns the case of a seed: the load rises up to twelvefold; its last 30 minutes are constant."""
    random = Random(seed)
    make = CURVES[seed % len(CURVES)]
    low = random.uniform(100, 1_500)
    high = low * random.uniform(1.5, 12)
    curve = make(random, low, high)
    trouble = random.choice(("none", "none", "none", "key", "outside", "processors"))
    work_us = random.uniform(100, 700)
    slow = PlantVertex(
        "count",
        work_us,
        random.uniform(0.1, 2.0),
        hot_key_share=random.uniform(0.3, 0.9) if trouble == "key" else random.uniform(0.0, 0.05),
        external_per_s=random.uniform(low / 2, high) if trouble == "outside" else float("inf"),
        processors=random.randint(1, 4) if trouble == "processors" else float("inf"),
    )
    seconds = 30 * random.randint(120, 240)
    plant = Plant(
        (PlantVertex("read", random.uniform(5, 60)), slow, PlantVertex("write", random.uniform(20, 200))),
        lambda at_s: curve(min(at_s, seconds - 1_800)),
        reports_lag=random.random() < 0.8,
    )
    return Case(f"{make.__name__} {trouble}", seconds, plant, high, trouble == "none")
