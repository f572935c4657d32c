"""URLs of files in object stores: ``s3://bucket/key?endpoint=...&region=...``, ``gs://bucket/key``,
``az://container/key?account=...``; and in HDFS, ``hdfs://namenode:port/folder/file``.

The options are those of a checkpoint store, and credentials come from the environment, as there. A pattern may have the
wildcards ``*``, ``[...]`` and ``**`` in its key; ``?`` begins the options.

``https://`` and ``http://`` name one file each, which can only be read. There ``?`` begins the query.
``sftp://user@server/folder/*.txt`` has patterns, and can only be read too.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple
from urllib.parse import parse_qsl, urlsplit

from clonos.connectors.connector_errors import InvalidConnector
from clonos.connectors.secrets import masked
from clonos.io.store.bucket import SCHEMES, AnyBucket, bucket_of
from clonos.io.store.object_files import StoreUnsupported

WEB_SCHEMES: Final = ("https", "http")
SFTP: Final = "sftp"
URL: Final = re.compile(r"[a-z][a-z0-9+.-]*://")
WILDCARDS: Final = re.compile(r"[*\[]")
SFTP_SERVER: Final = re.compile(r"([^@:/]+@)?[A-Za-z0-9._-]+(:\d{1,5})?")
LOCAL: Final = "file://"
SECRET_OPTION: Final = re.compile(
    r"password|passwd|pwd|secret|token|signature|credential|api[_-]?key|^sig$|^key$", re.I
)
"""Options of a query that are credentials, those of signed URLs among them."""


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

    def store(self) -> AnyBucket:
        """Returns the bucket, or the files of HDFS."""
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


def checked_input(connector: str, url: str) -> ObjectUrl:
    """Splits the URL of input files, which may be at a web server too.

    Raises: InvalidConnector: see ``checked_url``.
    """
    parts = split_url(url)
    if parts.scheme == SFTP:
        return _checked_sftp(connector, url)
    if parts.scheme not in WEB_SCHEMES:
        return checked_url(connector, url)
    try:
        named = urlsplit(url)
        is_named = bool(named.hostname) and named.port != 0
    except ValueError:
        is_named = False
    if "@" in parts.bucket:
        problem = "the URL has credentials in front of the server"
        raise InvalidConnector(connector, problem, "Put them into a netrc file (~/.netrc, or the file of $NETRC).")
    if not is_named or "#" in url or any(character <= " " for character in url):
        raise InvalidConnector(connector, f"{masked(url)!r} is not the URL of a file", "Write https://server/file.")
    secret = next((name for name, _ in parse_qsl(parts.options[1:]) if SECRET_OPTION.search(name)), "")
    if secret:
        problem = f"the URL has a credential, {secret}=, which the checkpoint store and messages would show"
        raise InvalidConnector(
            connector, problem, "Use a URL without it, and a netrc file if the server needs a login."
        )
    if WILDCARDS.search(parts.key):
        problem = f"{masked(url)!r} has a wildcard, but a web server lists no files"
        raise InvalidConnector(connector, problem, "Give a list of URLs; write %2A or %5B for the character itself.")
    return parts


def _checked_sftp(connector: str, url: str) -> ObjectUrl:
    parts = split_url(url)
    if not SFTP_SERVER.fullmatch(parts.bucket):
        if ":" in parts.bucket.rpartition("@")[0]:
            problem = "the URL has a password in front of the server"
            raise InvalidConnector(connector, problem, "Put it into a netrc file (~/.netrc, or the file of $NETRC).")
        raise InvalidConnector(connector, f"{masked(url)!r} names no server", "Write sftp://user@server/folder/file.")
    if not parts.key or "?" in url:
        problem = f"{url!r} names no file, or has a ?, which no URL of sftp:// may have"
        raise InvalidConnector(connector, problem, "Write sftp://user@server/folder/*.txt.")
    return parts


def checked_url(connector: str, url: str) -> ObjectUrl:
    """Splits the URL of a file, a folder or a pattern in an object store.

    Raises: InvalidConnector: it is another URL, or has no bucket or a wrong option.
    """
    parts = split_url(url)
    if parts.scheme in (*WEB_SCHEMES, SFTP):
        problem = f"files at {parts.scheme}:// can only be read, by sources"
        raise InvalidConnector(connector, problem, "Use s3://, gs://, az://, hdfs:// or a path.")
    if parts.scheme not in SCHEMES:
        problem = f"{parts.scheme}:// is not the URL of a store whose files it knows"
        raise InvalidConnector(
            connector,
            problem,
            "Use s3://, gs://, az://, hdfs://, https://, sftp:// or a path; mount or copy other files.",
        )
    if "@" in parts.bucket:
        problem = "the URL has credentials in front of the bucket"
        raise InvalidConnector(connector, problem, "Give them in the environment, as AWS_ACCESS_KEY_ID for example.")
    if not parts.bucket or WILDCARDS.search(parts.bucket):
        raise InvalidConnector(connector, f"{url!r} names no bucket", "Write scheme://bucket/folder/file.")
    if parts.options and not all("=" in option for option in parts.options[1:].split("&")):
        problem = f"{url!r} has {parts.options!r}, but ? begins the options of a URL"
        raise InvalidConnector(
            connector, problem, "The options are endpoint=, region= and account=; use * as the wildcard."
        )
    try:
        parts.store()
    except (StoreUnsupported, OSError, ValueError) as error:  # OSError: a name service without configuration
        problem = f"{url!r}: {error.reason if isinstance(error, StoreUnsupported) else error}"
        raise InvalidConnector(connector, problem, "Correct the URL.") from None
    return parts


def name_of(path: str) -> str:
    """Returns a path, or a URL without its options: what the suffix of a file is read from."""
    return path.partition("?")[0] if is_url(path) else path


def local_path(path: str) -> str:
    """Returns the path that a ``file://`` URL names, any other path or URL as it is."""
    return path.removeprefix(LOCAL) if path.startswith(f"{LOCAL}/") else path
