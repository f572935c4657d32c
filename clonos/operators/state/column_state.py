"""Tables in columns and row stores of one incarnation's chain, and the readers of their snapshots."""

from __future__ import annotations

from collections.abc import Iterable

from clonos.operators.state.column_changes import RowReader, TableReader
from clonos.operators.state.column_slots import SlotColumns
from clonos.operators.state.column_spec import SIZES, ColumnSizes, ColumnSpec
from clonos.operators.state.column_table import ColumnTable
from clonos.operators.state.row_store import RowStore

Reader = TableReader | RowReader


class ColumnState:
    """Tables and row stores by name; restored ones wait for the step that opens them."""

    __slots__ = ("tables", "stores", "_restored_tables", "_restored_stores", "_sizes")

    def __init__(self, tables: dict[str, SlotColumns], stores: dict[str, RowStore], sizes: ColumnSizes = SIZES) -> None:
        """Takes over the tables and stores of an image."""
        self._sizes = sizes
        self.tables: dict[str, ColumnTable] = {}
        self.stores: dict[str, RowStore] = {}
        self._restored_tables, self._restored_stores = tables, stores

    def __contains__(self, name: object) -> bool:
        places = (self.tables, self.stores, self._restored_tables, self._restored_stores)
        return any(name in place for place in places)

    def table(self, name: str, spec: ColumnSpec) -> ColumnTable:
        """Returns the table of this name with its restored keys, or a new one.

        Raises: StateOfOtherForm: it was stored with other types.
        """
        found = self.tables.get(name)
        if found is None:
            found = self.tables[name] = ColumnTable(name, spec, self._restored_tables.pop(name, None), self._sizes)
        elif not found.is_open:
            found.open(spec)
        return found

    def store(self, name: str) -> RowStore:
        """Returns the row store of this name with its restored rows, or a new one."""
        found = self.stores.get(name)
        if found is None:
            restored = self._restored_stores.pop(name, None)
            found = self.stores[name] = RowStore(name) if restored is None else restored
            found.sizes = self._sizes
            found.take_snapshot()
        return found

    def restored(self, prefix: str) -> list[str]:
        """Returns the sorted names of restored tables and stores with this prefix that no step has opened yet."""
        names = [*self._restored_tables, *self._restored_stores]
        return sorted(name for name in names if name.startswith(prefix))

    def drop(self, name: str) -> None:
        """Deletes a table or store that a step has opened."""
        if name in self.tables:
            del self.tables[name]
        else:
            del self.stores[name]

    @property
    def size_bytes(self) -> int:
        """Memory of all tables and stores that steps have opened; any thread may read this."""
        tables_bytes = sum(table.size_bytes for table in list(self.tables.values()))
        return tables_bytes + sum(store.size_bytes for store in list(self.stores.values()))

    # --- snapshots

    def take(self, full: bool) -> list[Reader]:
        """Returns readers of what has changed since the last call, or of all."""
        if full:  # restored state that no step has opened is part of the state
            self._open_restored()
        tables = [table for _, table in sorted(self.tables.items()) if full or not table.is_stored]
        readers: list[Reader] = [table.take(full) for table in tables]
        for _, store in sorted(self.stores.items()):
            if full or not store.is_stored:
                readers.append(RowReader(store, full))
                store.take_snapshot()
        return readers

    def whole(self) -> list[Reader]:
        """Returns readers of all as of the ``take`` just made."""
        self._open_restored()
        tables = [table.whole() for _, table in sorted(self.tables.items())]
        return [*tables, *(RowReader(store, True) for _, store in sorted(self.stores.items()))]

    def hold(self, readers: Iterable[Reader]) -> None:
        """Keeps the state for readers in another thread as it is now, until they are released."""
        for reader in readers:
            if isinstance(reader, TableReader):
                self.tables[reader.name].hold(reader)

    def release(self) -> None:
        """Keeps no state for released readers any more."""
        for table in self.tables.values():
            table.release()

    def _open_restored(self) -> None:
        for name in list(self._restored_tables):
            self.tables[name] = ColumnTable(name, None, self._restored_tables.pop(name), self._sizes)
        for name in list(self._restored_stores):
            self.store(name)
