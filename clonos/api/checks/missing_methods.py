"""Hints for methods that other libraries have and streams do not: what to write instead."""

from __future__ import annotations

from collections.abc import Iterable
from types import FrameType
from typing import Final

from clonos.core.model.missing_names import NameMissing, attribute_missing, name_missing, nearest

UNKEYED: Final = "It needs a key: call key_by(...) before it."
PROCESS: Final = "process() with state"
ON_KEYED: Final = (
    "Call it before key_by, or on the result of an aggregation (count, reduce, stateful_map, process); the key of each"
    " record stays what key_by makes of it."
)
JOIN: Final = "Use join(other, on=..., how='full', between=...), or connect(other).process(...)."

TIMESTAMPS: Final = "Use job.source(..., timestamps=...), or with_timestamps(...)."

CYCLE: Final = (
    "A stream cannot feed a step before it. Use iterate(function, times_max=...), which repeats a function on a record"
    " in one task."
)

ORDER: Final = (
    "A stream has no end to be sorted at. Use top_k(k, field) after key_by, merge_ordered(other), or sort in windows."
)

WINDOWS: Final = (
    'Use key_by(...).window(Tumbling("10s")), Sliding, Session, or CountTumbling(100) for a number of records.'
)
FRAMES: Final = (
    "Use key_by(...).window(...).map_frames(function), or .last(100).map_frames(function), which gets records of a key"
    " as one frame, or map_batches(function), which gets batches of any keys."
)
NOT_NEEDED: Final = "Leave it out: records flow on and are kept nowhere; several steps may read one stream."
SPARK_ENDS: Final = (
    "End the stream with .sink(...), such as stdout() or files.parquet('out'), and call run() of the job."
)

STREAM_HINTS: Final = {
    **dict.fromkeys(("time_window", "count_window", "window_all", "count_window_all", "timeWindow"), WINDOWS),
    **dict.fromkeys(("cache", "persist", "unpersist", "checkpoint", "compute", "start_new_chain"), NOT_NEEDED),
    **dict.fromkeys(("writeStream", "write_stream", "toDF", "to_csv", "to_parquet", "to_json", "to_sql"), SPARK_ENDS),
    **dict.fromkeys(
        ("repartition", "coalesce", "disable_chaining"),
        "Give the step its parallelism: map(function, parallelism=4); rebalance() deals records to all tasks.",
    ),
    **dict.fromkeys(("returns", "output_type", "astype"), "Leave it out: values keep their Python types."),
    **dict.fromkeys(
        ("fillna", "fill_null", "dropna", "drop_nulls"),
        "Use with_columns(a=col('a').fill_null(0)) and filter(col('a').is_not_null()) over columns, or map and filter.",
    ),
    **dict.fromkeys(
        ("selectExpr", "select_expr", "expr", "query", "sql", "eval"),
        "There is no SQL: use select(col('a') * 2) and filter(col('a') > 1) over columns, or map and filter.",
    ),
    **dict.fromkeys(("key_on", "partition_by"), "Use key_by(...)."),
    **dict.fromkeys(("inspect", "tap", "do"), "Use peek(function)."),
    "flat_map_async": "Use map_async(function) and flat_map(list) after it.",
    **dict.fromkeys(("sort", "sort_by", "sort_values", "order_by", "orderBy"), ORDER),
    **dict.fromkeys(("agg", "mean", "max", "min"), "Write aggregate(total=sum_('field')) with clonos.agg."),
    **dict.fromkeys(("head", "tail", "show", "first"), "Use limit(n), or take(n) to look at the first records."),
    **dict.fromkeys(("unique", "unique_keep"), "Use distinct(key), or deduplicate(key, within='10min')."),
    **dict.fromkeys(
        ("explode", "unnest"), "Use flat_map(lambda record: ...), which gives every item of what it returns."
    ),
    **dict.fromkeys(("assign", "withColumn", "with_column"), "Use with_columns(name=col('field') * 2)."),
    **dict.fromkeys(("group_by_dynamic", "resample"), "Use key_by(...).window(Tumbling('10s')) or Sliding."),
    **dict.fromkeys(
        ("rolling", "over"),
        "Use key_by(...).window(Range('10min')), or key_by(...).last(100), for a window per record.",
    ),
    **dict.fromkeys(("shift", "diff", "pct_change", "lag", "lead"), "Use key_by(...).lag() or lead(), and map(...)."),
    **dict.fromkeys(
        ("to_pandas", "to_polars", "to_arrow", "pipe", "map_partitions", "mapInPandas"),
        "Use map_batches(function): it gets each batch as the frame that its parameter is annotated with.",
    ),
    **dict.fromkeys(("map_frames", "applyInPandas", "apply_in_pandas", "map_groups"), FRAMES),
    **dict.fromkeys(("close_with", "feedback", "loop", "iterate_with", "cycle"), CYCLE),
    "co_group": JOIN,
    "join_asof": "Use join_as_of(other, on=...).",
    **dict.fromkeys(("lookup_join", "async_lookup"), "Use enrich(address_or_function, ...), or lookup(table, on=...)."),
    "interval_join": "Use join(other, on=..., between=('-1h', '1h')).",
    "merge": "Use union(other).",
    "concat": "Use union(other).",
    "count": f"{UNKEYED} key_by(lambda record: None) has a single key.",
    "reduce": UNKEYED,
    "sum": "Write aggregate(total=sum_('field')) with clonos.agg (per key after key_by), or window(...).sum().",
    **dict.fromkeys(("stateful_map", "stateful_map_async"), UNKEYED),
    "group_by": "Use key_by(...).",
    "groupby": "Use key_by(...).",
    "groupBy": "Use key_by(...).",
    "keyBy": "Use key_by(...).",
    **dict.fromkeys(("flatMap", "flatMapValues", "flat_map_value", "flat_map_values"), "Use flat_map(...)."),
    **dict.fromkeys(("mapValues", "map_values", "map_value"), "Use map(...), whose function gets the whole record."),
    **dict.fromkeys(("selectKey", "select_key", "groupByKey", "group_by_key", "toTable"), "Use key_by(...)."),
    **dict.fromkeys(("to", "through", "output"), "End the stream with .sink(...), such as kafka.sink(...)."),
    **dict.fromkeys(("windowedBy", "windowed_by", "collect_window", "fold_window"), WINDOWS),
    **dict.fromkeys(("transform", "transformValues", "stateful", "process_values"), "Use process(Class)."),
    **dict.fromkeys(("filterNot", "filter_not"), "Use filter(lambda record: not ...)."),
    "filter_map": "Use flat_map(function) with a function that returns [result] or [].",
    "apply": "Use map(...), or process(...) for state and timers.",
    "select": "Use map(...).",
    "where": "Use filter(...).",
    "foreach": "Use map(function, effects=True) and end the stream with .sink(blackhole()).",
    "for_each": "Use map(function, effects=True) and end the stream with .sink(blackhole()).",
    "print": "Use .sink(stdout()).",
    "collect": "Use .sink(rows) with rows = collect(), and read rows.rows when the job has ended.",
    "to_list": "Use .sink(rows) with rows = collect(), and read rows.rows when the job has ended.",
    "add_sink": "Use sink(...).",
    "sink_to": "Use sink(...).",
    "write": "Use .sink(files.jsonl('out')) or another sink.",
    "name": "Give the step its name where it is added: map(function, name='parse').",
    "uid": "Give the step its name where it is added: map(function, name='parse').",
    "par": "Give the step itself par=: map(function, par=4), filter or flat_map.",
    "set_parallelism": "Give the step its parallelism where it is added: map(function, parallelism=4).",
    "execute": "Call run() of the job.",
    "run": "Call run() of the job.",
    **dict.fromkeys(("assign_timestamps_and_watermarks", "with_watermark", "withWatermark"), TIMESTAMPS),
    **dict.fromkeys(("drop_duplicates", "dropDuplicates"), "Use distinct(key), or deduplicate(key, within='10min')."),
    **dict.fromkeys(("get_side_output", "getSideOutput"), "Use side_output(tag)."),
    **dict.fromkeys(("foreachBatch", "for_each_batch", "foreach_batch"), "End the stream with .sink(...) of a table."),
}

KEYED_HINTS: Final = {
    **STREAM_HINTS,
    "merge_ordered": "Call it on the stream before key_by.",
    **dict.fromkeys(
        ("map", "filter", "flat_map", "enrich", "enrich_batch", "map_batches", "rebalance", "broadcast"),
        ON_KEYED,
    ),
    "map_async": f"Use stateful_map_async(function), whose calls have the state of the key. {ON_KEYED}",
    **dict.fromkeys(("select", "with_columns", "drop", "rename"), ON_KEYED),
    **dict.fromkeys(
        ("sample", "peek", "branch", "split", "limit", "iterate", "rescale", "shuffle", "global_"), ON_KEYED
    ),
    "partition_custom": ON_KEYED,
    "key_by": "This stream is keyed already. Call key_by on the stream before it, or on the result of an aggregation.",
    "sum": "Write .aggregate(total=sum_('field')) with clonos.agg, or .window(Tumbling('5s')).sum().",
    "max": "Use reduce(max), or .aggregate(highest=max_('field')) with clonos.agg.",
    "min": "Use reduce(min), or .aggregate(lowest=min_('field')) with clonos.agg.",
    "mean": "Write .aggregate(average=mean('field')) with clonos.agg.",
    "agg": "Write .aggregate(total=sum_('field')) with clonos.agg.",
}

WINDOWED_HINTS: Final = {
    **dict.fromkeys(("trigger", "evictor"), "Give it to the window: window(Tumbling('10s'), trigger=each(5))."),
    **dict.fromkeys(
        ("allowed_lateness", "side_output_late_data"),
        "Give it to the window: window(Tumbling('10s'), lateness='1min', late=Tag('late')).",
    ),
    **dict.fromkeys(("applyInPandas", "apply_in_pandas", "map_groups", "map_batches"), "Use map_frames(function)."),
    "take": "Aggregate the windows first: .count().take(5).",
    **dict.fromkeys(
        ("map", "filter", "flat_map", "sink", "process", "key_by"),
        "Aggregate the windows first: count(), sum(), reduce(...) or aggregate(create, add); its result is a stream.",
    ),
    "max": "Use reduce(max).",
    "min": "Use reduce(min).",
    **{
        name: f"Use aggregate({name}={name}('field')) with clonos.agg."
        for name in ("mean", "stddev", "variance", "first", "last", "collect", "distinct", "approx_distinct")
    },
    "quantile": "Use aggregate(quantile=quantile('field', 0.95)) with clonos.agg.",
    "top_k": "Use aggregate(top=top_k(3, by='field')) with clonos.agg.",
    "bottom_k": "Use aggregate(bottom=bottom_k(3, by='field')) with clonos.agg.",
    "count_if": "Use aggregate(n=count_if(predicate)) with clonos.agg.",
}

JOB_HINTS: Final = {
    **dict.fromkeys(
        ("map", "filter", "flat_map", "key_by", "process", "sink"), "Begin with job.source(...), which is a stream."
    ),
    "execute": "Use run().",
    "submit": "Use start().",
    "from_source": "Use source(...).",
    "add_source": "Use source(...).",
    "from_collection": "Use source(values([...])).",
    "read_text": "Use source(files.lines('in/*.txt')).",
    **dict.fromkeys(
        ("from_elements", "from_list", "from_iterable", "parallelize", "createDataFrame", "create_data_frame"),
        "Use source(values([...])).",
    ),
    **dict.fromkeys(("read_csv", "read", "readStream", "read_stream", "load"), "Use source(files.csv('in/*.csv'))."),
    **dict.fromkeys(("input", "add", "stream", "add_stream", "from_topic"), "Use source(...), which returns a stream."),
    **dict.fromkeys(("output", "add_sink", "print"), "A stream ends with .sink(...), such as .sink(stdout())."),
    **dict.fromkeys(
        ("set_parallelism", "enable_checkpointing", "option", "config", "set_option"),
        "Give Job the option: Job('name', parallelism=4, checkpoint_every='5s').",
    ),
}

CONNECTED_HINTS: Final = dict.fromkeys(
    ("map", "flat_map", "filter", "key_by", "sink"),
    "Use process(Class) with process_first and process_second; union(other) makes one stream of two.",
)

HINTS: Final = {
    "Stream": STREAM_HINTS,
    "KeyedStream": KEYED_HINTS,
    "WindowedStream": WINDOWED_HINTS,
    "Job": JOB_HINTS,
    "ConnectedStreams": CONNECTED_HINTS,
}

PACKAGE_HINTS: Final = {
    "SessionWindow": 'Use Session(gap="10min").',
    "Hopping": 'Use Sliding("10min", every="1min").',
    "HoppingWindow": 'Use Sliding("10min", every="1min").',
    **dict.fromkeys(("Cumulate", "CumulateWindow", "CumulatingWindow"), 'Use Cumulative("1d", every="1h").'),
    "EventTime": "Windows follow event time on a stream with timestamps: job.source(..., timestamps=...).",
    **dict.fromkeys(
        ("TumblingEventTimeWindows", "TumblingProcessingTimeWindows", "TumblingWindow", "TumblingWindower"),
        'Use Tumbling("10s"); it follows event time on a stream with timestamps, or time="processing".',
    ),
    **dict.fromkeys(
        ("SlidingEventTimeWindows", "SlidingProcessingTimeWindows", "SlidingWindow", "SlidingWindower"),
        'Use Sliding("10min", every="1min").',
    ),
    **dict.fromkeys(("EventTimeSessionWindows", "SessionWindower", "SessionWindows"), 'Use Session("10min").'),
    **dict.fromkeys(("OutputTag", "SideOutput"), 'Use Tag("late").'),
    **dict.fromkeys(
        ("KeyedProcessFunction", "CoProcessFunction", "StatefulLogic"),
        "Write a class with process(self, value, context); it needs no base.",
    ),
    **dict.fromkeys(("ValueStateDescriptor", "StateDescriptor"), 'Use ValueState("name", default=0).'),
    "ListStateDescriptor": 'Use ListState[int]("name").',
    "MapStateDescriptor": 'Use MapState[str, int]("name").',
    **dict.fromkeys(
        ("CountTrigger", "ProcessingTimeTrigger"), "Give the window trigger=each(100), or trigger=every('10s')."
    ),
    **dict.fromkeys(("operators", "op"), "The steps are methods of the stream: job.source(...).map(function)."),
    **dict.fromkeys(("Dataflow", "SparkSession", "StreamingContext", "App", "Application"), 'Use Job("name").'),
    **dict.fromkeys(
        ("sum", "sum_", "mean", "count", "quantile", "first", "last", "max_", "min_", "top_k"),
        "It is in clonos.agg: from clonos import agg.",
    ),
    "Stdout": "Use stdout().",
    "Pipeline": "Use Job.",
    "StreamExecutionEnvironment": "Use Job.",
}


def method_missing(owner: type, attribute: str) -> AttributeError:
    """Returns the error for an attribute that objects of ``owner`` do not have."""
    return attribute_missing(owner, attribute, HINTS.get(owner.__name__, {}))


def package_name_missing(name: str, public: Iterable[str], frame: FrameType) -> AttributeError | NameMissing:
    """Returns the error for a name that the package does not have. ``frame`` asks for it."""
    return name_missing("clonos", name, PACKAGE_HINTS.get(name) or nearest(name, public), frame)
