"""Mistakes with expressions and steps on columns: one sentence says what to write."""

from __future__ import annotations

import pyarrow
import pyarrow.parquet
import pytest

from tests.harnesses.mistakes import check, describe

JOB = """
job = Job('etl')
rows = job.source(values([{'price': 1.5}]))
bids = job.source(files.parquet(folder), timestamps='at')
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A folder with one file of Parquet."""
    path = tmp_path_factory.mktemp("bids")
    bids = [{"auction": 1, "price": 1.5, "url": "https://a/b", "at": 1_700_000_000}]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(bids), path / "bids.parquet")
    return str(path)


HAS = "Its input has the columns auction: int64, price: double, url: string, at: int64."


@pytest.mark.parametrize(
    ("step", "sentences"),
    [
        (
            "bids.filter(col('prise') > 1, name='dear')",
            ("the step dear cannot compute col('prise'): there is no column 'prise' (Did you mean price?).", HAS),
        ),
        (
            "bids.select(total=col('url') + 1)",
            ("the step select cannot compute col('url') + 1: string + int32 is not defined; cast the text", HAS),
        ),
        ("bids.filter(col('price'))", ("it needs a condition and gets double; compare it", HAS)),
        ("bids.filter(col('at') > '2026')", ("int64 and string have no common type: cast one of them",)),
        ("bids.filter(1 < col('price') < 5)", ("col('price') > 1 has no truth value", "chained comparisons")),
        ("bids.filter(col('price') > 1 and col('auction') == 2)", ("in place of and, or, not",)),
        ("bids.filter(col('url') == None)", ("is null for every record. Write col('url').is_null().",)),
        ("bids.select(col('price').sum())", ("an Expr has no sum. An expression computes each record alone",)),
        ("bids.select('price', col('price') * 2)", ("the step select gives two columns the name 'price'",)),
        ("bids.select()", ("the step select gets no column. Name what to keep",)),
        ("bids.rename('price')", ('the step rename gets \'price\'. Give a mapping: rename({"old": "new"}).',)),
        ("bids.drop('urls')", ("the step drop cannot compute drop('urls'): there is no column 'urls' (Did you mean",)),
        ("bids.drop(1)", ("drop(1) needs the name of a column. Give a text.",)),
        (
            "bids.with_columns(at=col('at') * 1000)",
            (
                "the step with_columns computes the column 'at' anew, which has the timestamps of the stream.",
                "Give the result another name, or the stream other timestamps with with_timestamps",
            ),
        ),
        (
            "bids.select('price', name='prices').map(print).sink(collect()) or job.explain()",
            ("the step prices leaves out the column 'at', which has the timestamps of the stream, and map may need",),
        ),
        (
            "rows.select('price')",
            ("the step select works on columns, and source gives it rows. Columns come from sources that read",),
        ),
        (
            "bids.map(col('price') * 2)",
            ("gets col('price') * 2, which is no function. An expression computes columns",),
        ),
        ("bids.filter(col('price') > 1, par=3)", ("the step filter has an expression and par=3. Leave out par",)),
        ("rows.filter(col('price') > 1)", ("the step filter works on columns, and source gives it rows.",)),
        ("bids.select(when(col('price') > 1))", ("<when(col('price') > 1), which needs .then(value)>",)),
    ],
)
def test_a_mistake_is_answered_by_what_to_write(step: str, sentences: tuple[str, ...], folder: str) -> None:
    check(describe(JOB + step, folder=folder), *sentences)


@pytest.mark.parametrize(
    "step",
    [
        "bids.filter((col('price') > 1) & (col('price') < 5)).select('price').sink(collect()) or job.explain()",
        "bids.filter(col('price').is_between(1, 5)).map(print)",
        "bids.select('url', twice=col('price') * 2, at='at').key_by('url').window(Tumbling('1s')).count()",
        "bids.with_columns(url=col('url').fill_null('')).rename({'at': 'then'}).key_by('url').count()",
        "bids.filter(lambda bid: bid['price'] > 1)",
    ],
)
def test_code_that_follows_the_advice_is_accepted(step: str, folder: str) -> None:
    assert describe(JOB + step, folder=folder) == ""
