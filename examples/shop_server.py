"""A small shop for `enrich.py`, `async_calls.py`, `refund_approvals.py`, `user_profiles.py` and `http_post.py`.

It answers on localhost:8099 until it is stopped:

python examples/shop_server.py
"""

from __future__ import annotations

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PORT = 8099
RECEIPTS: dict[str, str] = {}
LANGUAGES = {"ann": "en", "bob": "de", "eve": "fr"}


class Shop(BaseHTTPRequestHandler):
    """Prices and profiles by GET; orders by POST, each key once."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        product = self.path.rpartition("/")[2]
        if self.path.startswith("/profiles/"):
            self.reply({"language": LANGUAGES.get(product)}, 200 if product in LANGUAGES else 404)
            return
        self.reply({"product": product, "price": len(product) * 10.0})

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        key = self.headers["Idempotency-Key"]
        self.reply({"receipt": RECEIPTS.setdefault(key, f"receipt {len(RECEIPTS) + 1}")})

    def reply(self, content: object, status: int = 200) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:
        """Logs nothing."""


if __name__ == "__main__":
    ThreadingHTTPServer(("localhost", PORT), Shop).serve_forever()
