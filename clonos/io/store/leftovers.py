"""Objects that killed processes have left in a store: snapshots that no checkpoint names, and unfinished files.

They are removed at the start of a driver whose job has no living tasks. Nothing else will remove them: the coordinator
that knew of them is gone.
"""

from __future__ import annotations

import logging
import re
from typing import Final

from clonos.core.checkpoint.checkpoint_metadata import decode_metadata
from clonos.core.model.errors import EnvironmentFault
from clonos.io.store.envelope import name_of_object
from clonos.io.store.metadata_chain import FOLDER
from clonos.io.store.store import OBJECTS, CheckpointStore

logger = logging.getLogger("clonos.run")

SNAPSHOT_NAME: Final = re.compile(rf"{OBJECTS}/snapshots/[0-9]+/[0-9]{{12,}}-[0-9a-f]+-(full|delta|final)")
UNFINISHED_NAME: Final = re.compile(
    rf"({FOLDER}/\.[0-9]{{20}}|{OBJECTS}/snapshots/[0-9]+/\.[0-9]{{12,}}-[0-9a-f]+-(full|delta|final))\.[0-9a-f]{{12}}"
)


def remove_leftovers(store: CheckpointStore) -> int:
    """Removes what no checkpoint of the chain needs; returns the number of files. The term has begun.

    Files with other names stay. A fault of the store leaves everything as it is, with a warning.
    """
    try:
        # The list comes first. What another driver's tasks write is not in it if no other term has begun until then.
        found = [name for name in store.files.list(OBJECTS) if SNAPSHOT_NAME.fullmatch(name)]
        unfinished = [
            name
            for folder in (OBJECTS, FOLDER)
            for name in store.files.unfinished(folder)
            if UNFINISHED_NAME.fullmatch(name)
        ]
        needed = {
            f"{OBJECTS}/{name_of_object(name)}"
            for metadata in store.completed_metadata()
            for name in decode_metadata(metadata, f"the chain of {store.url}").objects()
        }
        if not store.has_latest_term():
            return 0
        left = [*(name for name in found if name not in needed), *unfinished]
        for name in left:
            store.files.delete(name)
    except EnvironmentFault as fault:
        logger.warning("what killed processes have left in the checkpoint store stays there: %s", fault)
        return 0
    if left:
        logger.info("%d files that killed processes had left in %s were removed", len(left), store.url)
    return len(left)
