"""A Kafka broker on loopback: one JVM, which is its own controller (KRaft). Its jars come from Maven Central.

It has four listeners: the second asks for a name and a password, the third sends clients to a proxy before it, and the
fourth has a certificate and asks for a name and a password.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.connectors.servers.certificates import Authority
from tests.connectors.servers.fetch import BrokerMissing, cache_folder, install
from tests.connectors.servers.server_process import START_LIMIT_S, ServerProcess

NAME = "Kafka"
VERSION = "4.1.1"
CLUSTER_ID = "Y2xvbm9zLXRlc3RzLWthZg"
USER, PASSWORD = "reader", "p4ss-of-the-tests"
# `kafka.Kafka` names the process for `tests/holdings.py`.
JAVA = (
    "java",
    "-Xmx320m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
)

POM = f"""<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>clonos.tests</groupId><artifactId>kafka</artifactId><version>1</version>
  <dependencies>
    <dependency>
      <groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>{VERSION}</version>
    </dependency>
    <dependency>
      <groupId>org.slf4j</groupId><artifactId>slf4j-simple</artifactId><version>1.7.36</version>
    </dependency>
  </dependencies>
</project>
"""
COPY_JARS = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"

CONFIGURATION = """process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{plain},SASL_PLAINTEXT://127.0.0.1:{sasl},LINKED://127.0.0.1:{linked},\
SASL_SSL://127.0.0.1:{secure},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{plain},SASL_PLAINTEXT://127.0.0.1:{sasl},LINKED://127.0.0.1:{link},\
SASL_SSL://127.0.0.1:{secure}
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT,\
LINKED:PLAINTEXT,SASL_SSL:SASL_SSL
sasl.enabled.mechanisms=PLAIN
listener.name.sasl_plaintext.plain.sasl.jaas.config={login} required user_{user}="{password}";
listener.name.sasl_ssl.plain.sasl.jaas.config={login} required user_{user}="{password}";
listener.name.sasl_ssl.ssl.keystore.type=PEM
listener.name.sasl_ssl.ssl.keystore.location={keystore}
log.dirs={logs}
auto.create.topics.enable=false
log.retention.ms=-1
broker.heartbeat.interval.ms=300
broker.session.timeout.ms=1500
group.initial.rebalance.delay.ms=0
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
share.coordinator.state.topic.num.partitions=1
share.coordinator.state.topic.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
transaction.state.log.replication.factor=1
"""
LISTENERS = ("plain", "sasl", "linked", "link", "secure", "controller")
LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


def jars() -> Path:
    """Folder of the jars."""
    return cache_folder() / f"kafka-{VERSION}"


def is_there() -> bool:
    """Whether the jars have been fetched."""
    return jars().is_dir()


def fetch() -> None:
    """Fetches the jars by Maven (43 MB)."""
    if shutil.which("mvn") is None:
        install("maven", "Maven fetches the jars of Kafka")
    cache_folder().mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache_folder()) as folder:
        (Path(folder) / "pom.xml").write_text(POM, "utf-8")
        command = ("mvn", "--quiet", "--batch-mode", COPY_JARS, "-DoutputDirectory=jars", "-DincludeScope=runtime")
        subprocess.run(command, cwd=folder, check=True, stdin=subprocess.DEVNULL)
        with suppress(OSError):  # another run was quicker
            os.rename(Path(folder) / "jars", jars())
    _archive_classes()


def _archive_classes() -> None:
    """Writes the classes that a broker has loaded beside the jars: each later start takes a second of a core less."""
    with tempfile.TemporaryDirectory() as folder:
        server = KafkaServer(Path(folder), f"-XX:ArchiveClassesAtExit={_classes()}")
        try:
            server.start()
            server.stop()
        finally:
            server.kill()


def _classes() -> Path:
    return jars() / "classes.jsa"


class KafkaServer(ServerProcess):
    """A broker with an empty folder. It keeps its ports and its data over a kill."""

    name = NAME

    def __init__(self, folder: Path, *java_options: str) -> None:
        if not is_there():
            raise BrokerMissing(NAME)
        self.folder = folder
        archived = (f"-XX:SharedArchiveFile={_classes()}",) if _classes().exists() else ()
        self._java_options = java_options or archived
        self._ports = dict(
            zip(("plain", "sasl", "linked", "link", "secure", "controller"), _free_ports(6), strict=True)
        )
        self.authority = Authority(folder / "certificates")
        certificate, key = self.authority.server()
        keystore = folder / "keystore.pem"
        keystore.write_bytes(key.read_bytes() + certificate.read_bytes())
        login = {"login": LOGIN, "user": USER, "password": PASSWORD}
        (folder / "server.properties").write_text(
            CONFIGURATION.format(**self._ports, **login, keystore=keystore, logs=folder / "logs"), "utf-8"
        )
        self._java(
            "kafka.tools.StorageTool", "format", "--cluster-id", CLUSTER_ID, "--config", "server.properties"
        ).wait()

    @property
    def servers(self) -> str:
        """Address of the listener without authentication."""
        return f"127.0.0.1:{self._ports['plain']}"

    @property
    def sasl_servers(self) -> str:
        """Address of the listener that asks for `USER` and `PASSWORD` (SASL_PLAINTEXT, PLAIN)."""
        return f"127.0.0.1:{self._ports['sasl']}"

    @property
    def secure_servers(self) -> str:
        """Address of the listener that has a certificate of ``authority`` too (SASL_SSL, PLAIN)."""
        return f"127.0.0.1:{self._ports['secure']}"

    @property
    def linked(self) -> str:
        """Address of the listener for a proxy."""
        return f"127.0.0.1:{self._ports['linked']}"

    @property
    def link(self) -> str:
        """Address at which that proxy has to listen."""
        return f"127.0.0.1:{self._ports['link']}"

    def answers(self) -> bool:
        """Whether the broker answers a request for metadata."""
        from confluent_kafka import KafkaException

        with suppress(KafkaException):
            return bool(self.admin().list_topics(timeout=2).brokers)
        return False

    def admin(self, **options: Any) -> Any:
        """A new client for topics and groups."""
        from confluent_kafka.admin import AdminClient

        quick = {"reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 200, "log_level": 0}
        return AdminClient({"bootstrap.servers": self.servers, **quick, **options})

    def create_topic(self, name: str, partitions: int = 1, **configuration: str) -> str:
        """Creates a topic; returns its name."""
        from confluent_kafka.cimpl import NewTopic

        new = NewTopic(name, partitions, 1, config={key.replace("_", "."): text for key, text in configuration.items()})
        admin = self.admin()  # kept while the request is on its way
        admin.create_topics([new])[name].result()
        return name

    def stop(self) -> None:
        """Lets the broker end in order."""
        assert self._process is not None, "it does not run"
        self._process.terminate()
        self._process.wait(START_LIMIT_S)

    def _spawn(self) -> subprocess.Popen[bytes]:
        return self._java("kafka.Kafka", "server.properties")

    def _java(self, *command: str) -> subprocess.Popen[bytes]:
        with (self.folder / "server.log").open("ab") as log:
            return subprocess.Popen(
                [*JAVA, *self._java_options, "-cp", f"{jars()}/*", *command],
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    try:
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()


def serve(folder: Path) -> None:
    """Runs a broker for a user's own trial, until it is interrupted."""
    server = KafkaServer(folder)
    server.serve(server.servers)
