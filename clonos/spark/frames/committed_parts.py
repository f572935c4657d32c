"""Committed part files of an output as Arrow batches of one schema, which Spark has types for."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet

from clonos.connectors.columns.arrow_files import ArrowFile
from clonos.connectors.columns.parquet_batches import FormatUnreadable, open_file, read_batches
from clonos.connectors.columns.parquet_rows import unified
from clonos.connectors.connector_errors import InvalidConnector, OutputCorrupt, RowNotWritable
from clonos.connectors.filesystem.committed_output import CommittedPart, committed
from clonos.connectors.filesystem.output_parts import PREPARED

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

ADVICE = "Give its schema: spark.read.schema(...)."


def parts_of(connector: str, path: str) -> list[CommittedPart]:
    """Returns the committed part files of an output, in order of checkpoints.

    Raises: InputMissing: there is no such output. OutputCorrupt. InvalidConnector: it is a single file, and the job has
    not ended; or it is partitioned.
    """
    parts = committed(path)
    if any(part.partition for part in parts):
        advice = "Read it with Spark itself: spark.read.parquet(path) adds the columns of its folders."
        raise InvalidConnector(connector, f"{path} is partitioned", advice)
    if any(part.path.endswith(PREPARED) for part in parts) and not os.path.isfile(path):
        raise InvalidConnector(connector, f"{path} is written when its job has ended", "Wait for the job.")
    return parts


def kind_of(part: CommittedPart) -> str:
    """Returns the suffix of a part file, without a dot."""
    return os.path.splitext(part.path.removesuffix(PREPARED))[1].removeprefix(".")


def arrow_schema_of(connector: str, path: str, parts: Sequence[CommittedPart]) -> Any:
    """Returns the ``pyarrow.Schema`` that holds the columns of all parts; of JSON and CSV, of those of the first.

    Raises: InvalidConnector: there are no parts, or no type holds a column. OutputCorrupt: a part is damaged.
    """
    if not parts:
        raise InvalidConnector(connector, f"{path} has no committed rows yet, so its columns are unknown", ADVICE)
    try:
        match kind_of(parts[0]):
            case "parquet":
                return unified([_parquet_schema(part.path) for part in parts])
            case "arrow":
                return unified([_arrow_schema(part.path) for part in parts])
            case _:
                return next(iter(_batches(parts[0].path, kind_of(parts[0]), None))).schema
    except (FormatUnreadable, pyarrow.ArrowException, OSError) as error:
        raise OutputCorrupt(path, kind_of(parts[0]), str(error)) from None
    except RowNotWritable as error:
        raise InvalidConnector(connector, f"the part files of {path} do not fit together: {error}", ADVICE) from None


def spark_schema_of(connector: str, path: str) -> StructType:
    """Returns the schema of an output in Spark's types.

    Raises: InvalidConnector: there are no parts, or Spark has no such type. OutputCorrupt, InputMissing.
    """
    from pyspark.errors import PySparkException
    from pyspark.sql.pandas.types import from_arrow_schema

    schema = arrow_schema_of(connector, path, parts_of(connector, path))
    try:
        return from_arrow_schema(schema)
    except PySparkException as error:
        reason = " ".join(str(error).split())
        raise InvalidConnector(connector, f"Spark has no type for a column of {path}: {reason}", ADVICE) from None


def batches_of(path: str, kind: str, schema: StructType) -> Iterator[Any]:
    """Yields the rows of a part as record batches of a schema; a column that the part lacks is null.

    Raises: OutputCorrupt: the part cannot be read, or has a value that the schema does not hold.
    """
    from pyspark.sql.pandas.types import to_arrow_schema

    wanted = to_arrow_schema(schema, timezone="UTC")
    try:
        for batch in _batches(path, kind, wanted):
            columns = [
                batch.column(field.name).cast(field.type)
                if field.name in batch.schema.names
                else pyarrow.nulls(batch.num_rows, field.type)
                for field in wanted
            ]
            yield pyarrow.RecordBatch.from_arrays(columns, schema=wanted)
    except (FormatUnreadable, pyarrow.ArrowException, OSError) as error:
        raise OutputCorrupt(path, f"rows of {schema.simpleString()}", str(error)) from None


def _parquet_schema(path: str) -> Any:
    with open_file(path) as file:
        return file.schema_arrow.remove_metadata()


def _arrow_schema(path: str) -> Any:
    with ArrowFile(path) as file:
        return file.schema.remove_metadata()


def _batches(path: str, kind: str, schema: Any) -> Iterator[Any]:
    """Yields the batches of a file as its format gives them; JSON and CSV by ``schema``, if one is given."""
    match kind:
        case "parquet":
            yield from read_batches(path)
        case "arrow":
            with ArrowFile(path) as file:
                for number in range(file.count):
                    yield file.batch(number)
        case "csv":
            types = {} if schema is None else dict(zip(schema.names, schema.types, strict=True))
            options = pyarrow.csv.ConvertOptions(column_types=types, strings_can_be_null=True)
            parsing = pyarrow.csv.ParseOptions(newlines_in_values=True)
            yield from pyarrow.csv.read_csv(path, parse_options=parsing, convert_options=options).to_batches()
        case _:
            parsing = pyarrow.json.ParseOptions(explicit_schema=schema)
            yield from pyarrow.json.read_json(path, parse_options=parsing).to_batches()
