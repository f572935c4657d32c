"""Objects in S3 and GCS: data through ``pyarrow.fs``, and create-if-absent through ``obstore``.

pyarrow has no exclusive create, so a store for which obstore has none either is refused. Tested with an S3-compatible
server and an emulator of GCS; not tested with Google's own servers.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

from clonos.io.store.bucket_lists import is_readable
from clonos.io.store.object_files import ObjectMissing, StoreFailed, StoreUnsupported

DEBUG_TEXT: Final = "\n\nDebug source:"
"""Marks the many lines that obstore appends to the text of an error."""

RETRY_TIME_MAX: Final = timedelta(seconds=10)
"""Time that the libraries may retry one call, because the caller retries too. Their own limits are minutes."""
RETRIES_MAX: Final = 4
CONNECTOR_RETRIES_MAX: Final = 60
"""Retries of one call within the same time, for a source or a sink: nothing else retries for it, and it has to
outlast a short failure of the network."""
BACKOFF_MAX: Final = timedelta(seconds=1)
GCS_SCHEMES: Final = ("gs", "gcs")
ARROW_SCHEMES: Final = ("s3", *GCS_SCHEMES)
"""Schemes of checkpoint stores whose data go through pyarrow."""
S3_REGION: Final = "us-east-1"
"""Region if neither the URL nor the environment names one."""

NO_SERVICE_ACCOUNT: Final = '{"disable_oauth": true, "client_email": "", "private_key": "", "private_key_id": ""}'
ENDPOINT_VARIABLES: Final = {
    "s3": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"),
    "az": ("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT"),
    "gs": ("STORAGE_EMULATOR_HOST",),
    "gcs": ("STORAGE_EMULATOR_HOST",),
}
ACCOUNT_VARIABLES: Final = ("AZURE_STORAGE_ACCOUNT_NAME",)
REGION_VARIABLES: Final = ("AWS_REGION", "AWS_DEFAULT_REGION")


@dataclass(frozen=True, slots=True)
class CloudLocation:
    """Location ``scheme://bucket/prefix?region=...&endpoint=...``; missing parts come from the environment.

    In Azure the bucket is a container, of the account ``?account=...``.
    """

    scheme: str
    bucket: str
    prefix: str
    endpoint: str
    region: str
    account: str = ""

    @property
    def is_plain(self) -> bool:
        """True when the store is reached without TLS."""
        return self.endpoint.startswith("http://")

    @staticmethod
    def parse(url: str) -> CloudLocation:
        """Parses a URL. Raises: StoreUnsupported when it has an unknown option, no bucket or no account."""
        parts = urlsplit(url)
        options = dict(parse_qsl(parts.query))
        is_azure = parts.scheme == "az"
        endpoint = options.pop("endpoint", "") or options.pop("endpoint_override", "")
        region = "" if is_azure else options.pop("region", "") or _first_set(REGION_VARIABLES)
        account = (options.pop("account", "") or _first_set(ACCOUNT_VARIABLES)) if is_azure else ""
        if options:
            known = "account and endpoint" if is_azure else "endpoint and region"
            raise StoreUnsupported(url, f"its option {sorted(options)[0]} is unknown; the options are {known}")
        if not parts.netloc:
            raise StoreUnsupported(url, "it names no bucket")
        if is_azure and not account:
            reason = "it names no account: add ?account=NAME, or set AZURE_STORAGE_ACCOUNT_NAME"
            raise StoreUnsupported(url, reason)
        endpoint = endpoint or _first_set(ENDPOINT_VARIABLES.get(parts.scheme, ()))
        if endpoint and "://" not in endpoint:
            endpoint = f"{'http' if parts.scheme in GCS_SCHEMES else 'https'}://{endpoint}"
        return CloudLocation(parts.scheme, parts.netloc, parts.path.strip("/"), endpoint, region, account)


def _first_set(variables: tuple[str, ...]) -> str:
    return next((os.environ[name] for name in variables if os.environ.get(name)), "")


class CloudFiles:
    """Objects of a bucket, or of a prefix in it."""

    def __init__(self, url: str) -> None:
        self.url = url.partition("?")[0]
        location = CloudLocation.parse(url)
        self._root = "/".join(part for part in (location.bucket, location.prefix) if part)
        if location.scheme not in ARROW_SCHEMES:
            reason = "it has no create-if-absent, which the choice of one coordinator needs"
            raise StoreUnsupported(url, reason)
        self._files, self._conditional = arrow_files(location), object_store(location, location.prefix)

    def read(self, name: str) -> bytes:
        """Returns all bytes of an object."""

        def action() -> bytes:
            with self._files.open_input_stream(f"{self._root}/{name}") as stream:
                return bytes(stream.read())

        content: bytes = self._try(f"read {name}", action, name)
        return content

    def write(self, name: str, data: bytes) -> None:
        """Writes an object in one upload, which is atomic."""
        self.write_parts(name, (data,))

    def write_parts(self, name: str, parts: Iterable[bytes]) -> None:
        """Writes an object part by part, which is atomic too."""

        def action() -> None:
            with self._files.open_output_stream(f"{self._root}/{name}") as stream:
                for part in parts:
                    stream.write(part)

        self._try(f"write {name}", action)

    def create_if_absent(self, name: str, data: bytes) -> bool:
        """Creates an object by a conditional put. Returns False when it exists.

        Raises: StoreFailed when the outcome is unknown.
        """
        import obstore
        from obstore.exceptions import AlreadyExistsError, PreconditionError

        try:
            obstore.put(self._conditional, name, data, mode="create", use_multipart=False)
        except (AlreadyExistsError, PreconditionError):
            return False
        except Exception as error:  # noqa: BLE001 its errors have no common class; each leaves the outcome unknown
            text = str(error).partition(DEBUG_TEXT)[0]
            raise StoreFailed(self.url, f"create {name}", f"{type(error).__name__}: {text}") from None
        return True

    def exists(self, name: str) -> bool:
        """Returns True when the object exists."""
        from pyarrow.fs import FileType

        found = self._try(f"look for {name}", lambda: self._files.get_file_info(f"{self._root}/{name}"))
        return bool(found.type == FileType.File)

    def delete(self, name: str) -> None:
        """Removes an object, if it exists."""
        try:
            self._try(f"delete {name}", lambda: self._files.delete_file(f"{self._root}/{name}"), name)
        except ObjectMissing:
            return

    def unfinished(self, folder: str) -> Sequence[str]:
        """Returns nothing: an object appears whole. A lifecycle rule of the bucket ends incomplete uploads."""
        return []

    def list(self, folder: str) -> list[str]:
        """Returns the names of all objects below a folder, sorted."""
        from pyarrow.fs import FileSelector, FileType

        selector = FileSelector(f"{self._root}/{folder}".rstrip("/"), allow_not_found=True, recursive=True)
        found = self._try(f"list {folder}", lambda: self._files.get_file_info(selector))
        skipped = len(self._root) + 1
        names = (entry.path[skipped:] for entry in found if entry.type == FileType.File)
        return sorted(filter(is_readable, names))  # the others, such as in//a, cannot be of a store

    def _try(self, action: str, call: Callable[[], Any], name: str = "") -> Any:
        try:
            return call()
        except FileNotFoundError as error:
            if not name:
                raise StoreFailed(self.url, action, str(error)) from None
            raise ObjectMissing(self.url, name) from None
        except OSError as error:
            raise StoreFailed(self.url, action, str(error)) from None


def arrow_files(location: CloudLocation) -> Any:
    """Returns the file system of pyarrow of all buckets of S3, GCS or Azure.

    An endpoint of GCS without TLS is an emulator, which gets no credentials.
    """
    if location.scheme == "az":
        return _azure_files(location)
    if location.scheme in GCS_SCHEMES:
        return _gcs_files(location)
    from pyarrow.fs import S3FileSystem

    return S3FileSystem(
        endpoint_override=location.endpoint or None,
        region=location.region or S3_REGION,
        allow_delayed_open=True,
        background_writes=False,
    )


def _gcs_files(location: CloudLocation) -> Any:
    from pyarrow.fs import GcsFileSystem

    scheme, _, address = location.endpoint.rstrip("/").partition("://")
    return GcsFileSystem(
        anonymous=location.is_plain,
        scheme=scheme or None,
        endpoint_override=address or None,
        retry_time_limit=RETRY_TIME_MAX,
    )


def _azure_files(location: CloudLocation) -> Any:
    from pyarrow.fs import AzureFileSystem

    options: dict[str, Any] = {}
    if location.endpoint:
        scheme, _, address = location.endpoint.rstrip("/").partition("://")
        options = {"blob_storage_authority": address.partition("/")[0], "blob_storage_scheme": scheme}
    key = os.environ.get("AZURE_STORAGE_ACCOUNT_KEY") or os.environ.get("AZURE_STORAGE_KEY")
    return AzureFileSystem(location.account, account_key=key, **options)


def object_store(location: CloudLocation, prefix: str, retries_max: int = RETRIES_MAX) -> Any:
    """Returns the client of ``obstore`` for the objects below a prefix of the bucket, "" for all."""
    from obstore.store import AzureStore, GCSStore, S3Store

    options: dict[str, Any] = {}
    if location.scheme == "s3":
        store: Any = S3Store
        options["region"] = location.region or S3_REGION
        if location.endpoint:
            options["endpoint"] = location.endpoint
            options["virtual_hosted_style_request"] = False
    elif location.scheme == "az":
        store = AzureStore
        options["account_name"] = location.account
        if location.endpoint:
            options["endpoint"] = location.endpoint.rstrip("/")
    else:
        store = GCSStore
        if location.endpoint:
            options["base_url"] = location.endpoint.rstrip("/")
        if location.is_plain:  # skip_signature would still ask for a token before a put
            options["service_account_key"] = NO_SERVICE_ACCOUNT
    return store(
        location.bucket,
        prefix=prefix or None,
        client_options={"allow_http": location.is_plain},
        retry_config=_retry_config(retries_max),
        **options,
    )


def _retry_config(retries_max: int) -> Any:
    backoff = {"max_backoff": BACKOFF_MAX}
    return {"max_retries": retries_max, "retry_timeout": RETRY_TIME_MAX, "backoff": backoff}
