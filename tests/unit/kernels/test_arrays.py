"""Arrow arrays of numbers, made without pandas."""

from __future__ import annotations

from typing import Any

import numpy
import pyarrow
import pytest

from clonos.kernels.arrays import arrow_of
from tests.unit.values.samples import printed_by


@pytest.mark.parametrize("dtype", [numpy.int8, numpy.uint64, numpy.int64, numpy.float64, numpy.bool_])
@pytest.mark.parametrize("nulls", [None, [], [0], range(19)])
def test_numbers_become_what_pyarrow_makes_of_them(dtype: Any, nulls: Any) -> None:
    values = (numpy.arange(38) % 3).astype(dtype)[::2]
    is_null = None if nulls is None else numpy.isin(numpy.arange(19), nulls)
    found = arrow_of(values, is_null)
    assert found.equals(pyarrow.array(values, mask=is_null))
    assert found.null_count == (0 if is_null is None else is_null.sum())


@pytest.mark.slow
def test_building_windows_over_columns_imports_no_pandas() -> None:
    aggregates = "n=agg.count(), most=agg.max_('n'), total=agg.sum_('n'), half=agg.mean('x'), all=agg.sum_('x')"
    program = (
        "import pyarrow, sys; from clonos import agg; from clonos.operators.aggregates.aggregate import Named;"
        "from clonos.operators.columnar.result_schemas import schema_of_windows;"
        "schema = pyarrow.schema({'k': pyarrow.int64(), 'n': pyarrow.int64(), 'x': pyarrow.float64()});"
        f"found = schema_of_windows(Named(dict({aggregates})), ['k'], schema, has_logs=True);"
        "print(found.field('n').type, found.field('half').type, 'pandas' in sys.modules)"
    )
    assert printed_by(program) == "int64 double False"
