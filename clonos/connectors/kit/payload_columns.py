"""Payloads of messages as columns of a given schema: values of JSON, or what a codec makes of them.

A payload that does not fit the columns is set aside, with its message, and those around it are columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import pyarrow

from clonos.connectors.codecs.codec import Codec
from clonos.connectors.codecs.plain import JsonCodec
from clonos.connectors.columns.exact_arrays import exact_array
from clonos.connectors.columns.json_columns import BLANKS, JsonLines
from clonos.connectors.columns.line_columns import LineParser, Lines, Piece, check_schema_names, joined, without_place
from clonos.connectors.connector_errors import InvalidConnector
from clonos.connectors.json_text import parse_json
from clonos.connectors.kit.external_system import PayloadMalformed
from clonos.connectors.kit.payloads import Described, decoded, malformed
from clonos.operators.connector_contract import MalformedRecord, PartlyMalformed

UNFIT: Final = b"!"
"""Line in place of a payload that is no line of JSON."""

NO_OBJECT: Final = "it is not an object, whose fields could be columns"


class PayloadColumns:
    """Makes columns of payloads; it travels to the slots. ``codec``: by default that of JSON."""

    def __init__(self, connector: str, schema: Any, codec: Codec[bytes, Any] | None) -> None:
        """Checks the schema.

        Raises: InvalidConnector: it is not a schema of Arrow, or two of its columns have one name.
        """
        if not isinstance(schema, pyarrow.Schema):
            advice = "Give a pyarrow.Schema. For objects of a class leave it out, and give decode= the class."
            raise InvalidConnector(connector, f"schema is {schema!r:.80}", advice)
        check_schema_names(connector, schema)
        is_json = codec is None or (type(codec) is JsonCodec and codec.schema is None)
        self.schema, self._codec = schema, None if is_json else codec

    def pieces(self, payloads: Sequence[Any], described: Described) -> Iterator[tuple[int, Any]]:
        """Yields a ``pyarrow.RecordBatch``, or malformed records alone, and how many payloads are taken with it.

        ``described``: see ``payloads.decoded``.
        """
        found = self._of_json(payloads) if self._codec is None else self._of_values(payloads, described)
        for piece in found:
            if piece.batch is not None:
                yield piece.end, piece.batch
                continue
            reasons = enumerate(piece.errors, piece.first)
            yield piece.end, PartlyMalformed(malformed(described(index), reason) for index, reason in reasons)

    # ------------------------------------------------------------------ JSON

    def _of_json(self, payloads: Sequence[Any]) -> Iterator[Piece]:
        text_format = JsonLines(self.schema, None)
        for piece in LineParser(text_format, self.schema, ()).pieces(_lines(text_format, payloads)):
            errors = enumerate(piece.errors, piece.first)
            yield piece._replace(errors=tuple(_reason(text_format, payloads[index], text) for index, text in errors))

    # ------------------------------------------------------------------ values of a codec

    def _of_values(self, payloads: Sequence[Any], described: Described) -> Iterator[Piece]:
        assert self._codec is not None, "JSON has its own way"
        return joined(self._fitted(decoded(self._codec.decode, payloads, described), 0, len(payloads)))

    def _fitted(self, values: Sequence[Any], first: int, end: int) -> Iterator[Piece]:
        """Makes columns of values, halves them until those that do not fit are alone."""
        try:
            yield Piece(first, end, self._batch(values[first:end]))
            return
        except ValueError as raised:
            error = str(raised)
        if end - first == 1:
            found = values[first].error if type(values[first]) is MalformedRecord else None
            yield Piece(first, end, None, (found.reason if isinstance(found, PayloadMalformed) else error,))
            return
        middle = (first + end) // 2
        yield from self._fitted(values, first, middle)
        yield from self._fitted(values, middle, end)

    def _batch(self, values: Sequence[Any]) -> Any:
        """Raises: ValueError: a value does not fit."""
        if not all(isinstance(value, dict) for value in values):
            raise ValueError(NO_OBJECT)
        arrays = []
        for field in self.schema:
            try:
                arrays.append(exact_array([value.get(field.name) for value in values], field.type))
            except ValueError as error:
                raise ValueError(f"its {field.name} does not fit the column of {field.type}: {error}") from None
            if arrays[-1].null_count and not field.nullable:
                raise ValueError(f"its {field.name} is null")
        return pyarrow.RecordBatch.from_arrays(arrays, schema=self.schema)


def _lines(text_format: JsonLines, payloads: Sequence[Any]) -> Lines:
    """Returns payloads as lines of JSON, one for each."""
    if None not in payloads and (data := b"\n".join(payloads)):
        lines = text_format.lines(data, ())
        if len(lines.starts) == len(payloads) == data.count(b"\n") + 1:
            return lines
    return text_format.lines(b"\n".join(map(_line, payloads)), ())


def _line(payload: bytes | None) -> bytes:
    if payload is None or not payload.strip(BLANKS):
        return UNFIT
    if b"\n" not in payload:
        return payload
    try:
        parse_json(payload.decode())  # a line break within a text would not be JSON
    except ValueError:
        return UNFIT
    return payload.replace(b"\n", b" ")


def _reason(text_format: JsonLines, payload: bytes | None, error: str) -> str:
    """Says why a payload is not a row."""
    if payload is None:
        return "it has no value"
    try:
        problem = text_format.problem(payload.decode())
    except UnicodeDecodeError as wrong:
        return f"its {payload[wrong.start : wrong.end]!r} is not UTF-8: {wrong.reason}"
    return f"it {problem}" if problem else f"it does not fit the columns: {without_place(error) or 'it is not one row'}"
