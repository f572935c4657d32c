"""Files of columns as input: what is given wrongly is answered by what to write instead."""

from __future__ import annotations

import pytest

from clonos.connectors import files
from clonos.connectors.connector_errors import InvalidConnector


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (
            lambda: files.csv("in.csv", delimiter=";;"),
            "files.csv: delimiter is ';;'. Give one character.",
        ),
        (
            lambda: files.csv("in.csv", schema="id INT, name STRING").reader(),
            'files.csv: schema is a str, not a pyarrow.Schema. Give pyarrow.schema([("id", pyarrow.int64()), ...]).',
        ),
        (
            lambda: files.csv("in.csv", newlines_in_values=True, block_bytes=10),
            "files.csv: newlines_in_values=True reads whole files, not blocks. Leave out block_bytes= or ordered=.",
        ),
        (
            lambda: files.csv("in.csv", header=False).reader(),
            "files.csv: a file without a header has no names. Give schema= or columns=.",
        ),
        (
            lambda: files.csv("out", newlines_in_values=True).rows_format(),
            "files.csv: schema=, newlines_in_values=, null_values= and encoding= are for a source. Leave them out for a"
            " sink.",
        ),
        (
            lambda: files.jsonl("in.jsonl", columns="name"),
            "files.jsonl: columns is 'name'. Give True, or a list of the fields to read.",
        ),
        (
            lambda: files.jsonl("in.jsonl", columns=[]),
            "files.jsonl: columns is []. Give True, or a list of the fields to read.",
        ),
        (
            lambda: files.jsonl("in.jsonl", columns=True, schema=dict),  # type: ignore[call-overload]
            "files.jsonl: a class in schema= makes objects, not columns. Give a pyarrow.Schema, or leave out columns=.",
        ),
        (
            lambda: files.jsonl("out", columns=True).rows_format(),
            "files.jsonl: a sink takes no columns= or schema=. It writes the fields of each row.",
        ),
        (
            lambda: files.arrow("out", columns=["a"]).rows_format(),
            "files.arrow: a sink takes no columns=. Name columns and types with schema=.",
        ),
    ],
)
def test_an_option_that_cannot_work_is_refused(make: object, text: str) -> None:
    with pytest.raises(InvalidConnector) as refused:
        make()  # type: ignore[operator]
    assert str(refused.value) == text
