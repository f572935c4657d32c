"""Let each client make at most five requests, and one more each second.

Gives each request with the decision. The decision depends on the clock and on what the client did before. Both are
recorded, so no successor decides otherwise about a request whose decision has left its process.

    clonos run examples/rate_limit.py
"""

from __future__ import annotations

from clonos import Context, Job, ValueState, clock, stdout, values

BURST = 5.0
PER_SECOND = 1.0
REQUESTS = [(number, client) for number in range(10) for client in ("ann", "bob")]

Request = tuple[int, str]
Decision = tuple[int, str, str]


class TokenBucket:
    """Admits a request if its client has a token left."""

    tokens = ValueState("tokens", default=BURST)
    filled_at = ValueState("filled_at", default=0.0)

    def process(self, request: Request, context: Context[str, Decision]) -> None:
        tokens, filled_at = context.state(self.tokens), context.state(self.filled_at)
        now = clock.time()
        tokens.value = min(BURST, tokens.value + (now - filled_at.value) * PER_SECOND)
        filled_at.value = now
        is_admitted = tokens.value >= 1
        if is_admitted:
            tokens.value -= 1
        context.emit((*request, "admitted" if is_admitted else "refused"))


job = Job("rate_limit", parallelism=2, checkpoint_every="1s")
requests = job.source(values(REQUESTS), name="requests").key_by(lambda request: request[1])
requests.process(TokenBucket, name="limit").sink(stdout())
