"""A batch of columns as bytes and back."""

from __future__ import annotations

import datetime
import struct
from collections.abc import Iterator
from typing import Any

import pyarrow
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clonos.core.values import (
    ValueBeyondLimit,
    ValueMalformed,
    columns,
    decode_columns,
    encode_columns,
    encode_rows,
)
from clonos.core.values.columns import ALIGNMENT_BYTES, SCHEMAS_MAX, validate_columns
from tests.unit.values.samples import STEADY, printed_by

BATCH = pyarrow.record_batch(
    {
        "word": ["a", None, "ccc"],
        "count": pyarrow.array([1, 2, 3], pyarrow.int64()),
        "nested": [[1], [], [2, 3]],
        "kind": pyarrow.array(["x", "y", "x"]).dictionary_encode(),
        "at": [datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)] * 3,
    },
    metadata={"made by": "a test"},
)
DATA = encode_columns(BATCH)
PLAIN = BATCH.drop_columns(["kind"])  # without dictionaries
PLAIN_DATA = encode_columns(PLAIN)
HEAD = PLAIN.schema.serialize().to_pybytes()


class Forgetful(dict[bytes, Any]):
    """Schemas that are not remembered."""

    def __setitem__(self, head: bytes, schema: Any) -> None:
        pass


@pytest.fixture(params=["new", "known"], scope="module", autouse=True)
def schemas(request: pytest.FixtureRequest) -> Iterator[None]:
    """Whether schemas are read from each stream, or remembered where an intact stream was decoded before."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(columns, "known_schemas", Forgetful() if request.param == "new" else {})
        yield


@pytest.mark.parametrize("batch", [BATCH, BATCH.slice(1, 1), BATCH.slice(0, 0), pyarrow.record_batch({"a": [None]})])
def test_a_batch_is_decoded_with_its_schema(batch: Any) -> None:
    decoded = decode_columns(encode_columns(batch))
    assert decoded.equals(batch, check_metadata=True)
    assert decoded.schema.equals(batch.schema, check_metadata=True)


COLUMNS = [
    {"n": [1, None, 3], "t": ["a", "\u00e9", None], "l": [[1], None, []], "s": [{"a": 1}, None, {"a": 2}]},
    {"o": [True, None], "f": [0.5, None]},
    {},
]


@pytest.mark.parametrize("columns_given", COLUMNS, ids=str)
def test_the_bytes_are_those_of_a_stream_writer(columns_given: Any) -> None:
    batch = pyarrow.record_batch(columns_given).replace_schema_metadata({"made by": "a test"})
    for part in (batch, batch.slice(1)):
        sink = pyarrow.BufferOutputStream()
        with pyarrow.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(part)
        assert encode_columns(part) == sink.getvalue().to_pybytes()


@pytest.mark.parametrize("nested", [False, True])
def test_dictionaries_of_batches_of_one_schema_may_differ(nested: bool) -> None:
    for words in (["a", "b", "a"], ["c"], ["d", "e", "f"]):
        column = pyarrow.array(words).dictionary_encode()
        if nested:
            column = pyarrow.StructArray.from_arrays([column], ["word"])
        batch = pyarrow.record_batch({"words": column})
        assert decode_columns(encode_columns(batch)).equals(batch)


SIMILAR = [
    pyarrow.schema([pyarrow.field("n", pyarrow.int64())]),
    pyarrow.schema([pyarrow.field("n", pyarrow.int64())], metadata={"made by": "a test"}),
    pyarrow.schema([pyarrow.field("n", pyarrow.int64(), metadata={"unit": "m"})]),
    pyarrow.schema([pyarrow.field("n", pyarrow.int64(), nullable=False)]),
    pyarrow.schema([pyarrow.field("m", pyarrow.int64())]),
]


@pytest.mark.parametrize("second", SIMILAR[1:], ids=str)
def test_a_batch_after_one_of_a_similar_schema_keeps_its_schema(second: Any) -> None:
    for schema in (SIMILAR[0], second, SIMILAR[0]):
        batch = pyarrow.record_batch([pyarrow.array([1, 2])], schema=schema)
        assert decode_columns(encode_columns(batch)).schema.equals(schema, check_metadata=True)


def test_a_process_remembers_a_limited_number_of_schemas() -> None:
    for number in range(SCHEMAS_MAX + 10):
        batch = pyarrow.record_batch({f"n{number}": [1]})
        assert decode_columns(encode_columns(batch)).equals(batch)
        assert len(columns.known_schemas) <= SCHEMAS_MAX


def test_a_slice_encodes_only_its_own_bytes() -> None:
    batch = pyarrow.record_batch({"n": list(range(100_000))})
    assert len(encode_columns(batch.slice(5, 1))) < 1000


def addresses(array: Any) -> list[int]:
    return [buffer.address for buffer in array.buffers() if buffer is not None]


@pytest.mark.parametrize("offset", range(ALIGNMENT_BYTES))
@pytest.mark.parametrize("batch", [BATCH, PLAIN], ids=["dictionaries", "plain"])
def test_bytes_at_any_address_become_aligned_buffers(batch: Any, offset: int) -> None:
    frame = bytes(offset) + encode_columns(batch)
    decode_columns(encode_columns(batch))
    decoded = decode_columns(memoryview(frame)[offset:])
    assert decoded.equals(batch)
    assert [address % ALIGNMENT_BYTES for column in decoded.columns for address in addresses(column)] == [0] * sum(
        len(addresses(column)) for column in decoded.columns
    )


@pytest.mark.parametrize("data", [DATA, PLAIN_DATA], ids=["dictionaries", "plain"])
def test_aligned_bytes_are_not_copied(data: bytes) -> None:
    buffer = pyarrow.py_buffer(data)
    assert buffer.address % ALIGNMENT_BYTES == 0
    decode_columns(data)
    decoded = decode_columns(data)
    assert all(
        buffer.address <= address < buffer.address + buffer.size
        for address in addresses(decoded.column(1)) + addresses(decoded.column(0))
    )


@STEADY
@given(st.sampled_from([DATA, PLAIN_DATA]), st.integers(0, 1 << 16), st.integers(0, 255), st.booleans())
def test_damaged_bytes_are_malformed_or_another_batch(whole: bytes, place: int, byte: int, cut: bool) -> None:
    decode_columns(whole)
    place %= len(whole)
    data = whole[:place] if cut else whole[:place] + bytes([byte]) + whole[place + 1 :]
    try:
        decoded = decode_columns(data)
    except ValueMalformed:
        return
    assert isinstance(decoded, pyarrow.RecordBatch)


SPLIT_TEXTS = [
    # kind of texts, format of an offset
    (pyarrow.string(), "<4i"),
    (pyarrow.large_string(), "<4q"),
]


@pytest.mark.parametrize(("kind", "form"), SPLIT_TEXTS, ids=["string", "large_string"])
@pytest.mark.parametrize(
    "offsets",
    [(0, 5, 1 << 30, 16), (0, 11, 5, 16), (0, 5, 11, 17), (-1, 5, 11, 16)],
    ids=["after the texts", "back", "end after the texts", "before the texts"],
)
@pytest.mark.parametrize("second", ["second", "s\u00e9cnd"], ids=["ASCII", "other letters"])
def test_offsets_that_contradict_the_texts_are_malformed(kind: Any, form: str, offsets: Any, second: str) -> None:
    data = encode_columns(pyarrow.record_batch({"names": pyarrow.array(["first", second, "third"], kind)}))
    there = struct.pack(form, 0, 5, 11, 16)
    assert data.count(there) == 1
    decode_columns(data)
    with pytest.raises(ValueMalformed):
        decode_columns(data.replace(there, struct.pack(form, *offsets)))


@pytest.mark.parametrize(("kind", "form"), SPLIT_TEXTS, ids=["string", "large_string"])
def test_an_offset_inside_a_character_is_malformed(kind: Any, form: str) -> None:
    data = encode_columns(pyarrow.record_batch({"names": pyarrow.array(["a", "b\u00e9", "c"], kind)}))
    there = struct.pack(form, 0, 1, 4, 5)
    assert data.count(there) == 1
    decode_columns(data)
    with pytest.raises(ValueMalformed):
        decode_columns(data.replace(there, struct.pack(form, 0, 1, 3, 5)))


@pytest.mark.parametrize("kind", [pyarrow.string(), pyarrow.large_string()], ids=str)
def test_a_slice_is_validated_by_its_own_texts(kind: Any) -> None:
    octets = pyarrow.array(
        [b"ok", None, b"\xff"], pyarrow.large_binary() if kind == "large_string" else pyarrow.binary()
    )
    batch = pyarrow.record_batch({"names": octets.view(kind)})
    validate_columns(batch.slice(0, 2))
    validate_columns(batch.slice(1, 1))
    with pytest.raises(ValueError, match="UTF8"):
        validate_columns(batch.slice(2, 1))


@pytest.mark.parametrize(
    "texts",
    [[], [""], [None], ["", None], ["a", "\u00e9", None, "c"], ["\u00e9", ""], ["a", "b"]],
    ids=repr,
)
@pytest.mark.parametrize("kind", [pyarrow.string(), pyarrow.large_string(), pyarrow.string_view()], ids=str)
def test_texts_of_any_letters_are_decoded(kind: Any, texts: list[str | None]) -> None:
    batch = pyarrow.record_batch({"names": pyarrow.array(texts, kind)})
    assert decode_columns(encode_columns(batch)).equals(batch)


TEXTS = encode_columns(pyarrow.record_batch({"names": ["first", "second", "third"]}))


@pytest.mark.parametrize(
    ("there", "instead"),
    [
        (b"firstsecond", b"first\xffecond"),
        (b"names", b"\xff\xffmes"),
    ],
    ids=["a text that is no UTF-8", "a name that is none"],
)
def test_characters_that_are_not_utf_8_are_malformed(there: bytes, instead: bytes) -> None:
    assert TEXTS.count(there) == 1
    decode_columns(TEXTS)
    with pytest.raises(ValueMalformed):
        decode_columns(TEXTS.replace(there, instead))


@pytest.mark.parametrize(
    "data", [b"", b"\x00", encode_rows([1]), DATA[:100], DATA + DATA, PLAIN_DATA + PLAIN_DATA, PLAIN_DATA + b"x", HEAD]
)
def test_bytes_that_are_not_a_stream_of_one_batch_are_malformed(data: bytes) -> None:
    decode_columns(PLAIN_DATA)
    with pytest.raises(ValueMalformed):
        decode_columns(data)


@pytest.mark.parametrize("batch", [BATCH, PLAIN], ids=["dictionaries", "plain"])
def test_a_stream_of_two_batches_is_malformed(batch: Any) -> None:
    decode_columns(encode_columns(batch))
    sink = pyarrow.BufferOutputStream()
    with pyarrow.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
        writer.write_batch(batch)
    with pytest.raises(ValueMalformed, match="first"):
        decode_columns(sink.getvalue().to_pybytes())


def test_rows_and_columns_differ_in_their_first_byte() -> None:
    assert DATA[0] == 255
    assert encode_rows([])[0] == 1


def test_too_many_bytes_are_refused() -> None:
    with pytest.raises(ValueBeyondLimit, match="bytes"):
        encode_columns(BATCH, bytes_max=100)
    with pytest.raises(ValueMalformed, match="limit"):
        decode_columns(DATA, bytes_max=100)


def test_rows_do_not_import_pyarrow() -> None:
    program = (
        "import sys; from clonos.core.values import decode_rows, encode_rows;"
        "decode_rows(encode_rows([('a', 1)])); print('pyarrow' in sys.modules)"
    )
    assert printed_by(program) == "False"


_FIRST_BATCH = """
import sys
from clonos.core.values import decode_columns, encode_columns, get_ready_for_columns
before = "pyarrow" in sys.modules
get_ready_for_columns()
import pyarrow
known = set(sys.modules)
decode_columns(encode_columns(pyarrow.record_batch({"a": [1, 2]})))
print(not before, sorted(set(sys.modules) - known))
"""


@pytest.mark.slow
def test_a_process_prepared_for_columns_imports_nothing_at_the_first_batch() -> None:
    assert printed_by(_FIRST_BATCH) == "True []"


def test_the_limit_of_a_batch_counts_the_larger_of_its_buffers_and_its_encoding() -> None:
    padded = pyarrow.record_batch({f"field{number}": pyarrow.array([1], pyarrow.int8()) for number in range(10)})
    encoded_bytes = pyarrow.ipc.get_record_batch_size(padded)
    assert padded.nbytes < encoded_bytes
    assert decode_columns(encode_columns(padded, bytes_max=encoded_bytes)) == padded
    with pytest.raises(ValueBeyondLimit, match=f"{encoded_bytes}"):
        encode_columns(padded, bytes_max=encoded_bytes - 1)
