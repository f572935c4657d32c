"""S3 on loopback: moto's server in a thread, with one bucket, outages on demand and a count of requests."""

from __future__ import annotations

import threading
import urllib.request
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from werkzeug.serving import make_server

CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "nobody",
    "AWS_SECRET_ACCESS_KEY": "nothing",
    "AWS_EC2_METADATA_DISABLED": "true",
}


class _Handler(MotoRequestHandler):
    """Handler without a line for each request."""

    def log_request(self, code: object = "-", size: object = "-") -> None:
        """Writes nothing."""


class S3Server:
    """Server with the bucket ``bucket``. ``address`` is its endpoint."""

    def __init__(self) -> None:
        self.requests: Counter[str] = Counter()
        """Requests by method."""
        self.refused = 0
        self._down_for = 0
        self._lock = threading.Lock()
        application = self._guarded(DomainDispatcherApplication(create_backend_app))
        self._server = make_server("127.0.0.1", 0, application, threaded=True, request_handler=_Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, name="s3", daemon=True)
        self._thread.start()
        self.address = f"http://127.0.0.1:{self._server.server_port}"
        urllib.request.urlopen(urllib.request.Request(f"{self.address}/bucket", method="PUT")).close()

    def url(self, key: str) -> str:
        """Returns the URL of an object or a folder of the bucket."""
        return f"s3://bucket/{key}?endpoint={self.address}"

    @contextmanager
    def outage(self, requests: int = 1 << 62) -> Iterator[None]:
        """Answers requests with the status 503, at most this number, as long as the block."""
        self._down_for = requests
        try:
            yield
        finally:
            self._down_for = 0

    def close(self) -> None:
        """Ends the server, with all its objects."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def _guarded(self, application: WSGIApplication) -> WSGIApplication:
        """Serves one request after the other: moto looks for an object and then stores it, which S3 does in one
        step."""

        def serve(environment: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
            with self._lock:
                self.requests[environment["REQUEST_METHOD"]] += 1
                if self._down_for:
                    self._down_for -= 1
                    self.refused += 1
                    start_response("503 Slow Down", [("Content-Length", "0")])
                    return [b""]
                return application(environment, start_response)

        return serve
