"""Warning of lengths of time that were given as bare numbers and look like milliseconds."""

from __future__ import annotations

import logging
from typing import Final

logger = logging.getLogger("clonos.run")

THOUSAND: Final = 1_000
"""A bare multiple of this is hardly meant in seconds: an hour is 3600, a day 86400."""

_warned: set[float] = set()


def warn_of_seconds(number: float) -> None:
    """Logs once a warning for a number of seconds that is a multiple of 1,000: other libraries take milliseconds."""
    if number >= THOUSAND and number % THOUSAND == 0 and number not in _warned:
        _warned.add(number)
        logger.warning(
            'the length of time %s is a number of seconds, %s: write "%dms" for milliseconds, or "%ds".',
            number,
            _clock(number),
            number,
            number,
        )


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(min(seconds, 1e12)), 60)
    return f"{minutes // 60:,}:{minutes % 60:02}:{rest:02} hours"
