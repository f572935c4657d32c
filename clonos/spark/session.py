"""SparkContext that the library starts when it is given no session, and the check of a given session.

The JVM logs to its own file, so that the terminal is free for the job; when Spark does not start, the error has the
last lines of that file.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import socket
import sys
import tempfile
import threading
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from warnings import catch_warnings, filterwarnings

import pyspark
from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway

from clonos.core.model.errors import EnvironmentFault, JobError
from clonos.io.system.entropy import random_bytes
from clonos.spark.class_archive import JvmRole, archive_option
from clonos.spark.java import check_java, has_java

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    Context: TypeAlias = SparkContext
    SqlSession: TypeAlias = SparkSession
    Frame: TypeAlias = DataFrame
    Session: TypeAlias = SparkSession | SparkContext

logger = logging.getLogger("clonos.spark")

LOG_LINES_SHOWN: Final = 20
USED_WITH_JVM: Final = "pyspark.testing.utils"
"""Module that pyspark imports at the first value for the JVM, with pandas if that is installed."""

START_TAKES: Final = "10 to 30 s"

# The root logger stays at WARN, because pyspark prints a line about any other level.
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
"""Options of local JVMs, which only start slots: a quick start and few threads matter, peak performance does not."""

SETTINGS: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.task.maxFailures": "1",  # the driver requests a new slot itself, without Spark's retries
    "spark.deploy.maxExecutorRetries": "-1",  # no limit for failures of executors, in a standalone cluster
    "spark.executor.maxNumFailures": "2147483647",  # the same on YARN and Kubernetes
    "spark.python.worker.reuse": "false",  # one process per slot
    "spark.speculation": "false",
    "spark.locality.wait": "0",
    "spark.dynamicAllocation.enabled": "false",
}

CLUSTER_HERE: Final = re.compile(r"local-cluster\[|spark://(localhost|127\.[\d.]+|\[::1\])(:|,|$)")
"""Masters of clusters whose workers run on the driver's machine."""

SECRET_BYTES: Final = 32
PAGES_FILTER: Final = "org.apache.spark.ui.JWSFilter"
"""Filter that admits to the web pages of master and workers only requests with a token, which nobody is given."""


class SparkNotStarted(EnvironmentFault):
    """Spark did not start. ``log``: the last lines of its log."""

    master: str
    reason: str
    log: str

    def __str__(self) -> str:
        return f"Spark did not start with master {self.master!r}: {self.reason}\n{self.log}".rstrip()


class OwnContext:
    """SparkContext that the library started, with the folder of its log."""

    def __init__(self, context: SparkContext, folder: Path) -> None:
        self.context = context
        self.folder = folder

    @classmethod
    def start(
        cls, name: str, master: str, hash_seed: str, option_of: Callable[[JvmRole], str] = archive_option
    ) -> OwnContext:
        """Launches the JVM and connects to ``master``. ``hash_seed``: PYTHONHASHSEED of the Python workers.
        ``option_of``: what each local JVM has to do with its class archive.

        Raises: JobError when this process has a SparkContext already; JavaUnfit; SparkNotStarted.
        """
        if active_context() is not None:
            raise JobError(
                "this process has a SparkContext already, so Clonos cannot start another one:"
                " pass its session with job.run(spark=session), or stop it first."
            )
        if not has_java():
            check_java()
        logger.warning("starting Spark on %s, which takes %s; --slots process takes about 1 s", master, START_TAKES)
        folder = Path(tempfile.mkdtemp(prefix="clonos-spark-"))
        try:
            context = _new_context(name, master, folder, option_of)
            context.environment["PYTHONHASHSEED"] = hash_seed  # pyspark has set the driver's own, or 0
            return cls(context, folder)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise

    def close(self) -> None:
        """Stops the context and all its executors, and removes the files that Spark leaves on this machine."""
        application = self.context.applicationId
        self.context.stop()
        shutil.rmtree(Path(os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent, "work", application), True)
        shutil.rmtree(self.folder, ignore_errors=True)


def context_of(session: Any) -> SparkContext:
    """Returns the SparkContext of a session or context of the user.

    Raises: JobError for a Spark Connect session, or an object of another class.
    """
    if type(session).__module__.startswith("pyspark.sql.connect"):
        raise JobError(
            "spark= is a Spark Connect session, which can run queries, but not the long-lived tasks that slots are."
            ' Create a classic session with SparkSession.builder.master("...").getOrCreate() in a separate driver.'
        )
    context = session if isinstance(session, SparkContext) else getattr(session, "sparkContext", None)
    if not isinstance(context, SparkContext):
        raise JobError(f"spark= takes a SparkSession or a SparkContext, not {type(session).__qualname__}.")
    return context


def hash_seed_of(context: SparkContext) -> str:
    """Returns PYTHONHASHSEED of the session's Python workers, and warns when it is 0, because that is publicly known.

    Raises: JobError when it is no number.
    """
    hash_seed = str(context.environment.get("PYTHONHASHSEED", "0"))
    if not hash_seed.isdecimal():
        raise JobError(
            f"the Spark session uses PYTHONHASHSEED={hash_seed}, but all slots of a job need the same hash"
            " seed: set it to a number before you create the session."
        )
    if int(hash_seed) == 0:
        logger.warning(
            "the Spark session uses hash seed 0, which is publicly known, so a sender of records can slow the job down"
            " by keys that collide. Set PYTHONHASHSEED to a secret number before you create the session"
            " (docs/security.md)"
        )
    return hash_seed


def warn_if_open(context: SparkContext) -> None:
    """Warns when Spark's own connections are not encrypted, because launch specs of slots are sent over them."""
    configuration = context.getConf()
    if configuration.get("spark.network.crypto.enabled", "false") != "true" and (
        configuration.get("spark.ssl.rpc.enabled", "false") != "true"
    ):
        logger.warning(
            "Spark's own connections are not encrypted, but launch specs of slots and their tokens are sent over them:"
            " set spark.authenticate and spark.network.crypto.enabled, unless you trust the network"
        )


def warn_if_unauthenticated(context: SparkContext) -> None:
    """Warns when a cluster on this machine has no authentication, because all users of the machine can reach its
    ports."""
    is_here = CLUSTER_HERE.match(str(context.master)) is not None
    if is_here and context.getConf().get("spark.authenticate", "false") != "true":
        logger.warning(
            "the Spark session on %s has no spark.authenticate, so every user of this machine can run code as you"
            " through its ports: set spark.authenticate and spark.authenticate.secret in a spark-defaults.conf that"
            " only you can read (docs/security.md)",
            context.master,
        )


def active_context() -> SparkContext | None:
    """Returns the SparkContext of this process, if it has one."""
    return SparkContext._active_spark_context


def is_local(context: SparkContext) -> bool:
    """Returns True when all executors run on the driver's machine at all times."""
    return _is_local(str(context.master))


def has_executors(context: SparkContext) -> bool:
    """Returns True when the workers may run under more than one executor process."""
    return not is_local(context) or str(context.master).startswith("local-cluster")


def _is_local(master: str) -> bool:
    return master.startswith("local")


def import_path() -> str:
    """Returns the driver's import path, as the value of an environment variable."""
    return os.pathsep.join(entry or os.getcwd() for entry in sys.path if not entry.endswith(".zip"))


def _new_context(name: str, master: str, folder: Path, option_of: Callable[[JvmRole], str]) -> SparkContext:
    settings_file, log = folder / "log4j2.properties", folder / "spark.log"
    settings_file.write_text(LOGGING, "utf-8")
    configuration = SparkConf().setAppName(name).setMaster(master)
    for key, value in (SETTINGS | _local_settings(master, option_of) | {"spark.app.name": name}).items():
        configuration.set(key, value)
    quick = f"{QUICK_JAVA} {option_of(JvmRole.DRIVER)} " if _is_local(master) else ""
    configuration.set("spark.driver.extraJavaOptions", f"{quick}-Dlog4j2.configurationFile=file:{settings_file}")
    with open(log, "ab") as output, _variables(_environment(master)):
        try:
            gateway = None
            if SparkContext._gateway is None:  # else the JVM of an earlier run is reused
                with _importing(USED_WITH_JVM):
                    launch: Any = launch_gateway  # untyped
                    gateway = launch(configuration, {"stdout": output, "stderr": output})
            # After the launch, else they would be arguments of the JVM, which every user of the machine can read.
            for key, value in _secrets(master).items():
                configuration.set(key, value)
            return SparkContext(conf=configuration, gateway=gateway)
        except (PySparkException, Py4JError, OSError) as error:
            check_java()  # only now: a small program in Java takes a while to start
            lines = log.read_text("utf-8", "replace").splitlines()[-LOG_LINES_SHOWN:]
            raise SparkNotStarted(master, f"{type(error).__name__}: {error}", "\n".join(lines)) from error


@contextmanager
def _importing(name: str) -> Iterator[None]:
    """Imports a module while the block waits for another process. Whatever needs the module sees its errors."""

    def load() -> None:
        with suppress(Exception):
            import_module(name)

    with quiet_about_pandas():  # around the life of the thread: filters belong to the process
        thread = threading.Thread(target=load, name=f"import of {name}", daemon=True)
        thread.start()
        try:
            yield
        finally:
            thread.join()


@contextmanager
def quiet_about_pandas() -> Iterator[None]:
    """Hides in the block that PySpark was not tried with this version of pandas: it asks although no pandas is used."""
    with catch_warnings():
        filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
        yield


def _local_settings(master: str, option_of: Callable[[JvmRole], str]) -> dict[str, str]:
    if not _is_local(master):
        return {}
    return {
        "spark.driver.host": "127.0.0.1",
        "spark.executorEnv.PYTHONPATH": import_path(),
        "spark.python.daemon.module": "clonos.spark.warm_daemon",
        "spark.executor.extraJavaOptions": f"{QUICK_JAVA} {option_of(JvmRole.EXECUTOR)}",
    }


def _secrets(master: str) -> dict[str, str]:
    """Returns the settings that keep other users of the machine from Spark's ports, by which they could run code as
    this user."""
    if not _is_local(master):
        return {}  # the cluster has its own secrets
    return {
        "spark.authenticate": "true",
        "spark.authenticate.secret": random_bytes(SECRET_BYTES).hex(),
        "spark.ui.filters": PAGES_FILTER,
        f"spark.{PAGES_FILTER}.param.secretKey": urlsafe_b64encode(random_bytes(SECRET_BYTES)).decode("ascii"),
    }


def _environment(master: str) -> dict[str, str]:
    """Returns variables that pyspark reads, without those that the user has set."""
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
    """Returns the host name of this machine."""
    return socket.gethostname()
