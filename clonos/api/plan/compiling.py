"""Compiler from the logical graph of a job to its physical plan.

Steps are fused into one vertex along forward exchanges of equal parallelism; a vertex is a tree of steps, each leaf of
which feeds edges or a sink. A new vertex begins at a key, a rebalance, a broadcast, a change of parallelism, several
inputs, a second sink beside an immediate one (a vertex writes to one external system), and where steps that may have a
hot standby meet steps that may not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from clonos.api.checks.code.code_check import look_at_functions, suspects_of, warn_of_code
from clonos.api.checks.flush_checks import check_flush_interval
from clonos.api.checks.hot_standby_rules import is_hot
from clonos.api.checks.keyed_sinks import check_folders, check_keyed, check_names, check_single_file, refuse_key
from clonos.api.columns.column_checks import check_joined_keys
from clonos.api.columns.described_columns import described, givers, maker_of, planned_sources, stored_columns
from clonos.api.columns.forms import needs_columns
from clonos.api.columns.narrowing import ReadColumns, narrowed_sources, read_after
from clonos.api.columns.schemas import check_timestamps_remain, known_input, known_schema
from clonos.api.graph_errors import ColumnsAwaited, ColumnsNeeded, InvalidJob
from clonos.api.key_by import KeyBy, fields_text
from clonos.api.plan.fusion import join_of_same_key, reason_to_begin
from clonos.api.plan.order import describe_order, ordered_sources
from clonos.api.plan.source_splits import splits_of, splits_or_reasons
from clonos.api.plan.step_texts import reason_for_rows
from clonos.api.plan.vertices import (
    PlannedNode,
    PlannedVertex,
    has_event_time,
    outputs_of,
    preparations,
    why_fixed,
)
from clonos.api.step import AnySink, Exchange, Step, StepInput
from clonos.api.step_graph import ERRORS_STEP, StepGraph
from clonos.core.model.options import Options
from clonos.core.model.plan import ANYWHERE, Edge, Partitioning, Plan, StatefulStep, Vertex
from clonos.core.model.suspect import NO_SUSPECTS, Suspect
from clonos.operators.chain import Input, InputShape
from clonos.operators.chain_outputs import (
    CombinedSinks,
    ToColumnKeys,
    ToEdge,
    ToImmediateSink,
    ToKeyedEdge,
    ToKeys,
    ToSink,
    WithKeys,
    error_output,
    is_identity,
    routes_refused,
)
from clonos.operators.column_contract import PlannedSource, gives_columns, writes_columns
from clonos.operators.columnar.joins.join_form import JoinForm
from clonos.operators.connector_contract import PushSource, TimedSource, TransactionalSink, discovery_interval_ns
from clonos.operators.event_time.timed_source import TimedHead
from clonos.operators.event_time.timestamp_assigner import TimestampAssigner
from clonos.operators.event_time.timestamps import TimestampColumn
from clonos.operators.facts import class_of
from clonos.operators.job_image import JobImage
from clonos.operators.journal_source import JournalHead
from clonos.operators.operator import InputSide, Operator
from clonos.operators.split_source import AcknowledgedSource, SourceHead
from clonos.operators.transforms.sink_rows import takes_keys_and_times

PARTITIONINGS = {
    Exchange.FORWARD: Partitioning.FORWARD,
    Exchange.HASH: Partitioning.HASH,
    Exchange.REBALANCE: Partitioning.REBALANCE,
    Exchange.BROADCAST: Partitioning.BROADCAST,
    **dict.fromkeys((Exchange.RESCALE, Exchange.SHUFFLE, Exchange.GLOBAL, Exchange.CUSTOM), Partitioning.HASH),
}


KeyOutput = tuple[list[int], list[ReadColumns], list[str], list[bool]]
"""Ports of a node that partitions by key, what is read after each, the steps that keys are sampled for, and whether
each port gets keys alone."""


def compile_graph(
    graph: StepGraph, options: Options, parallelism: int, splits: Mapping[str, Sequence[bytes] | None] | None
) -> JobImage:
    """Compiles the graph: see ``JobGraph.compile``."""
    graph = graph.intercepting(options.intercept)
    ordered = ordered_sources(graph.steps)
    found = splits_of(graph, ordered, partial(parallelism_of_source, parallelism), splits)
    looked = [*look_at_functions(graph)]
    image = _Compiler(described(graph, found), options, parallelism, found, suspects_of(looked)).image()
    warn_of_code(looked)
    return image


class Compilation(NamedTuple):
    """Result of a compilation, with what a user should know of it.

    - ``graph``: that of the job, whose sources are described.
    - ``vertex_of``: number of the vertex of each step. ``begins``: why each vertex begins where it does.
    - ``inputs``: the input of a step that each edge serves, by number of the edge.
    - ``unlisted``: reasons for which sources cannot list their splits now, by name of the step.
    """

    graph: StepGraph
    image: JobImage
    vertex_of: tuple[int, ...]
    begins: tuple[str, ...]
    inputs: Mapping[int, StepInput]
    unlisted: Mapping[str, str]


def compile_to_explain(graph: StepGraph, options: Options, parallelism: int) -> Compilation:
    """Compiles the graph for ``explain``: the input need not exist yet.

    Raises: InvalidJob, ColumnsNeeded: the job is not well-formed.
    """
    ordered = ordered_sources(graph.steps)
    splits, unlisted = splits_or_reasons(graph, ordered, partial(parallelism_of_source, parallelism))
    graph = described(graph, splits)
    compiler = _Compiler(graph, options, parallelism, splits)
    image = compiler.image()
    return Compilation(graph, image, *compiler.places(), compiler.inputs, unlisted)


def parallelism_of_source(parallelism: int, step: Step) -> int:
    """Returns the parallelism of a source, which is that of the job unless it has one of its own."""
    return step.parallelism or parallelism


class _Compiler:
    def __init__(
        self,
        graph: StepGraph,
        options: Options,
        parallelism: int,
        splits: dict[str, tuple[bytes, ...]],
        suspects: Mapping[str, tuple[Suspect, ...]] = NO_SUSPECTS,
    ) -> None:
        self._graph = graph
        self._options = options
        self._parallelism = parallelism
        self._ordered = ordered_sources(graph.steps)
        self._read = self._ordered | narrowed_sources(graph.steps, self._ordered)
        self._planned = planned_sources(graph.steps)
        self._splits = splits
        self._suspects = suspects
        self.inputs: dict[int, StepInput] = {}  # by number of the edge
        self._vertices: list[PlannedVertex] = []
        self._edges: list[Edge] = []
        self._vertex_of: list[PlannedVertex] = []  # by number of the step
        self._node_of: list[int] = []  # by number of the step: its node in its vertex
        self._key_outputs: dict[tuple[int, int, str, int], KeyOutput] = {}
        """By vertex, node, tag and id of ``KeyBy``."""
        self._fitted_nodes: dict[tuple[int, int], tuple[int, list[str]]] = {}
        """Nodes of ``Fitting``, and the columns that they need, by vertex and node in front of them."""

    def image(self) -> JobImage:
        sinks_of_steps = [(step.name, step.sink) for step in self._graph.steps]
        check_folders([*sinks_of_steps, (ERRORS_STEP, self._graph.errors)])
        for step in self._graph.steps:
            self._check(step)
            self._add_step(step)
        self._add_errors()
        names = self._names()
        images = tuple(vertex.image(name, self._suspects) for name, vertex in zip(names, self._vertices, strict=True))
        vertices = tuple(
            Vertex(
                name,
                vertex.parallelism,
                is_source=any(step.source is not None for step in vertex.steps),
                has_effects=vertex.immediate_sink is not None or any(step.has_effects for step in vertex.steps),
                is_transactional=bool(vertex.sinks),
                is_journalled=vertex.pushed is not None,
                is_acknowledged=vertex.acknowledged is not None,
                reads_columns=any(step.source is not None and step.emits_columns for step in vertex.steps),
                is_watching=any(discovery_interval_ns(step.source) > 0 for step in vertex.steps),
                is_timed=any(self._timed(step) is not None for step in vertex.steps),
                becomes_idle=any(t.idle_after_ns for step in vertex.steps if (t := self._timed(step)) is not None),
                is_hot=vertex.is_hot,
                has_calls=any(step.has_calls for step in vertex.steps),
                logs_calls=any(step.logs_calls for step in vertex.steps),
                steps=tuple(_stateful(step, self._graph.steps) for step in vertex.steps if step.state is not None),
                outputs=outputs_of(vertex, self._graph.errors),
                rule=next((step.rule for step in vertex.steps if step.rule != ANYWHERE), ANYWHERE),
                declared=vertex.parallelism,
                fixed=why_fixed(vertex, image.declared_state()),
            )
            for name, vertex, image in zip(names, self._vertices, images, strict=True)
        )
        plan = Plan(
            self._graph.name,
            vertices,
            tuple(self._edges),
            self._options.max_parallelism,
            self._options.sharing_depth,
            self._options.replicas,
        )
        sinks = {vertex.number: sink for vertex in self._vertices if (sink := _sink_of(vertex)) is not None}
        pushed = {vertex.number: vertex.pushed for vertex in self._vertices if vertex.pushed is not None}
        acknowledged = {vertex.number: found for vertex in self._vertices if (found := vertex.acknowledged) is not None}
        order = describe_order(self._graph.steps, self._ordered, self._splits, self._parallelism_of)
        return JobImage(
            *(plan, images, sinks, self._options, self._splits),
            pushed=pushed,
            acknowledged=acknowledged,
            has_columns=any(step.emits_columns for step in self._graph.steps),
            order=order,
            acting=tuple(step.name for step in self._graph.steps if step.has_effects),
        )

    def places(self) -> tuple[tuple[int, ...], tuple[str, ...]]:
        """Returns the vertex of each step, and why each vertex begins."""
        return tuple(vertex.number for vertex in self._vertex_of), tuple(vertex.begins for vertex in self._vertices)

    # --- steps

    def _check(self, step: Step) -> None:
        if self._parallelism_of(step) > self._options.max_parallelism:
            raise InvalidJob(
                step.name,
                f"has {self._parallelism_of(step)} tasks, but max_parallelism is {self._options.max_parallelism}",
                "Lower parallelism, or raise max_parallelism before the first start of the job.",
            )
        if isinstance(step.source, PushSource) and not self._options.keepers:
            raise InvalidJob(
                step.name,
                "reads a source that cannot be replayed, and keepers is 0: a failure would lose what it has read",
                "Set keepers to 1 or more, or read from files.",
            )
        check_keyed(step, self._graph.steps, self._parallelism_of)
        check_single_file(step.name, step.sink, self._graph.steps)
        check_names(step, self._graph.steps)
        check_flush_interval(step, self._graph.steps, self._options.checkpoint_every_ms)
        check_timestamps_remain(step, self._graph.steps)
        if isinstance(step.form, JoinForm):
            check_joined_keys(self._graph, step.name, step.sides, step.form.keys)
        for each in step.inputs:
            reason = reason_for_rows(each, self._graph.steps)
            if needs_columns(self._graph.steps, step, each, reason) and not self._is_empty(each):
                upstream = self._graph.steps[each.step].name
                if interval_ns := self._awaited_ns(each):
                    raise ColumnsAwaited(step.name, upstream, reason, interval_ns)
                raise ColumnsNeeded(step.name, upstream, reason)

    def _awaited_ns(self, step_input: StepInput) -> int:
        """Returns how often a watched source in front of an input looks for its first records; 0 if none waits."""
        step = self._graph.steps[step_input.step]
        if step.source is None:
            return max(map(self._awaited_ns, step.inputs))
        is_known = bool(self._splits.get(step.name)) or step.columns is not None
        return 0 if is_known or not step.emits_columns else discovery_interval_ns(step.source)

    def _is_empty(self, step_input: StepInput) -> bool:
        """Returns whether an input never gives a record: its sources have none, such as files with headers alone."""
        step = self._graph.steps[step_input.step]
        if step.source is None:
            return all(map(self._is_empty, step.inputs))
        is_read = bool(self._splits.get(step.name)) or isinstance(step.source, PushSource)
        return not is_read and not discovery_interval_ns(step.source)

    def _add_step(self, step: Step) -> None:
        upstream = self._vertex_of[step.inputs[0].step] if step.inputs else None
        join = join_of_same_key(step, self._graph.steps)
        is_in_place = join is not None and self._vertex_of[join.number] is upstream
        reason = reason_to_begin(step, self._parallelism_of(step), upstream, self._options.standby, is_in_place)
        is_head = upstream is None or reason != ""
        vertex = self._new_vertex(self._parallelism_of(step), reason) if upstream is None or reason else upstream
        parent = None if is_head else self._node_of[step.inputs[0].step]
        head = len(vertex.nodes)
        aligned = is_head or (not is_in_place and self._is_one_to_one(vertex, step.inputs[0]))
        column = self._timestamp_column(step.inputs[0]) if step.inputs else None
        column_before = column if takes_keys_and_times(step.sink) else None
        fitting = () if not step.inputs or (is_head and step.inputs[0].key) else self._fittings(step)
        for make_prepared in (*fitting, *preparations(step, self._graph.steps, is_head)):
            parent = vertex.add(PlannedNode(step.name, make_prepared, aligned, column_before), parent)
        make = self._operator_factory(step, vertex)
        node = PlannedNode(step.name, make, aligned and not step.requires_columns and step.second_from is None, column)
        node.intercepts = bool(step.intercepts) and step.runs_user_code
        if step.second_from is not None:
            first, second = (
                vertex.add(
                    PlannedNode(
                        step.name, partial(InputSide, index == 0), True, self._timestamp_column(step.inputs[index])
                    ),
                    None,
                )
                for index in (0, step.second_from)
            )
            number = vertex.add(node, first)
            vertex.nodes[second].children.append(number)
        else:
            number = vertex.add(node, parent, "" if is_head else step.inputs[0].tag)
        vertex.steps.append(step)
        vertex.names.append((step.name, step.is_named and step.sink is None and step.flush is None))
        routes = getattr(step.source, "routes_malformed", False) or routes_refused(step.sink)
        # A record of columns may be none that Python can hold.
        makes_rows = gives_columns(step.source) or any(map(self._graph.gives_columns, step.inputs))
        vertex.runs_user_code |= step.runs_user_code or step.assigner is not None or routes or makes_rows
        vertex.is_hot |= is_hot(step, self._options.standby)
        self._vertex_of.append(vertex)
        self._node_of.append(number)
        if is_head:
            vertex.inputs = [
                Input(head + place, *self._connect(step_input, vertex, step, place))
                for place, side in enumerate(step.sides)
                for step_input in side
            ]

    def _new_vertex(self, parallelism: int, begins: str) -> PlannedVertex:
        vertex = PlannedVertex(len(self._vertices), parallelism, begins)
        self._vertices.append(vertex)
        return vertex

    def _is_one_to_one(self, vertex: PlannedVertex, step_input: StepInput) -> bool:
        number = step_input.step
        is_aligned = vertex.nodes[self._node_of[number]].is_aligned
        return is_aligned and self._graph.steps[number].is_one_to_one and not step_input.tag

    def _operator_factory(self, step: Step, vertex: PlannedVertex) -> Callable[[], Operator]:
        if isinstance(step.source, PushSource):
            vertex.pushed = step.source
            vertex.acknowledged = (step.name, step.source) if isinstance(step.source, AcknowledgedSource) else None
            return partial(JournalHead, step.name, step.source)
        if step.source is not None:
            source = self._read.get(step.number, step.source)
            if step.number in self._planned and isinstance(source, PlannedSource):
                source = source.planned(step.columns)
            vertex.acknowledged = (step.name, source) if isinstance(source, AcknowledgedSource) else None
            arguments = step.name, source, self._splits[step.name], step.emits_columns
            if self._timed(step) is not None:
                return partial(TimedHead, *arguments, step.assigner)
            return partial(SourceHead, *arguments)
        if step.sink is not None:
            return self._sink_factory(step.sink, vertex, self._graph.steps[step.inputs[0].step].name)
        make = maker_of(step, self._graph.steps)
        assert make is not None, "a step is a source, a sink, or makes an operator"
        return make

    def _timed(self, step: Step) -> TimestampAssigner | TimedSource | None:
        """Returns the maker of a source's watermarks, None if there is none."""
        source = self._ordered.get(step.number, step.source)
        if source is None or isinstance(source, PushSource):
            return None
        return step.assigner or (source if isinstance(source, TimedSource) else None)

    def _sink_factory(self, sink: AnySink, vertex: PlannedVertex, upstream: str) -> Callable[[], Operator]:
        if isinstance(sink, TransactionalSink):
            vertex.sinks.append(sink)
            # The list grows with each further sink of the vertex.
            return partial(ToSink, sink, len(vertex.sinks) - 1, vertex.sinks)
        vertex.immediate_sink = sink
        port = vertex.allocate_port()
        self._edges.append(Edge(vertex.number, None, Partitioning.EXTERNAL, port, upstream))
        return partial(ToImmediateSink, port, writes_columns(sink), sink)

    # --- edges

    def _connect(
        self, step_input: StepInput, target: PlannedVertex, reader: Step, place: int
    ) -> tuple[InputShape, tuple[str, ...]]:
        """Adds the edge to the vertex that reads a step, at a ``place`` among its sides.

        Returns the shape of its batches and the key columns.
        """
        vertex = self._vertex_of[step_input.step]
        port = vertex.allocate_port()
        partitioning = PARTITIONINGS[step_input.exchange]
        if partitioning is Partitioning.FORWARD and vertex.parallelism != target.parallelism:
            partitioning = Partitioning.REBALANCE
        name, is_timed = (giver := self._graph.steps[step_input.step]).name, has_event_time(giver, reader)
        self._edges.append(Edge(vertex.number, target.number, partitioning, port, name, is_timed))
        self.inputs[len(self._edges) - 1] = step_input
        if step_input.key is not None:
            return self._connect_by_key(step_input, step_input.key, vertex, port, reader, place)
        output: Callable[[], Operator] = partial(ToEdge, port, bool(getattr(reader.sink, "is_columnar", False)))
        if step_input.route is not None:
            output = step_input.route.output(port)
            vertex.runs_user_code |= class_of(step_input.route.make).runs_user_code
            name = step_input.route.name
        node = PlannedNode(name, output, False, self._timestamp_column(step_input))
        vertex.add(node, self._node_of[step_input.step], step_input.tag)
        return InputShape.PLAIN, ()

    def _timestamp_column(self, step_input: StepInput) -> TimestampColumn | None:
        return None if step_input.tag else self._graph.steps[step_input.step].timestamp_column

    def _connect_by_key(
        self, step_input: StepInput, key_by: KeyBy, vertex: PlannedVertex, port: int, reader: Step, place: int
    ) -> tuple[InputShape, tuple[str, ...]]:
        key, columns = key_by.key, key_by.fields
        by_column = bool(columns) and self._graph.gives_columns(step_input)
        has_keys_alone = reader.reads == () or (callable(key) and is_identity(key))
        parent, tag = self._node_of[step_input.step], step_input.tag
        if stored := stored_columns(reader, self._graph.steps):
            parent = self._fitted(vertex, parent, step_input, stored[place].names)
        make_partial = (
            reader.form.before_exchange(reader.name) if by_column and stored and reader.form is not None else None
        )
        if make_partial is not None:
            node = PlannedNode(f"{reader.name}.partial", make_partial, False, self._timestamp_column(step_input))
            parent, tag = vertex.add(node, parent, tag), ""
        if make_partial is None and reader.splits is not None:
            self._connect_in_parts(step_input, key_by, vertex, port, reader)
            return InputShape.PAIRS, ()
        key_output = self._key_outputs.get((vertex.number, parent, tag, id(key_by)))
        read = read_after(reader, columns, self._timestamp_column(step_input))
        sampled = [reader.name] if callable(key) and reader.state is not None else []
        if key_output is not None:
            key_output[0].append(port)
            key_output[1].append(read)
            key_output[2].extend(sampled)
            key_output[3].append(has_keys_alone)
        else:
            # These and the steps that are sampled for grow with each further edge that has the same key.
            ports, reads, alone = [port], [read], [has_keys_alone]
            make: Callable[[], Operator] = partial(ToKeys, ports, key, alone, sampled)
            if by_column:
                make = partial(ToColumnKeys, ports, columns, reads)
            aligned = self._is_one_to_one(vertex, step_input) and not by_column
            node = PlannedNode(key_by.name, make, aligned, self._timestamp_column(step_input))
            vertex.add(node, parent, tag)
            self._key_outputs[vertex.number, parent, tag, id(key_by)] = ports, reads, sampled, alone
            vertex.names.append((key_by.name, key_by.is_named))
            vertex.runs_user_code = True
        if by_column:
            return InputShape.COLUMNS, columns
        return (InputShape.KEYS if has_keys_alone else InputShape.PAIRS), ()

    def _connect_in_parts(
        self, step_input: StepInput, key_by: KeyBy, vertex: PlannedVertex, port: int, reader: Step
    ) -> None:
        """Adds the nodes of an exchange by key of rows of which partial aggregates are made in front of it."""
        assert reader.splits is not None, "the records of a step that is not split leave as they are"
        sampled = [reader.name] if callable(key_by.key) else []
        aligned = self._is_one_to_one(vertex, step_input)
        column = self._timestamp_column(step_input)
        keys = PlannedNode(key_by.name, partial(WithKeys, key_by.key, sampled), aligned, column)
        parent = vertex.add(keys, self._node_of[step_input.step], step_input.tag)
        parent = vertex.add(PlannedNode(reader.name, reader.splits, False), parent)
        vertex.add(PlannedNode(key_by.name, partial(ToKeyedEdge, port), False), parent)
        vertex.names.append((key_by.name, key_by.is_named))
        vertex.runs_user_code = True

    def _fittings(self, step: Step) -> Iterator[Callable[[], Operator]]:
        """Yields what makes the operator in front of a step over columns that has no exchange by key before it."""
        for columns in stored_columns(step, self._graph.steps):
            from clonos.operators.columnar.fitting import Fitting  # loads pyarrow

            schema = known_input(self._graph.steps, step)  # None: the streams of a union have other columns, too
            yield partial(Fitting, columns if schema is None else schema, columns.names)

    def _fitted(self, vertex: PlannedVertex, parent: int, step_input: StepInput, needed: Sequence[str]) -> int:
        """Returns the node behind which results have the columns of the plan, for a reader that needs some of them."""
        node, all_needed = self._fitted_nodes.get((vertex.number, parent)) or (None, [])
        all_needed.extend(name for name in needed if name not in all_needed)
        if node is None:
            from clonos.operators.columnar.fitting import Fitting  # loads pyarrow

            make = partial(Fitting, known_schema(self._graph.steps, step_input), all_needed)
            first, *others = givers(self._graph.steps, step_input)
            name = (self._graph.steps[step_input.step] if others else first).name
            node = vertex.add(PlannedNode(name, make, False, self._timestamp_column(step_input)), parent)
            self._fitted_nodes[vertex.number, parent] = node, all_needed
        return node

    def _add_errors(self) -> None:
        """Adds the vertex of the job's error output, with an edge from every vertex that runs user code."""
        sink = self._graph.errors
        upstreams = [vertex for vertex in self._vertices if vertex.runs_user_code]
        if sink is None or not upstreams:
            return
        refuse_key(ERRORS_STEP, sink)
        check_single_file(ERRORS_STEP, sink, self._graph.steps)
        errors = self._new_vertex(1, "it is the error output of the job")
        errors.names.append((ERRORS_STEP, True))
        make = partial(error_output, self._sink_factory(sink, errors, ERRORS_STEP))
        number = errors.add(PlannedNode(ERRORS_STEP, make, False), None)
        for upstream in upstreams:
            port = upstream.error_port = upstream.allocate_port()
            self._edges.append(Edge(upstream.number, errors.number, Partitioning.REBALANCE, port, ERRORS_STEP))
            errors.inputs.append(Input(number))

    # --- numbers and names

    def _parallelism_of(self, step: Step) -> int:
        if step.parallelism is not None:
            return step.parallelism
        if step.sink is not None:
            parallelisms = {self._vertex_of[each.step].parallelism for each in step.inputs}
            if len(parallelisms) == 1:
                return parallelisms.pop()
        return self._parallelism

    def _names(self) -> list[str]:
        names: list[str] = []
        for vertex in self._vertices:
            name = base = vertex.name
            number = 1
            while name in names:
                number += 1
                name = f"{base}-{number}"
            names.append(name)
        return names


def _stateful(step: Step, steps: Sequence[Step]) -> StatefulStep:
    """Describes a step with state: what stored state has to fit."""
    keys = dict.fromkeys(_key_text(each.key) for each in step.inputs if each.key is not None)
    properties = (("key", " and ".join(keys)),) if keys else ()
    if step.form is not None:
        sides = stored_columns(step, steps)
        texts = [", ".join(f"{field.name}: {field.type}" for field in side) for side in sides]
        properties = (*properties, ("state of", " and ".join(texts) or "rows"))
    return StatefulStep(step.name, step.kind.replace("_", " "), (*properties, *(step.state or ())))


def _key_text(key_by: KeyBy) -> str:
    return fields_text(key_by.fields) if key_by.fields else "a function"


def _sink_of(vertex: PlannedVertex) -> AnySink | None:
    if vertex.immediate_sink is not None:
        return vertex.immediate_sink
    if len(vertex.sinks) == 1:
        return vertex.sinks[0]
    return CombinedSinks(tuple(vertex.sinks)) if vertex.sinks else None
