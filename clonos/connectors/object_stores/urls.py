"""URLs of files in object stores: ``s3://bucket/key?endpoint=...&region=...``, ``gs://bucket/key``.

The options are those of a checkpoint store, and credentials come from the environment, as there. A pattern may have the
wildcards ``*``, ``[...]`` and ``**`` in its key; ``?`` begins the options.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from clonos.connectors.connector_errors import InvalidConnector
from clonos.io.store.bucket import SCHEMES, Bucket, bucket_of
from clonos.io.store.object_files import StoreUnsupported

URL: Final = re.compile(r"[a-z][a-z0-9+.-]*://")
WILDCARDS: Final = re.compile(r"[*\[]")
LOCAL: Final = "file://"


class ObjectUrl(NamedTuple):
    """Parts of a URL. ``options``: with the leading ``?``, or ""."""

    scheme: str
    bucket: str
    key: str
    options: str

    @property
    def without_options(self) -> str:
        """Returns the URL without its options."""
        return f"{self.scheme}://{self.bucket}/{self.key}"

    def of(self, key: str) -> str:
        """Returns the URL of another object of the bucket, with the options."""
        return f"{self.scheme}://{self.bucket}/{key}{self.options}"

    def store(self) -> Bucket:
        """Returns the bucket."""
        return bucket_of(f"{self.scheme}://{self.bucket}{self.options}")


def is_url(path: str) -> bool:
    """Returns whether a path is a URL."""
    return URL.match(path) is not None


def split_url(url: str) -> ObjectUrl:
    """Splits a URL, without a check."""
    base, mark, options = url.partition("?")
    scheme, _, rest = base.partition("://")
    bucket, _, key = rest.partition("/")
    return ObjectUrl(scheme, bucket, key.strip("/"), mark + options)


def checked_url(connector: str, url: str) -> ObjectUrl:
    """Splits the URL of a file, a folder or a pattern in an object store.

    Raises: InvalidConnector: it is another URL, or has no bucket or a wrong option.
    """
    parts = split_url(url)
    if parts.scheme not in SCHEMES:
        problem = f"{parts.scheme}:// is not the URL of a store whose files it knows"
        raise InvalidConnector(connector, problem, "Use s3://, gs:// or a path; mount or copy other files.")
    if "@" in parts.bucket:
        problem = "the URL has credentials in front of the bucket"
        raise InvalidConnector(connector, problem, "Give them in the environment, as AWS_ACCESS_KEY_ID for example.")
    if not parts.bucket or WILDCARDS.search(parts.bucket):
        raise InvalidConnector(connector, f"{url!r} names no bucket", "Write scheme://bucket/folder/file.")
    if parts.options and not all("=" in option for option in parts.options[1:].split("&")):
        problem = f"{url!r} has {parts.options!r}, but ? begins the options of a URL"
        raise InvalidConnector(connector, problem, "The options are endpoint= and region=; use * as the wildcard.")
    try:
        parts.store()
    except (StoreUnsupported, ValueError) as error:
        problem = f"{url!r}: {error.reason if isinstance(error, StoreUnsupported) else error}"
        raise InvalidConnector(connector, problem, "Correct the URL.") from None
    return parts


def name_of(path: str) -> str:
    """Returns a path, or a URL without its options: what the suffix of a file is read from."""
    return path.partition("?")[0] if is_url(path) else path


def local_path(path: str) -> str:
    """Returns the path that a ``file://`` URL names, any other path or URL as it is."""
    return path.removeprefix(LOCAL) if path.startswith(f"{LOCAL}/") else path
