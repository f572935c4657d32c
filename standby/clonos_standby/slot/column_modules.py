"""Modules of columns, which the fork server imports once for all slots of a job with columns.

Otherwise each slot would take 0.3 s of processor time, in the middle of a recovery too. Nothing here uses Arrow's
threads, so the process can be forked.
"""

from __future__ import annotations

import clonos.connectors.columns.arrow_files
import clonos.connectors.columns.parquet_files
import clonos.expressions.program
import clonos.operators.columnar.column_step
import clonos.operators.event_time.column_times
import clonos.operators.kinds.column_kind
import clonos.operators.kinds.column_panes
import clonos.operators.state.column_state  # noqa: F401
from clonos.core.values import get_ready_for_columns

get_ready_for_columns()
