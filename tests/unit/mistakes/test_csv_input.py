"""CSV as input: ``files.csv`` is a sink only, and the message about it says how CSV is read."""

from __future__ import annotations

from tests.harnesses.mistakes import check, describe


def test_csv_as_a_source_is_answered_by_how_csv_is_read() -> None:
    text = describe("Job('orders').source(files.csv('orders/*.csv'))")
    check(
        text,
        "gets a CsvFiles, which is not a source. files.csv writes only: read CSV with files.lines(...) and csv.reader",
        '(docs/connectors.md, "CSV to read"), or convert it to Parquet.',
    )


def test_a_path_as_a_source_names_the_sources_of_files() -> None:
    check(
        describe("Job('orders').source('orders/*.csv')"),
        "gets a str, which is not a source. A source has splits() and reader(), such as files.lines('texts/*.txt').",
    )
