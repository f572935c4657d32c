"""Events of OpenLineage, made of the graph of a job and of the events of its history.

Their form is version 2-0-2 of the specification. A run is that of one driver, so that each has one START and one end.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final
from uuid import NAMESPACE_URL, UUID, uuid5

from clonos.api.graph import JobGraph
from clonos.io.system.wall_clock import time_text
from clonos.job.run_history.history_events import (
    CheckpointDone,
    DriverStarted,
    Event,
    RunEnded,
    TaskRecovered,
    WidthsChanged,
)
from clonos.operators.connector_contract import PushSource, discovery_interval_ns
from clonos.operators.lineage import datasets_of, schema_of

Json = dict[str, Any]

SPECIFICATION: Final = "https://openlineage.io/spec"
SCHEMA_URL: Final = f"{SPECIFICATION}/2-0-2/OpenLineage.json#/$defs/RunEvent"
RUNNING_EVERY_NS: Final = 60_000_000_000
"""Least time between two events that say that the job runs, unless its widths have changed."""

ENDS: Final = {"finished": "COMPLETE", "drained": "COMPLETE", "failed": "FAIL"}
"""Types of the last event, by how the driver has ended; of others ABORT."""

CUSTOM_FACET_URL: Final = "urn:clonos:lineage:ProgressRunFacet:1"


class LineageEvents:
    """Events of one driver. ``add`` takes the events of its history in their order.

    ``namespace``: of jobs. ``parent``: ``namespace/name/run`` of the run that has started this one; "" without one.
    """

    def __init__(self, graph: JobGraph, namespace: str, parent: str, version: str) -> None:
        self._producer = f"urn:clonos:{version}"
        self._namespace, self._name, self._version = namespace, graph.name, version
        self._parent = self._parent_facet(parent)
        sources = [step.source for step in graph.steps if step.source is not None]
        self._inputs = self._datasets(sources)
        self._outputs = self._datasets([step.sink for step in graph.steps if step.sink is not None])
        is_endless = any(
            isinstance(each, PushSource) or discovery_interval_ns(each) or not getattr(each, "is_bounded", True)
            for each in sources
        )
        kind = {"processingType": "STREAMING" if is_endless else "BATCH", "integration": "CLONOS", "jobType": "JOB"}
        self._job = {
            "namespace": namespace,
            "name": graph.name,
            "facets": {"jobType": self._facet("2-0-4", "JobTypeJobFacet", kind)},
        }
        self._checkpoint = self._recoveries = 0
        self._reported_ns = 0

    def add(self, event: Event) -> Iterator[Json]:
        """Yields the events of OpenLineage that follow from one of the history."""
        match event:
            case DriverStarted():
                self._checkpoint, self._reported_ns = event.checkpoint, event.at_ns
                yield self._event("START", event)
            case RunEnded():
                self._checkpoint = event.checkpoint
                yield self._event(ENDS.get(event.how, "ABORT"), event, event.error)
            case CheckpointDone():
                self._checkpoint = max(self._checkpoint, event.number)
                if event.at_ns - self._reported_ns >= RUNNING_EVERY_NS:
                    yield self._running(event)
            case TaskRecovered():
                self._recoveries += 1
            case WidthsChanged(phase="done"):
                yield self._running(event)
            case _:
                return

    def _running(self, event: Event) -> Json:
        self._reported_ns = event.at_ns
        return self._event("RUNNING", event)

    def _event(self, kind: str, event: Event, error: str = "") -> Json:
        engine = {"version": self._version, "name": "Clonos", "openlineageAdapterVersion": self._version}
        progress = {"jobId": event.job_id, "checkpoint": self._checkpoint, "recoveries": self._recoveries}
        facets = {
            "processing_engine": self._facet("1-1-1", "ProcessingEngineRunFacet", engine),
            "clonos_progress": {"_producer": self._producer, "_schemaURL": CUSTOM_FACET_URL, **progress},
            **self._parent,
        }
        if error:
            described = {"message": error, "programmingLanguage": "python"}
            facets["errorMessage"] = self._facet("1-0-1", "ErrorMessageRunFacet", described)
        return {
            "eventType": kind,
            "eventTime": time_text(event.at_ns),
            "run": {"runId": run_id(event.job_id, event.term), "facets": facets},
            "job": self._job,
            "inputs": self._inputs,
            "outputs": self._outputs,
            "producer": self._producer,
            "schemaURL": SCHEMA_URL,
        }

    def _facet(self, version: str, name: str, fields: Mapping[str, Any]) -> Json:
        url = f"{SPECIFICATION}/facets/{version}/{name}.json#/$defs/{name}"
        return {"_producer": self._producer, "_schemaURL": url, **fields}

    def _parent_facet(self, parent: str) -> Json:
        namespace, _, rest = parent.partition("/")
        name, _, run = rest.rpartition("/")
        try:
            fields = {"run": {"runId": str(UUID(run))}, "job": {"namespace": namespace, "name": name}}
        except ValueError:
            return {}
        return {"parent": self._facet("1-2-0", "ParentRunFacet", fields)} if namespace and name else {}

    def _datasets(self, connectors: list[Any]) -> list[Json]:
        """Returns the data sets of connectors, each once."""
        found: dict[tuple[str, str], Json] = {}
        for connector in connectors:
            fields = [{"name": name, "type": kind} for name, kind in schema_of(connector)]
            schema = {"schema": self._facet("1-2-0", "SchemaDatasetFacet", {"fields": fields})} if fields else {}
            for dataset in datasets_of(connector):
                found.setdefault(dataset, {**dataset._asdict(), "facets": schema})
        return list(found.values())


def run_id(job_id: str, term: int) -> str:
    """Returns the id of the run of a driver, the same each time."""
    return str(uuid5(NAMESPACE_URL, f"urn:clonos:{job_id}/{term}"))
