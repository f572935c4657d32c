"""Codecs of compressed bytes. Decompressed bytes have a limit, because a few bytes may stand for terabytes."""

from __future__ import annotations

import zlib
from typing import Any

from clonos.connectors.codecs.codec import Codec, InvalidCodec

BYTES_MAX = 64 << 20
GZIP_WINDOW = 31
"""Window bits of zlib for the format of gzip."""


class Compressed(Codec[bytes, bytes]):
    """Base: the name, and the limit of decompressed bytes."""

    def __init__(self, name: str, bytes_max: int) -> None:
        if type(bytes_max) is not int or bytes_max < 1:
            raise InvalidCodec(f"codecs.{name}", f"bytes_max={bytes_max!r} is no number of bytes", "Give 1 or more.")
        self.name = f"{name}()"
        self.bytes_max = bytes_max

    def too_large(self) -> Exception:
        """Creates the error for more than the limit."""
        return self.undecodable(f"it has more than {self.bytes_max} bytes decompressed (bytes_max=)")

    def checked(self, value: Any) -> bytes:
        """Returns what is to be compressed.

        Raises: UnencodableValue: it is not bytes.
        """
        if not isinstance(value, bytes | bytearray | memoryview):
            raise self.unencodable(value, "it is not bytes")
        return bytes(value)


class GzipCodec(Compressed):
    """gzip, with one or more members. Equal bytes give equal results: the header has no time."""

    def decode(self, data: bytes) -> bytes:
        """See ``Codec``."""
        found = bytearray()
        rest = bytes(data)
        try:
            while rest or not found:
                member = zlib.decompressobj(GZIP_WINDOW)
                found += member.decompress(rest, self.bytes_max - len(found) + 1)
                if len(found) > self.bytes_max:
                    raise self.too_large()
                if not member.eof:
                    raise self.undecodable("it is cut off")
                rest = member.unused_data.lstrip(b"\0")  # padding after the last member
                if not rest:
                    break
        except zlib.error as error:
            raise self.undecodable(error) from None
        return bytes(found)

    def encode(self, value: bytes) -> bytes:
        """See ``Codec``."""
        deflate = zlib.compressobj(6, zlib.DEFLATED, GZIP_WINDOW)
        return deflate.compress(self.checked(value)) + deflate.flush()


class ArrowCompressed(Compressed):
    """zstd or the frames of LZ4, by the codecs that Arrow brings."""

    def __init__(self, name: str, bytes_max: int) -> None:
        super().__init__(name, bytes_max)
        self.kind = name

    def decode(self, data: bytes) -> bytes:
        """See ``Codec``."""
        import pyarrow  # Arrow takes long to load

        if not data:  # which Arrow takes for the end of a stream
            raise self.undecodable("it is empty")
        try:
            with pyarrow.CompressedInputStream(pyarrow.BufferReader(data), self.kind) as stream:
                found = stream.read(self.bytes_max + 1)
        except (pyarrow.ArrowException, OSError) as error:
            raise self.undecodable(error) from None
        if len(found) > self.bytes_max:
            raise self.too_large()
        return bytes(found)

    def encode(self, value: bytes) -> bytes:
        """See ``Codec``."""
        import pyarrow

        sink = pyarrow.BufferOutputStream()
        with pyarrow.CompressedOutputStream(sink, self.kind) as stream:
            stream.write(self.checked(value))
        return bytes(sink.getvalue())
