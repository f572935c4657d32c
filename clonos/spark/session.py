"""Spark as the library starts it when it is given no session, and the check of one that it is given.

Only a SparkContext is needed. Its JVM writes into a file of its own, so that the terminal stays the job's; the last
lines of that file are in the error when Spark does not start.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import socket
import sys
import tempfile
from base64 import urlsafe_b64encode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import pyspark
from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway

from clonos.core.model.errors import EnvironmentFault, JobError
from clonos.io.system.entropy import random_bytes
from clonos.spark.java import check_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    Context: TypeAlias = SparkContext
    Session: TypeAlias = SparkSession | SparkContext

logger = logging.getLogger("clonos.spark")

LOG_LINES_SHOWN: Final = 20

# The root stays at WARN: at any other level pyspark prints a line about it.
LOGGING: Final = """\
rootLogger.level = warn
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{HH:mm:ss.SSS} %p %c{1}: %m%n%ex
"""

QUICK_JAVA: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto"
"""The JVMs of one machine only bear slots: a quick start and few threads matter, the best code does not."""

SETTINGS: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.task.maxFailures": "1",  # the driver asks for a new slot itself: retries would be used up
    "spark.deploy.maxExecutorRetries": "-1",  # executors may die as often as they like
    "spark.python.worker.reuse": "false",  # one life, one process
    "spark.speculation": "false",
    "spark.locality.wait": "0",
    "spark.dynamicAllocation.enabled": "false",
}

CLUSTER_HERE: Final = re.compile(r"local-cluster\[|spark://(localhost|127\.[\d.]+|\[::1\])(:|,|$)")
"""Masters of clusters whose workers are on the driver's machine."""

SECRET_BYTES: Final = 32
PAGES_FILTER: Final = "org.apache.spark.ui.JWSFilter"
"""Lets requests to the web pages of master and workers pass that bear a token, and nobody is given one."""


class SparkNotStarted(EnvironmentFault):
    """Spark did not start."""

    master: str
    reason: str
    log: str

    def __str__(self) -> str:
        return f"Spark did not start with master {self.master!r}: {self.reason}\n{self.log}".rstrip()


class OwnContext:
    """A SparkContext that the library started, with the folder of its log. ``close`` ends what ``start`` began."""

    def __init__(self, context: SparkContext, folder: Path) -> None:
        self.context = context
        self.folder = folder

    @classmethod
    def start(cls, name: str, master: str, hash_seed: str) -> OwnContext:
        """Checks Java, launches the JVM, connects to ``master``. ``hash_seed``: PYTHONHASHSEED of its Python."""
        if active_context() is not None:
            raise JobError(
                "this process has a SparkContext already, so no second one can be started:"
                " hand its session over with job.run(spark=session), or stop it first."
            )
        check_java()
        folder = Path(tempfile.mkdtemp(prefix="clonos-spark-"))
        try:
            context = _new_context(name, master, folder)
            context.environment["PYTHONHASHSEED"] = hash_seed  # pyspark has set the driver's own, or 0
            return cls(context, folder)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise

    def close(self) -> None:
        """Stops the context and with it all its executors; removes what Spark leaves behind on this machine."""
        application = self.context.applicationId
        self.context.stop()
        shutil.rmtree(Path(os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent, "work", application), True)
        shutil.rmtree(self.folder, ignore_errors=True)


def context_of(session: Any) -> SparkContext:
    """The SparkContext of a session or context of the user's; one of Spark Connect is refused."""
    if type(session).__module__.startswith("pyspark.sql.connect"):
        raise JobError(
            "this is a Spark Connect session: it can run queries, but not the long-lived tasks that slots are."
            ' Make a classic one with SparkSession.builder.master("...").getOrCreate(), in a driver of its own.'
        )
    context = session if isinstance(session, SparkContext) else getattr(session, "sparkContext", None)
    if not isinstance(context, SparkContext):
        raise JobError(f"spark= takes a SparkSession or a SparkContext, not {type(session).__qualname__}.")
    return context


def hash_seed_of(context: SparkContext) -> str:
    """PYTHONHASHSEED of the Python workers; one that is known to all is warned of. Raises: JobError."""
    hash_seed = str(context.environment.get("PYTHONHASHSEED", "0"))
    if not hash_seed.isdecimal():
        raise JobError(
            f"the Spark session was made with PYTHONHASHSEED={hash_seed}, but all slots of a job need the same hash"
            " seed: set it to a number before the session is made."
        )
    if int(hash_seed) == 0:
        logger.warning(
            "the Spark session was made with hash seed 0, which everybody knows: who chooses the keys of records can"
            " slow the job down by keys that collide; set PYTHONHASHSEED to a secret number before the session is made"
            " (docs/security.md)"
        )
    return hash_seed


def warn_if_open(context: SparkContext) -> None:
    """A slot's birth travels through Spark: on a network that should be encrypted."""
    configuration = context.getConf()
    if configuration.get("spark.network.crypto.enabled", "false") != "true" and (
        configuration.get("spark.ssl.rpc.enabled", "false") != "true"
    ):
        logger.warning(
            "Spark's own connections are not encrypted, and the births of slots with their tokens travel over them:"
            " set spark.authenticate and spark.network.crypto.enabled, or trust the network"
        )


def warn_if_unauthenticated(context: SparkContext) -> None:
    """The ports of a cluster on this machine are within reach of all its users."""
    is_here = CLUSTER_HERE.match(str(context.master)) is not None
    if is_here and context.getConf().get("spark.authenticate", "false") != "true":
        logger.warning(
            "the Spark session on %s has no spark.authenticate, so every user of this machine can run code as yours"
            " through its ports: set spark.authenticate and spark.authenticate.secret in a spark-defaults.conf that"
            " only you can read (docs/security.md)",
            context.master,
        )


def active_context() -> SparkContext | None:
    """The SparkContext that this process has, if any."""
    return SparkContext._active_spark_context


def is_local(context: SparkContext) -> bool:
    """Whether all executors live on the driver's own machine, whatever happens."""
    return _is_local(str(context.master))


def has_executors(context: SparkContext) -> bool:
    """Whether there may be more than one process that bears workers."""
    return not is_local(context) or str(context.master).startswith("local-cluster")


def _is_local(master: str) -> bool:
    return master.startswith("local")


def import_path() -> str:
    """The driver's import path as an environment variable."""
    return os.pathsep.join(entry or os.getcwd() for entry in sys.path if not entry.endswith(".zip"))


def _new_context(name: str, master: str, folder: Path) -> SparkContext:
    settings_file, log = folder / "log4j2.properties", folder / "spark.log"
    settings_file.write_text(LOGGING, "utf-8")
    configuration = SparkConf().setAppName(name).setMaster(master)
    for key, value in (SETTINGS | _of_place(master) | {"spark.app.name": name}).items():
        configuration.set(key, value)
    quick = f"{QUICK_JAVA} " if _is_local(master) else ""
    configuration.set("spark.driver.extraJavaOptions", f"{quick}-Dlog4j2.configurationFile=file:{settings_file}")
    with open(log, "ab") as output, _variables(_environment(master)):
        try:
            gateway = None
            if SparkContext._gateway is None:  # else a JVM of an earlier run is there, and is used again
                launch: Any = launch_gateway  # untyped
                gateway = launch(configuration, {"stdout": output, "stderr": output})
            # Only now: before, they would be among the arguments of the JVM, which every user of the machine can read.
            for key, value in _secrets(master).items():
                configuration.set(key, value)
            return SparkContext(conf=configuration, gateway=gateway)
        except (PySparkException, Py4JError, OSError) as error:
            lines = log.read_text("utf-8", "replace").splitlines()[-LOG_LINES_SHOWN:]
            raise SparkNotStarted(master, f"{type(error).__name__}: {error}", "\n".join(lines)) from error


def _of_place(master: str) -> dict[str, str]:
    if not _is_local(master):
        return {}
    return {
        "spark.driver.host": "127.0.0.1",
        "spark.executorEnv.PYTHONPATH": import_path(),
        "spark.python.daemon.module": "clonos.spark.warm_daemon",
        "spark.executor.extraJavaOptions": QUICK_JAVA,
    }


def _secrets(master: str) -> dict[str, str]:
    """What keeps the machine's other users from Spark's ports: they could run code as this user by each of them."""
    if not _is_local(master):
        return {}  # the cluster has its own
    return {
        "spark.authenticate": "true",
        "spark.authenticate.secret": random_bytes(SECRET_BYTES).hex(),
        "spark.ui.filters": PAGES_FILTER,
        f"spark.{PAGES_FILTER}.param.secretKey": urlsafe_b64encode(random_bytes(SECRET_BYTES)).decode("ascii"),
    }


def _environment(master: str) -> dict[str, str]:
    """What pyspark reads from the environment. A user who has set one of them knows why."""
    wanted = {"PYSPARK_PYTHON": sys.executable}
    if _is_local(master):
        wanted |= {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_LOCAL_HOSTNAME": "localhost"}
    return {name: value for name, value in wanted.items() if name not in os.environ}


@contextmanager
def _variables(wanted: Mapping[str, str]) -> Iterator[None]:
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name in wanted:
            del os.environ[name]


def host_name() -> str:
    """This machine as others call it."""
    return socket.gethostname()
