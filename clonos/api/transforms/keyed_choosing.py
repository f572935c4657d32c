"""Methods of a keyed stream that choose among the records of each key: duplicates and the top k."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar, Unpack, overload

from clonos.api.checks.function_checks import COMPUTE_FIRST
from clonos.api.columns.column_checks import check_present
from clonos.api.columns.forms import refuse_columns
from clonos.api.columns.key_columns import key_columns
from clonos.api.columns.row_reasons import name_reason
from clonos.api.columns.schemas import known_schema
from clonos.api.common import Common
from clonos.api.graph_errors import InvalidJob
from clonos.api.themes import Theme
from clonos.api.transforms.choosing import Keep
from clonos.expressions.expression import Expr
from clonos.operators.columnar.choosing.batch_choice import FirstOfBatch, HighestOfBatch, LastInBatch
from clonos.operators.columnar.choosing.choice_forms import DeduplicateForm, TopKForm
from clonos.operators.columnar.row_forms import RECORDS, SPAN_TIME
from clonos.operators.event_time.durations import duration_ns
from clonos.operators.event_time.timestamps import TimestampColumn
from clonos.operators.fields import Field
from clonos.operators.operator import Operator
from clonos.operators.transforms.deduplicate import Deduplicate, DeduplicateWithin, LastOfBatch, LastWithin
from clonos.operators.transforms.top_k import ChangedRanks, TopK

if TYPE_CHECKING:
    from clonos.api.stream import Stream

T = TypeVar("T")
K = TypeVar("K")


class KeyedChoosing(Theme, Generic[K, T]):
    """Base of ``KeyedStream`` with the methods that choose among the records of a key."""

    def distinct(self, key: Callable[[T], object] | str | None = None, **common: Unpack[Common]) -> Stream[T]:
        """Keeps the first of equal records of each key of the stream, for ever.

        ``key`` is a function of the record or the name of a field that is compared instead; None for the record itself.
        """
        if key is None:
            refuse_columns(self._graph, self._inputs, common.get("name") or "distinct", 'distinct("id")')
        return self._deduplicated("distinct", _itself if key is None else key, common)

    def deduplicate(
        self,
        by: Callable[[T], object] | str | None = None,
        *,
        keep: Keep = "first",
        within: str | float | timedelta | None = None,
        **common: Unpack[Common],
    ) -> Stream[T]:
        """Keeps one record of each key of those that come within a length of time, as ``Stream.deduplicate`` does.

        ``by`` is a function of the record or the name of a field that has to be equal too; None for the stream's key
        alone.

        Raises:
            InvalidJob: ``keep`` is neither "first" nor "last".
        """
        kind = "deduplicate"
        if keep not in ("first", "last"):
            raise InvalidJob(common.get("name") or kind, f"has keep={keep!r:.80}", 'Give "first" or "last".')
        within_ns = None if within is None else duration_ns(within)
        return self._deduplicated(kind, by, common, keep, within_ns)

    @overload
    def top_k(
        self, k: int, by: Callable[[T], Any] | str | None = None, **common: Unpack[Common]
    ) -> Stream[tuple[K, list[T]]]: ...

    @overload
    def top_k(
        self, k: int, by: Callable[[T], Any] | str | None = None, *, rank: str, **common: Unpack[Common]
    ) -> Stream[dict[str, Any]]: ...

    def top_k(
        self, k: int, by: Callable[[T], Any] | str | None = None, *, rank: str | None = None, **common: Unpack[Common]
    ) -> Stream[Any]:
        """Keeps the ``k`` highest records of each key, and emits (key, records) whenever that list changes.

        Over columns the results are columns: the key, the timestamps if there are any, and the list ``records``.

        With ``rank``, the results are records with their rank: those whose rank a batch of input has changed, once. The
        last result of a key and rank is the present one, and how many there are before it depends on batches.

        Args:
            k: the number of records.
            by: a function of the record or the name of a field that is compared, the highest first; None for the record
                itself. Of equal ones the earlier is first. For the lowest, negate it.
            rank: the name of the field, of records that are dicts, or of the column that gets the rank, from 1 on. Such
                results have no timestamps. Over columns they are columns.

        Raises:
            InvalidJob: ``k`` is not an int of at least 1, or ``rank`` is no name.

        Example::

            bids.key_by("auction").top_k(10, "price", rank="rank")
        """
        if type(k) is not int or k < 1:
            raise InvalidJob(
                common.get("name") or "top_k", f"gets k={k!r:.80}", "Give the number of records: an int of at least 1."
            )
        if rank is not None and (type(rank) is not str or not rank):
            raise InvalidJob(
                common.get("name") or "top_k", f"gets rank={rank!r:.80}", "Give the name of the field for the rank."
            )
        function = _function_of(common.get("name") or "top_k", _itself if by is None else by)
        keys = key_columns(self._graph, self._inputs)
        check_present(self._graph, self._inputs, common.get("name") or "top_k", f"ranks by {by!r}", by)
        if rank is not None and (rank == by or rank in keys):
            problem = f"gets rank={rank!r}, the field of the {'values' if rank == by else 'key'}"
            raise InvalidJob(
                common.get("name") or "top_k", problem, "Give a name that records do not have: it replaces a field."
            )
        make: Callable[[str], Callable[[], Operator]] = partial(partial, TopK, function=function, k=k)
        more: dict[str, Any] = {"key_field": ""}
        if rank is not None:
            make, more = partial(partial, ChangedRanks, function=function, k=k, rank=rank), {"has_times": False}
        if keys and isinstance(by, str):
            more |= self._top_in_columns(TopKForm(keys, by, k, rank))
        step = self._step(
            "top_k",
            make,
            common,
            (by,) if callable(by) else (),
            runs_user_code=True,
            names_columns=isinstance(by, str),
            state=(("k", str(k)), _field_text(by), *(() if rank is None else (("results", "changed ranks"),))),
            **more,
        )
        return self._stream(step)

    def _top_in_columns(self, form: TopKForm) -> dict[str, Any]:
        """Returns keywords of a ``top_k`` over columns, or the reason for which it works on rows."""
        keys = form.keys
        found: dict[str, Any] = {"form": form, "emits_columns": True}
        if form.rank is not None:
            choice = partial(HighestOfBatch, keys, form.by, form.k)
            return {**found, "partial": lambda _: choice, "schema_from": partial(_schema_of_ranks, form.rank)}
        time = self._graph.steps[self._inputs[0].step].timestamp_column
        names = keys if time is None or time.name in keys else (*keys, time.name)
        known = (known_schema(self._graph.steps, each) for each in self._inputs)
        reasons = [form.row_reason(schema) for schema in known if schema is not None]
        if reason := next(filter(None, reasons), name_reason((*names, RECORDS))):
            return {"row_reason": reason}  # so that files of columns refuse the tuples in the plan
        return {**found, "schema_from": partial(_schema_of_lists, keys, names)}

    def _deduplicated(
        self,
        kind: str,
        by: Any,
        common: Common,
        keep: Keep = "first",
        within_ns: int | None = None,
    ) -> Stream[T]:
        name = common.get("name") or kind
        function = None if by is None else _function_of(name, by)
        has_times = self._graph.have_times(self._inputs)
        check_present(self._graph, self._inputs, name, f"compares {by!r}", by)
        keys = key_columns(self._graph, self._inputs) if by is None or isinstance(by, str) else ()
        make: Callable[[str], Callable[[], Operator]] = partial(
            partial, Deduplicate if keep == "first" else LastOfBatch, by=function
        )
        if within_ns is not None:
            retained = DeduplicateWithin if keep == "first" else LastWithin
            make = partial(partial, retained, by=function, within_ns=within_ns, has_times=has_times)
        form = DeduplicateForm(keys, by, keep, within_ns, has_times) if keys else None
        timed: dict[str, Any] = {}
        if form is not None and form.keeps_records and has_times:
            timed = {"timestamp_column": TimestampColumn(SPAN_TIME), "schema_from": _schema_of_spans}
        choice = None
        if form is not None and within_ns is None:
            choice = partial(FirstOfBatch if keep == "first" else LastInBatch, form.names)
        has_state = keep == "first" or within_ns is not None or has_times
        within = str(within_ns) if has_state else "a batch"
        step = self._step(
            kind,
            make,
            common,
            (by,) if callable(by) and by is not _itself else (),
            runs_user_code=by is not None,
            selects_rows=True,
            emits_columns=bool(keys),
            form=form,
            partial=None if choice is None else lambda _: choice,
            state=(("keep", keep), ("within", within), ("event time", str(has_times)), _field_text(by)),
            **timed,
        )
        return self._stream(step)


def _schema_of_ranks(rank: str, schema: Any) -> Any | None:
    from clonos.operators.columnar.choosing.column_top_k import ranked_schema  # loads pyarrow

    return ranked_schema(schema, rank)


def _schema_of_lists(keys: tuple[str, ...], names: tuple[str, ...], schema: Any) -> Any | None:
    from clonos.operators.columnar.choosing.column_lists import list_fields  # loads pyarrow

    return list_fields(schema, keys, names)


def _schema_of_spans(schema: Any) -> Any | None:
    from clonos.operators.columnar.choosing.last_of_span import schema_of_spans  # loads pyarrow

    return schema_of_spans(schema)


def _field_text(by: Any) -> tuple[str, str]:
    if by is None or isinstance(by, str):
        return "field", "none" if by is None else repr(by)
    return "field", "the record" if by is _itself else "a function"


def _function_of(step: str, by: Any) -> Callable[[Any], Any]:
    """Returns the function that gives what is compared.

    Raises: InvalidJob: ``by`` is neither a name nor a function.
    """
    if isinstance(by, str):
        return Field(by)
    if not callable(by):
        advice = COMPUTE_FIRST if isinstance(by, Expr) else "Give a function of the record, or the name of a field."
        raise InvalidJob(step, f"compares {by!r:.100}, which is neither a function nor the name of a field", advice)
    return by  # type: ignore[no-any-return]


def _itself(record: Any) -> Any:
    return record
