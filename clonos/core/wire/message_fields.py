"""Types of fields that several messages share, with their limits (protocol 4)."""

from __future__ import annotations

from typing import Annotated

import msgspec

from clonos.core.wire.decoding import ObjectName
from clonos.core.wire.log_delta import Delta as Delta
from clonos.core.wire.log_delta import Length as Length
from clonos.core.wire.shadow_messages import FeedAck as FeedAck
from clonos.core.wire.shadow_messages import FeedShadow as FeedShadow

Name = Annotated[str, msgspec.Meta(max_length=1024)]


Text = Annotated[str, msgspec.Meta(max_length=1 << 20)]


Objects = Annotated[tuple[ObjectName, ...], msgspec.Meta(min_length=1)]
