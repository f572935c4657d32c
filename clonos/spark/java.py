"""Java for Spark: found by JAVA_HOME first, then on the PATH."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from clonos.core.model.errors import EnvironmentFault

JAVA_NEEDED: Final = 17
ANSWER_TIMEOUT_S: Final = 60.0


class JavaUnfit(EnvironmentFault):
    """No Java that Spark can run on was found."""

    found: str
    command: str

    def __str__(self) -> str:
        return (
            f"Spark needs Java {JAVA_NEEDED} or later, but {self.found}.\n"
            f"  To install it: {self.command}\n"
            "  Then try again; if JAVA_HOME is set, it must point to this Java.\n"
            "  Process slots need no Java: clonos run --slots process, clonos demo --slots process."
        )


def check_java() -> None:
    """Checks that ``java`` can run Spark. Raises: JavaUnfit when it is missing, does not run, or is older than 17."""
    java = _command()
    version = major_version(_version_output(java))
    if version is None:
        raise JavaUnfit(f"no working Java was found as {java!r}", install_command())
    if version < JAVA_NEEDED:
        raise JavaUnfit(f"{java!r} is Java {version}", install_command())


def has_java() -> bool:
    """Returns True when there is a ``java``, of whichever version."""
    return shutil.which(_command()) is not None


def java_path() -> Path | None:
    """Returns the program that ``java`` is, behind all links; None without one."""
    found = shutil.which(_command())
    return None if found is None else Path(found).resolve()


def _command() -> str:
    home = os.environ.get("JAVA_HOME")
    return os.path.join(home, "bin", "java") if home else "java"


def major_version(output: str) -> int | None:
    """Returns the major version in the output of ``java -version``: 17 for "17.0.15", 8 for "1.8.0_402", None without
    one."""
    match = re.search(r'version "(?:1\.)?(\d+)', output)
    return int(match[1]) if match else None


def install_command() -> str:
    """Returns the command that installs Java on this machine."""
    if sys.platform == "darwin":
        return f"brew install openjdk@{JAVA_NEEDED}"
    if shutil.which("apt-get"):
        return f"sudo apt-get update && sudo apt-get install -y openjdk-{JAVA_NEEDED}-jre-headless"
    if shutil.which("dnf"):
        return f"sudo dnf install -y java-{JAVA_NEEDED}-openjdk-headless"
    if shutil.which("apk"):
        return f"sudo apk add openjdk{JAVA_NEEDED}-jre-headless"
    return f"install a Java runtime {JAVA_NEEDED} or later from https://adoptium.net"


def _version_output(java: str) -> str:
    try:
        answer = subprocess.run(
            [java, "-version"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=ANSWER_TIMEOUT_S,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return answer.stdout
