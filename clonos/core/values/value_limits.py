"""Limits of encoded values, batches and keys. Reaching one is an error that names it; nothing else bounds them."""

from __future__ import annotations

from typing import Final

VALUE_BYTES_MAX: Final = 256 << 20
"""Of one encoded value."""

VALUE_DEPTH_MAX: Final = 64
"""Containers and records within each other, the outermost included."""

VALUE_ITEMS_MAX: Final = 1 << 24
"""Of one container: items of a list, a tuple or a set, entries of a dict."""

BATCH_BYTES_MAX: Final = 1 << 30
"""Of one encoded batch, rows or columns."""

BATCH_ROWS_MAX: Final = 1 << 24

COLUMNS_DEPTH_MAX: Final = 8
"""Tuples and records of one shape within each other that travel as columns; deeper ones travel row by row."""

COLUMNS_WIDTH_MAX: Final = 256
"""Cells of rows that travel as columns; wider ones travel row by row."""

KEY_BYTES_MAX: Final = 1 << 20
"""Of one encoded key."""

KEY_DEPTH_MAX: Final = 16
"""Tuples within each other in a key, the outermost included."""
