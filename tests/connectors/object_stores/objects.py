"""Objects of the S3 server as its other clients see them."""

from __future__ import annotations

import urllib.request
from typing import Any
from urllib.parse import quote

import obstore
from obstore.store import S3Store

from tests.harnesses.s3_server import CREDENTIALS, S3Server


def store_of(server: S3Server) -> Any:
    """A client of the bucket."""
    return S3Store(
        "bucket",
        endpoint=server.address,
        region="us-east-1",
        virtual_hosted_style_request=False,
        client_options={"allow_http": True},
        access_key_id=CREDENTIALS["AWS_ACCESS_KEY_ID"],
        secret_access_key=CREDENTIALS["AWS_SECRET_ACCESS_KEY"],
    )


def put(server: S3Server, key: str, content: bytes) -> None:
    """Writes an object."""
    obstore.put(store_of(server), key, content)


def put_raw(server: S3Server, key: str, content: bytes) -> None:
    """Writes an object as other programs do, whose keys need not be paths: ``in/``, ``in//a``."""
    url = f"{server.address}/bucket/{quote(key)}"
    urllib.request.urlopen(urllib.request.Request(url, data=content, method="PUT")).close()


def contents(server: S3Server, folder: str) -> dict[str, bytes]:
    """Returns all objects below a folder, by what follows it in their keys."""
    store = store_of(server)
    objects = obstore.list(store, f"{folder}/").collect()
    keys = [each["path"] for each in objects if each["size"]]  # without markers of folders, which have no content
    return {key.removeprefix(f"{folder}/"): bytes(obstore.get(store, key).bytes()) for key in sorted(keys)}
