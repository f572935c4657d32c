"""Base of both kinds of Kafka sink."""

from __future__ import annotations

from clonos.connectors.kafka.client import Cluster
from clonos.connectors.kafka.message import RowForm
from clonos.operators.lineage import Dataset

CONNECTOR = "kafka.sink"


class KafkaSink:
    """Properties of both kinds of sink."""

    connector = CONNECTOR
    mode = ""

    def __init__(self, cluster: Cluster, topic: str, form: RowForm) -> None:
        self.cluster, self.topic, self.form = cluster, topic, form
        self.takes_keys_and_times = form.takes_keys_and_times

    def __repr__(self) -> str:
        return f"{CONNECTOR}({self.topic!r}, servers={self.cluster.servers!r}, mode={self.mode!r})"

    def datasets(self) -> list[Dataset]:
        """See ``lineage.NamingConnector``."""
        return [Dataset(self.cluster.namespace, self.topic)]

    def describe_output(self) -> list[tuple[str, str]]:
        """Returns what a resume compares. The addresses of the brokers may change."""
        return [("topic", self.topic), ("mode", self.mode)]

    def check_start(self) -> None:
        """Looks for the topic, in the driver before the job begins.

        Raises: UnknownTopic, SystemRefused, SystemUnreachable: it cannot be written.
        """
        admin = self.cluster.client("AdminClient", {})
        try:
            admin.partitions(self.topic, f"looking for the topic {self.topic}")
        finally:
            admin.close()
