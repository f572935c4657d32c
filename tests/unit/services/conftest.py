"""An HTTP client that is closed at the end of a test."""

from collections.abc import Iterator

import pytest

from clonos.io.http.http_client import HttpClient


@pytest.fixture
def client() -> Iterator[HttpClient]:
    client = HttpClient()
    yield client
    client.close()
