"""Subscribe to the trades of a market over a WebSocket, and add up what was traded of each paper.

The number of a trade is the cursor: after a broken connection, or the death of a task, the subscription asks for what
follows the last journalled trade. The job runs until it is stopped.

    clonos run examples/websocket_trades.py

TRADES_URL names the server. It is sent {"subscribe": "trades", "after": 17} and sends messages such as {"number": 18,
"paper": "abc", "quantity": 5}. A server that asks for a token: web.websocket(..., token=secrets.env("TRADES_TOKEN")).
Such jobs need: pip install 'clonos[websocket]'
"""

from __future__ import annotations

import os
from typing import Any

from clonos import Job, files, web

URL = os.environ.get("TRADES_URL", "ws://localhost:8091/trades")


def subscription(cursor: str | None) -> dict[str, Any]:
    return {"subscribe": "trades", "after": int(cursor or 0)}


def traded_so_far(paper: str, traded: int | None, trade: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    total = (traded or 0) + trade["quantity"]
    return total, {"paper": paper, "traded": total}


job = Job("websocket-trades", checkpoint_every="500ms", errors=files.jsonl("out/websocket_trades_errors"))
trades = job.source(web.websocket(URL, send=subscription, cursor="number"), name="trades")
totals = trades.key_by("paper").stateful_map(traded_so_far, name="traded_so_far")
totals.sink(files.jsonl("out/websocket_trades"), name="totals")
