"""Limits of encoded values, batches and keys. An error names the limit that a value exceeds."""

from __future__ import annotations

from typing import Final

VALUE_BYTES_MAX: Final = 256 << 20
"""Maximum size of one encoded value."""

VALUE_DEPTH_MAX: Final = 64
"""Maximum depth of nested containers and records, including the outermost."""

VALUE_ITEMS_MAX: Final = 1 << 24
"""Maximum size of one container: items of a list, a tuple or a set, entries of a dict."""

BATCH_BYTES_MAX: Final = 1 << 30
"""Maximum size of one encoded batch of rows or columns."""

BATCH_ROWS_MAX: Final = 1 << 24

COLUMNS_DEPTH_MAX: Final = 8
"""Maximum depth of nested tuples and records that travel as columns. Deeper ones travel row by row."""

COLUMNS_WIDTH_MAX: Final = 256
"""Maximum number of cells in a row that travels as columns. Wider rows travel row by row."""

KEY_BYTES_MAX: Final = 1 << 20
"""Maximum size of one encoded key."""

KEY_DEPTH_MAX: Final = 16
"""Maximum depth of nested tuples in a key, including the outermost."""
