"""Metrics as the text that Prometheus reads: those of one job, and those of several drivers as one text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


class _Families(Collector):
    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        """Returns the families."""
        return self._families


def exposition(collector: Collector) -> bytes:
    """Returns the metrics of a collector as text."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(collector)
    return generate_latest(registry)


def merged(own: str, of_jobs: Mapping[str, str]) -> bytes:
    """Returns the metrics of a server and of several drivers as one text, in which each family occurs once.

    ``of_jobs``: the text of each driver by the id of its job at the server, which all its samples get as their label
    ``job_id``. A family that another driver has with another type is left out.

    Raises: ValueError: Prometheus could not read one of the texts.
    """
    families: dict[str, Metric] = {}
    for job_id, text in [("", own), *of_jobs.items()]:
        for family in text_string_to_metric_families(text):
            if job_id:
                family.samples = [each._replace(labels={**each.labels, "job_id": job_id}) for each in family.samples]
            known = families.setdefault(family.name, family)
            if known is not family and known.type == family.type:
                known.samples.extend(family.samples)
    return exposition(_Families(families.values()))
