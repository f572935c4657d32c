"""Fixtures of Iceberg tables."""

from __future__ import annotations

from tests.harnesses.iceberg_tables import catalog, iceberg_threads

__all__ = ["catalog", "iceberg_threads"]
