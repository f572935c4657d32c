"""Add the profile of its user to each click, from an HTTP service, with a cache and at most 50 calls a second.

Gives the clicks in their order; those of unknown users go without a profile. Answers are recorded and the cache
survives a failure, so a click that is processed again gets the profile that it got before.

    python examples/shop_server.py &
    clonos run examples/user_profiles.py
"""

from __future__ import annotations

from typing import Any

from clonos import Job, files, http_lookup, values

CLICKS = [{"user": ("ann", "bob", "eve", "nobody")[n * n % 7 % 4], "page": f"/{n % 5}", "number": n} for n in range(60)]

profile = http_lookup("/profiles/{user}", base_url="http://localhost:8099", timeout=2)


def with_language(click: dict[str, Any], profile: dict[str, Any] | None) -> dict[str, Any]:
    return {**click, "language": None if profile is None else profile["language"]}


job = Job("user_profiles", parallelism=2, checkpoint_every="1s")
(
    job.source(values(CLICKS), name="clicks", parallelism=1)
    .enrich(profile, select=with_language, cache=(50_000, "10min"), rate=50, parallelism=1, name="profiles")
    .sink(files.jsonl("out/clicks"), name="clicks_with_profiles")
)
