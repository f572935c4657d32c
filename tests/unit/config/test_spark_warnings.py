"""Warnings about a user's own Spark session that other users can reach."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from warnings import catch_warnings, simplefilter, warn

import pytest
from pyspark import SparkConf

from clonos.spark.session import quiet_about_pandas, warn_if_unauthenticated


def _session(master: str, settings: dict[str, str]) -> Any:
    """The part of a SparkContext that is looked at; a real one needs a JVM."""
    configuration = SparkConf(loadDefaults=False).setAll(list(settings.items()))
    return SimpleNamespace(master=master, getConf=lambda: configuration)


HERE = ["local-cluster[2,4,1024]", "spark://localhost:7077", "spark://127.0.0.1:7077", "spark://[::1]:7077"]


@pytest.mark.parametrize("master", HERE)
@pytest.mark.parametrize("settings", [{}, {"spark.authenticate": "false"}])
def test_a_local_cluster_without_authentication_is_warned_of(
    master: str, settings: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    warn_if_unauthenticated(_session(master, settings))
    assert f"{master} has no spark.authenticate" in caplog.text


@pytest.mark.parametrize(
    ("master", "settings"),
    [
        *((master, {"spark.authenticate": "true"}) for master in HERE),
        ("local[2]", {}),
        ("yarn", {}),
        ("spark://head.example:7077", {}),
    ],
)
def test_other_clusters_are_not_warned_of(
    master: str, settings: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    warn_if_unauthenticated(_session(master, settings))
    assert caplog.text == ""


def test_the_warning_of_pyspark_about_the_version_of_pandas_is_hidden() -> None:
    with catch_warnings(record=True) as shown:
        simplefilter("always")
        with quiet_about_pandas():
            warn(
                "PySpark does not yet fully support pandas >= 3.0.0. Some features may not work correctly.",
                FutureWarning,
                stacklevel=2,
            )
            warn("Another thing.", FutureWarning, stacklevel=2)
    assert [str(warning.message) for warning in shown] == ["Another thing."]
