"""Errors of Kafka sources and sinks: the class says whose fault it is, the message says where and what to do."""

from __future__ import annotations

from typing import Final

from clonos.connectors.kit.external_system import ExternalSystem, MessageRefused, MessagesLost, NumberLost
from clonos.core.model.errors import EnvironmentFault, JobError

KAFKA: Final = ExternalSystem(
    "Kafka",
    module="confluent_kafka",
    package="confluent-kafka",
    extra="kafka",
    unreachable_advice="Nothing is lost: check that the brokers run and are reachable from every process of the job,"
    " then resume.",
    refused_advice="Correct the credentials or the rights, or the options= of the connector.",
)


class UnknownTopic(JobError):
    """A topic does not exist, or is hidden from this user."""

    servers: str
    topic: str
    similar: str = ""

    def __str__(self) -> str:
        hint = f" Did you mean {self.similar}?" if self.similar else ""
        return f"Kafka at {self.servers} has no topic {self.topic!r}.{hint} Create it first, or correct its name."


def records_lost(topic: str, partition: int, offset: int, first: int, end: int) -> MessagesLost:
    """Returns the error of a source whose next records are no longer in the topic."""
    reason = (
        f"Kafka has the offsets from {first} up to {end}: records were deleted by retention, or the topic was created"
        " anew"
    )
    return MessagesLost(f"the topic {topic}", f"offset {offset} of partition {partition}", reason)


class TopicMadeAnew(EnvironmentFault):
    """A topic was deleted and made anew under the same name since the job began to read it."""

    topic: str
    began_id: str
    now_id: str

    def __str__(self) -> str:
        return (
            f"the topic {self.topic} was deleted and made anew: the job began to read the topic with the id"
            f" {self.began_id}, and now that name has the id {self.now_id}. Offsets of the first topic mean nothing in"
            " the new one, so the job does not go on at them. To read the new topic from its first record, start"
            " afresh with --overwrite."
        )


def number_lost(group: str, written: int) -> NumberLost:
    """Returns the error of a sink task whose number is not there, although it has written rows."""
    reason = "the offsets of the group have expired or were deleted, or the topic was created anew"
    advice = "Set offsets.retention.minutes of the brokers above the longest time that a job may stand still"
    return NumberLost(f"the group {group} of Kafka", written, reason, advice)


class GroupForeign(JobError):
    """Someone else has committed an offset to the group of a sink task."""

    group: str
    metadata: str

    def __str__(self) -> str:
        return (
            f"the group {self.group} has an offset that no sink has committed (its metadata is"
            f" {self.metadata[:100]!r}): keep other consumers out of it, and delete the group or start afresh."
        )


def message_refused(topic: str, row: str, reason: str) -> MessageRefused:
    """Returns the error for a row that the brokers do not take."""
    advice = "Drop or cut such rows in a step before the sink, or raise the limit of the topic and of the sink."
    if "partition" in reason.lower():
        advice = "Correct partition= of the sink, or the number of partitions of the topic."
    elif "timestamp" in reason.lower():
        advice = "Correct timestamp= of the sink, or the limits of the topic for timestamps."
    return MessageRefused(f"the topic {topic}", row, reason, f"No row of this transaction was written. {advice}")
