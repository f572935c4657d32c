"""Advice about alarms, by the words of the alarm (docs/operations.md, warnings)."""

from __future__ import annotations

from typing import Final

ADVICE: Final = (
    (
        "is gone:",
        "Nothing, if it stays the only one: its tasks continue on standbys. If processes keep dying, look at the memory"
        " of their machine and at the log.",
    ),
    (
        "All tasks roll back to checkpoint",
        "Nothing is lost. More domains, or sharing_depth=none, prevent the next rollback.",
    ),
    ("continues on a standby", "Read the error: the environment of that process failed, and another took over."),
    (
        "died with all ready keepers",
        "Compare the external system with the input since that checkpoint. keepers=2 survives two losses at once.",
    ),
    (
        "could not be written; trying again",
        "Look at the checkpoint store: space, network, credentials. Output stays invisible until it works.",
    ),
    (
        "could not be committed; trying again",
        "Look at the system that the sink writes to. Output stays invisible until it works.",
    ),
    (
        "did not complete in",
        "Find the named tasks in the table: a step with busy tasks or a long backlog needs more parallelism.",
    ),
    (
        "above a soft limit",
        "Sources pause until a checkpoint frees memory. If it repeats, raise inflight_memory or log_memory, or"
        " checkpoint more often.",
    ),
    ("could not be started", "Look at the reason and at the machine that starts processes; the job goes on meanwhile."),
    ("too few standbys in another domain", "Add slots in another domain (spare_slots, domains, more executors)."),
    ("too few keepers in another domain", "Add slots in another domain (spare_slots, domains, more executors)."),
    ("have no keeper", "Add a slot: external output waits until there is one."),
    ("keepers in fewer than", "Add slots in more domains, or set fewer replicas."),
    ("sharing depth", "Set the sharing depth that the message names, or use more domains."),
    ("has been at work on the same input for", "Look at the named line of your code: it may hang."),
    (
        "wait for it",
        "See the watermark of the named source; idle_after= lets event time pass a source without records.",
    ),
    ("late records", "Raise out_of_order= of the source, or read late records by a side output."),
)
"""Words of alarms with the advice; the first that match count."""

OTHERWISE: Final = "Read the log lines around it; docs/troubleshooting.md lists the messages."


def advice_for(text: str) -> str:
    """Returns what to do about an alarm."""
    return next((advice for words, advice in ADVICE if words in text), OTHERWISE)
