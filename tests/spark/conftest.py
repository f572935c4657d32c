"""One Spark session for all tests on it: two executors, each with its daemon of Python workers."""

from collections.abc import Iterable, Iterator
from contextlib import closing

import pytest
from pyspark import SparkContext

from clonos.spark.domain import own_domain
from clonos.spark.session import OwnContext

HASH_SEED = "3141592653"


@pytest.fixture(scope="session")
def context() -> Iterator[SparkContext]:
    def domains(numbers: Iterable[int]) -> list[str]:
        return [own_domain()]

    with closing(OwnContext.start("tests", "local-cluster[2,4,1024]", HASH_SEED)) as own:
        while len(set(own.context.parallelize(range(4), 4).mapPartitions(domains).collect())) < 2:
            pass
        yield own.context
