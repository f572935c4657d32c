"""Streaming jobs in plain Python whose results stay exact when processes die: on child processes or on Spark.

The public names of the library live here. They are loaded lazily: importing the package imports neither zmq
nor pyspark. ``help(clonos.files.csv)``, or ``python -m pydoc clonos.files.csv``, shows what one of them takes.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from clonos import agg as agg
    from clonos.api.emission import at_end as at_end
    from clonos.api.emission import changes as changes
    from clonos.api.emission import each as each
    from clonos.api.emission import every as every
    from clonos.api.event_time import Timestamps as Timestamps
    from clonos.api.joining.connected import ConnectedStreams as ConnectedStreams
    from clonos.api.joining.connected import TwoInputFunction as TwoInputFunction
    from clonos.api.keyed_stream import KeyedStream as KeyedStream
    from clonos.api.stream import ProcessFunction as ProcessFunction
    from clonos.api.stream import Stream as Stream
    from clonos.api.transforms.enriching import http_lookup as http_lookup
    from clonos.api.window_step import every_event_time as every_event_time
    from clonos.api.window_step import last_values as last_values
    from clonos.api.window_step import newest_values as newest_values
    from clonos.api.windowed import WindowedStream as WindowedStream
    from clonos.api.windows import CountSliding as CountSliding
    from clonos.api.windows import CountTumbling as CountTumbling
    from clonos.api.windows import Cumulative as Cumulative
    from clonos.api.windows import Global as Global
    from clonos.api.windows import Range as Range
    from clonos.api.windows import Session as Session
    from clonos.api.windows import Sliding as Sliding
    from clonos.api.windows import Tumbling as Tumbling
    from clonos.connectors import blackhole as blackhole
    from clonos.connectors import codecs as codecs
    from clonos.connectors import collect as collect
    from clonos.connectors import dbapi as dbapi
    from clonos.connectors import delta as delta
    from clonos.connectors import files as files
    from clonos.connectors import iceberg as iceberg
    from clonos.connectors import kafka as kafka
    from clonos.connectors import mqtt as mqtt
    from clonos.connectors import nats as nats
    from clonos.connectors import postgres as postgres
    from clonos.connectors import rabbitmq as rabbitmq
    from clonos.connectors import redis as redis
    from clonos.connectors import secrets as secrets
    from clonos.connectors import sockets as sockets
    from clonos.connectors import sqlite as sqlite
    from clonos.connectors import stdout as stdout
    from clonos.connectors import values as values
    from clonos.connectors import web as web
    from clonos.connectors.kit.external_system import MessageRefused as MessageRefused
    from clonos.connectors.kit.external_system import MessagesLost as MessagesLost
    from clonos.connectors.kit.external_system import NumberLost as NumberLost
    from clonos.connectors.kit.external_system import PayloadMalformed as PayloadMalformed
    from clonos.connectors.kit.external_system import SystemRefused as SystemRefused
    from clonos.connectors.kit.external_system import SystemUnreachable as SystemUnreachable
    from clonos.connectors.kit.history import HistorySource as HistorySource
    from clonos.connectors.kit.history import LateCut as LateCut
    from clonos.core.log.call_outcomes import CallInDoubt as CallInDoubt
    from clonos.core.log.call_outcomes import CallNeverHappened as CallNeverHappened
    from clonos.core.log.call_outcomes import RecordedError as RecordedError
    from clonos.core.model.errors import ClonosError as ClonosError
    from clonos.core.model.errors import EnvironmentFault as EnvironmentFault
    from clonos.core.model.errors import InternalError as InternalError
    from clonos.core.model.errors import JobError as JobError
    from clonos.core.model.errors import PeerError as PeerError
    from clonos.core.model.errors import ProducerGivenUp as ProducerGivenUp
    from clonos.core.ports.redaction import RedactedKind as RedactedKind
    from clonos.core.ports.redaction import RedactedOrigin as RedactedOrigin
    from clonos.core.scaling.functions import ScalingEvent as ScalingEvent
    from clonos.core.scaling.functions import ScalingOutcome as ScalingOutcome
    from clonos.core.scaling.functions import ScalingSample as ScalingSample
    from clonos.core.scaling.functions import StepLoad as StepLoad
    from clonos.core.values import register as register
    from clonos.expressions.building import coalesce as coalesce
    from clonos.expressions.building import col as col
    from clonos.expressions.building import concat_str as concat_str
    from clonos.expressions.building import lit as lit
    from clonos.expressions.building import max_horizontal as max_horizontal
    from clonos.expressions.building import min_horizontal as min_horizontal
    from clonos.expressions.building import when as when
    from clonos.expressions.expression import Expr as Expr
    from clonos.job import Handle as Handle
    from clonos.job import Job as Job
    from clonos.operators.connector_contract import AbortingSink as AbortingSink
    from clonos.operators.connector_contract import AsideWriter as AsideWriter
    from clonos.operators.connector_contract import CheckingSource as CheckingSource
    from clonos.operators.connector_contract import FinishingSink as FinishingSink
    from clonos.operators.connector_contract import ImmediateSink as ImmediateSink
    from clonos.operators.connector_contract import ImmediateWriter as ImmediateWriter
    from clonos.operators.connector_contract import KeyedSink as KeyedSink
    from clonos.operators.connector_contract import MalformedRecord as MalformedRecord
    from clonos.operators.connector_contract import OrderedSource as OrderedSource
    from clonos.operators.connector_contract import PartlyMalformed as PartlyMalformed
    from clonos.operators.connector_contract import PendingInput as PendingInput
    from clonos.operators.connector_contract import PendingReader as PendingReader
    from clonos.operators.connector_contract import PendingSource as PendingSource
    from clonos.operators.connector_contract import PhasedSource as PhasedSource
    from clonos.operators.connector_contract import ProducerConnection as ProducerConnection
    from clonos.operators.connector_contract import PushSource as PushSource
    from clonos.operators.connector_contract import RefusingSink as RefusingSink
    from clonos.operators.connector_contract import Registration as Registration
    from clonos.operators.connector_contract import RollbackSink as RollbackSink
    from clonos.operators.connector_contract import Source as Source
    from clonos.operators.connector_contract import SplitReader as SplitReader
    from clonos.operators.connector_contract import TimedSource as TimedSource
    from clonos.operators.connector_contract import TransactionalSink as TransactionalSink
    from clonos.operators.connector_contract import TransactionalWriter as TransactionalWriter
    from clonos.operators.connector_contract import TruncatingWriter as TruncatingWriter
    from clonos.operators.connector_contract import WatchedSource as WatchedSource
    from clonos.operators.connector_contract import WriterContext as WriterContext
    from clonos.operators.connector_contract import WriterFenced as WriterFenced
    from clonos.operators.connector_contract import WriterIdentity as WriterIdentity
    from clonos.operators.emission_times import Emission as Emission
    from clonos.operators.event_time.timestamps import TimestampError as TimestampError
    from clonos.operators.event_time.watermark_strategies import PunctuatedWatermarks as PunctuatedWatermarks
    from clonos.operators.event_time.watermark_strategies import WatermarkStrategy as WatermarkStrategy
    from clonos.operators.journal_source import ContinuedSource as ContinuedSource
    from clonos.operators.journal_source import IdentifiedSource as IdentifiedSource
    from clonos.operators.row_errors import RowNotWritable as RowNotWritable
    from clonos.operators.split_source import AcknowledgedSource as AcknowledgedSource
    from clonos.operators.state.state_descriptors import ListState as ListState
    from clonos.operators.state.state_descriptors import MapState as MapState
    from clonos.operators.state.state_descriptors import Value as Value
    from clonos.operators.state.state_descriptors import ValueState as ValueState
    from clonos.operators.steps.awaited_events import Cancel as Cancel
    from clonos.operators.steps.awaited_events import Event as Event
    from clonos.operators.steps.context import Context as Context
    from clonos.operators.steps.two_input_process import TwoInputContext as TwoInputContext
    from clonos.operators.tags import Tag as Tag
    from clonos.operators.transforms.sink_rows import SinkRow as SinkRow
    from clonos.operators.user_errors import RoutedError as RoutedError
    from clonos.operators.windows.triggers import Trigger as Trigger
    from clonos.operators.windows.triggers import TriggerContext as TriggerContext
    from clonos.operators.windows.window_results import Window as Window
    from clonos.operators.windows.window_results import WindowResult as WindowResult
    from clonos.spark import frames as frames
    from clonos_services import ai as ai
    from clonos_services import clock as clock
    from clonos_services import http as http
    from clonos_services import metrics as metrics
    from clonos_services import random as random
    from clonos_services.awaiting import AwaitTimeout as AwaitTimeout
    from clonos_services.awaiting import CallCancelled as CallCancelled
    from clonos_services.awaiting import await_event as await_event
    from clonos_services.identity import uuid4 as uuid4
    from clonos_services.logger import logger as logger
    from clonos_services.service import service as service

__version__ = "0.1.0"

_MODULES = {
    "clonos": ("agg",),
    "clonos_services": ("ai", "clock", "http", "metrics", "random"),
    "clonos.spark": ("frames",),
    "clonos.connectors": (
        "codecs",
        "delta",
        "files",
        "iceberg",
        "kafka",
        "mqtt",
        "nats",
        "postgres",
        "rabbitmq",
        "redis",
        "secrets",
        "sockets",
        "web",
    ),
}
"""Public names that are modules, by the package that they are in."""

_NAMES = {
    "clonos.job": ("Job", "Handle"),
    "clonos.api.keyed_stream": ("KeyedStream",),
    "clonos.api.stream": ("Stream", "ProcessFunction"),
    "clonos.api.joining.connected": ("ConnectedStreams", "TwoInputFunction"),
    "clonos.api.event_time": ("Timestamps",),
    "clonos.api.emission": ("each", "every", "changes", "at_end"),
    "clonos.operators.emission_times": ("Emission",),
    "clonos.operators.event_time.watermark_strategies": ("WatermarkStrategy", "PunctuatedWatermarks"),
    "clonos.operators.event_time.timestamps": ("TimestampError",),
    "clonos.api.transforms.enriching": ("http_lookup",),
    "clonos.api.windowed": ("WindowedStream",),
    "clonos.api.window_step": ("every_event_time", "last_values", "newest_values"),
    "clonos.api.windows": (
        "Tumbling",
        "Sliding",
        "Cumulative",
        "Session",
        "CountTumbling",
        "CountSliding",
        "Global",
        "Range",
    ),
    "clonos.operators.windows.window_results": ("Window", "WindowResult"),
    "clonos.operators.windows.triggers": ("Trigger", "TriggerContext"),
    "clonos.operators.steps.context": ("Context",),
    "clonos.operators.steps.two_input_process": ("TwoInputContext",),
    "clonos.operators.state.state_descriptors": ("ValueState", "ListState", "MapState", "Value"),
    "clonos.operators.steps.awaited_events": ("Event", "Cancel"),
    "clonos.operators.tags": ("Tag",),
    "clonos.operators.user_errors": ("RoutedError",),
    "clonos.core.scaling.functions": ("ScalingSample", "StepLoad", "ScalingEvent", "ScalingOutcome"),
    "clonos.core.ports.redaction": ("RedactedKind", "RedactedOrigin"),
    "clonos.core.values": ("register",),
    "clonos.expressions.building": (
        *("col", "lit", "when", "coalesce", "concat_str", "min_horizontal", "max_horizontal"),
    ),
    "clonos.expressions.expression": ("Expr",),
    "clonos_services.awaiting": ("await_event", "AwaitTimeout", "CallCancelled"),
    "clonos_services.identity": ("uuid4",),
    "clonos_services.service": ("service",),
    "clonos_services.logger": ("logger",),
    "clonos.connectors": ("values", "sqlite", "dbapi", "stdout", "collect", "blackhole"),
    "clonos.connectors.kit.external_system": (
        *("SystemUnreachable", "SystemRefused", "MessageRefused", "MessagesLost"),
        *("NumberLost", "PayloadMalformed"),
    ),
    "clonos.connectors.kit.history": ("HistorySource", "LateCut"),
    "clonos.operators.connector_contract": (
        *(
            "Source",
            "SplitReader",
            "WatchedSource",
            "CheckingSource",
            "OrderedSource",
            "PendingInput",
            "PendingReader",
            "PendingSource",
            "PhasedSource",
            "TimedSource",
        ),
        *("MalformedRecord", "PartlyMalformed", "PushSource", "ProducerConnection"),
        *("TransactionalSink", "RollbackSink", "FinishingSink", "AbortingSink", "TransactionalWriter", "WriterContext"),
        *("ImmediateSink", "KeyedSink", "RefusingSink", "ImmediateWriter", "TruncatingWriter"),
        "AsideWriter",
        *("WriterIdentity", "WriterFenced", "Registration"),
    ),
    "clonos.operators.row_errors": ("RowNotWritable",),
    "clonos.operators.transforms.sink_rows": ("SinkRow",),
    "clonos.operators.journal_source": ("ContinuedSource", "IdentifiedSource"),
    "clonos.operators.split_source": ("AcknowledgedSource",),
    "clonos.core.model.errors": (
        *("ClonosError", "JobError", "PeerError", "EnvironmentFault", "InternalError", "ProducerGivenUp"),
    ),
    "clonos.core.log.call_outcomes": ("CallInDoubt", "CallNeverHappened", "RecordedError"),
}
"""All other public names, by the module that they are in."""

_PACKAGE_OF = {name: package for package, names in _MODULES.items() for name in names}
_MODULE_OF = {name: module for module, names in _NAMES.items() for name in names}

__all__ = sorted((*_PACKAGE_OF, *_MODULE_OF))


def __getattr__(name: str) -> Any:
    if name in _PACKAGE_OF:
        found: Any = import_module(f"{_PACKAGE_OF[name]}.{name}")
    elif name in _MODULE_OF:
        found = getattr(import_module(_MODULE_OF[name]), name)
    elif name.startswith("_"):
        raise AttributeError(f"module 'clonos' has no attribute {name!r}")
    else:
        from clonos.api.checks.missing_methods import package_name_missing

        raise package_name_missing(name, __all__, sys._getframe(1))
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
