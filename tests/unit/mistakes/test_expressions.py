"""Mistakes with expressions and steps on columns: one sentence says what to write."""

from __future__ import annotations

import math

import pyarrow
import pyarrow.parquet
import pytest

from clonos import agg
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
        (
            "bids.select(col('price').sum())",
            ("an expression has no sum.", ".aggregate(result=sum_('price')), from clonos.agg."),
        ),
        ("bids.select(col('price').abs().mean())", ("Compute the column in with_columns first.",)),
        ("bids.select(col('price').median())", (".aggregate(result=quantile('price', 0.5)), from clonos.agg.",)),
        ("bids.select(col('price').map(abs))", ("an expression has no map. Use the step map",)),
        (
            "bids.select(col('price').bogus())",
            ("an expression has no bogus. It has: abs, alias, cast, ceil, clip, dt,",),
        ),
        (
            "bids.select(agg.sum_('price'))",
            ("sum_('price') is a Sum, which no expression can hold. An aggregate is a",),
        ),
        ("bids.select(total=agg.count())", (".aggregate(result=count()).",)),
        (
            "bids.select(x=lambda bid: bid['price'])",
            ("<lambda> is a function, which no expression can hold.", "map calls"),
        ),
        (
            "bids.with_columns({'x': col('price')})",
            ("is a dict, which no expression can hold. Name results by keywords",),
        ),
        (
            "bids.select(col('price', 'url'))",
            ("names several columns. Name them in the step: select('price', 'url').",),
        ),
        ("bids.select(col('*'))", ("there is no column '*' (with_columns keeps all columns",)),
        ("bids.select(str(col('price')))", ("(give the expression itself, without str() and quotes)",)),
        ("bids.select(col('url.host'))", ('(a field of a struct is col("url").struct.field("host"))',)),
        ("bids.select(len(col('url')))", ("len(col('url')) needs one value", "Write .str.len_chars()")),
        ("bids.select(int(col('price')))", ("int(col('price')) needs one value", "Write .cast(int).")),
        ("bids.select(math.sqrt(col('price')))", ("float(col('price')) needs one value", "write ** 0.5 for a root")),
        ("bids.select(col('url')[:3])", ("is no expression. Write .struct.field", ".str.slice(offset, length)")),
        ("bids.filter(col('price') > 1 & col('auction'))", ("& binds more tightly than a comparison, so it takes 1;",)),
        ("bids.filter(col('auction') in (1, 2))", ("has no truth value", "in place of in: is_in([...])")),
        ("bids.filter('price > 1')", ("which is no function.", 'over columns: filter(col("price") > 1).')),
        ("bids.filter(col('price') is None)", ("gets False, which is no function.", "write col(...).is_null()")),
        (
            "bids.select(x=when(col('price') > 1).then('dear').otherwise('cheap'))",
            ("there is no column 'dear'; a text names a column here, and lit('dear') is the text.",),
        ),
        ("bids.select(when(col('price') > 1, 'dear'))", ("gets a value. Write when(condition).then(value).otherwise",)),
        (
            "bids.key_by(col('auction') % 2)",
            ("neither a function nor the name of a field. Give the name of a column;",),
        ),
        ("bids.key_by('url').top_k(3, col('price'))", ("the step top_k compares col('price'), which is neither",)),
        ("bids.key_by('url').deduplicate(col('price'))", ("the step deduplicate compares col('price'), which",)),
        ("bids.aggregate(n=agg.sum_(col('price')))", ("sum_() gets of=col('price').", "Compute a column in front")),
        ("bids.aggregate(agg.sum_('price'))", ("the step aggregate gets sum_('price') without a name. Give each",)),
        ("bids.key_by('url').aggregate(agg.count())", ("the step aggregate gets count() without a name. Give each",)),
        ("bids.sort('price')", ("a Stream has no sort. A stream has no end to be sorted at.",)),
        ("bids.map_frames(abs)", ("a Stream has no map_frames. Use key_by(...).window(...).map_frames(function)",)),
        ("bids['price']", ("a Stream has no ['price'].", 'col("name") is a column of each record')),
        ("bids.filter(bids['price'] > 1)", ("a Stream has no ['price'].",)),
        ("bids.key_by('url').select('url')", ("a KeyedStream has no select. Call it before key_by",)),
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
    check(describe(JOB + step, folder=folder, agg=agg, math=math), *sentences)


def test_a_stream_is_not_iterated_over(folder: str) -> None:
    check(
        describe(JOB + "list(bids)", folder=folder),
        "a Stream has no records before its job runs, so it has no length and cannot be iterated."
        " take(5) returns the first records",
    )


@pytest.mark.parametrize(
    "step",
    [
        "bids.filter((col('price') > 1) & (col('price') < 5)).select('price').sink(collect()) or job.explain()",
        "bids.filter(col('price').is_between(1, 5)).map(print)",
        "bids.select('url', twice=col('price') * 2, at='at').key_by('url').window(Tumbling('1s')).count()",
        "bids.with_columns(url=col('url').fill_null('')).rename({'at': 'then'}).key_by('url').count()",
        "bids.filter(lambda bid: bid['price'] > 1)",
        "bids.select(round(col('price'), 1), up=math.ceil(col('price')), low=math.floor(col('price')))",
    ],
)
def test_code_that_follows_the_advice_is_accepted(step: str, folder: str) -> None:
    assert describe(JOB + step, folder=folder, math=math) == ""
