"""Targets: the configuration (file, environment, command line) and scenario files."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Final

from clonos import config
from clonos.config import OptionIllTyped, OptionUnknown, resolve_settings
from clonos.core.model.errors import EnvironmentFault, JobError
from clonos_chaos.scenario.scenario_file import SHIPPED_FOLDER, ScenarioRefused, parse_scenarios
from tests.fuzz.folders import new_folder
from tests.fuzz.target import Target, of_bytes

VALUES: Final = (
    *(
        '"5s"',
        '"500ms"',
        '"1.5min"',
        '"-1s"',
        '"1e9s"',
        "0",
        "-1",
        "1e400",
        "inf",
        "nan",
        "9" * 400,
        "1.5",
        "true",
        "[]",
    ),
    *('"none"', '"full"', '""', '"128MiB"', '"1e3"', '"9' + "9" * 400 + 'TiB"', '["a", 1]', "{ a = 1 }", '"process"'),
    *('"\\u0000"', "1979-05-27T07:32:00Z", "0x7fffffffffffffff", "[[[[]]]]", "[" * 500 + "]" * 500, '"٣s"', '"²"'),
)
"""Values of TOML as options and scenarios have them, and others."""

CONFIG_ERRORS: Final = (OptionUnknown, OptionIllTyped, JobError, EnvironmentFault)


def targets() -> list[Target]:
    """Targets of this file."""
    path = new_folder() / config.FILE_NAME
    files = ["", *(f"{key} = {value}\n" for key, value in zip(config.keys(), VALUES * 9, strict=False))]
    samples = [text.encode() for text in (*files, "".join(files[1:6]))]
    words = [word.encode() for word in (*VALUES, *config.keys(), "\n[", "]\n", " = ", "'''", '"""', "#", ".")]
    scenarios = [file.read_bytes() for file in sorted(SHIPPED_FOLDER.glob("*.toml"))]
    keys = [
        b"\nmatrix = ",
        b"\nfaults = ",
        b"\nlimits = ",
        b"\nat = ",
        b"\nbefore = ",
        b"\nfault = ",
        b"\nkind = ",
        b"\ncount = ",
    ]

    def read_file(data: bytes) -> None:
        path.write_bytes(data)
        resolve_settings({}, environment={}, file=path)

    return [
        Target("clonos.toml", of_bytes(samples, words), read_file, CONFIG_ERRORS, share=5),
        Target("environment and command line", _pairs, _read_pairs, CONFIG_ERRORS, share=10),
        Target("scenarios", of_bytes(scenarios, [*words, *keys]), _read_scenario, (ScenarioRefused,), share=4),
    ]


def _pairs(random: Random) -> bytes:
    """A key and a value on each line."""
    lines = []
    for _ in range(random.randint(1, 4)):
        key = (
            random.choice(config.keys())
            if random.random() < 0.95
            else random.choice(("", "parallelismm", "CLONOS", "ä"))
        )
        value = random.choice(VALUES).strip('"')
        if random.random() < 0.3:
            at = random.randrange(len(value) + 1)
            value = value[:at] + random.choice(("-", " ", "s", "0", ".", "\0", "\ud800", "٣", "e", "_")) + value[at:]
        lines.append(f"{key}={value}")
    return "\n".join(lines).encode("utf-8", "surrogatepass")


def _read_pairs(data: bytes) -> None:
    pairs = [line.partition("=") for line in data.decode("utf-8", "surrogatepass").split("\n")]
    values = {key: value for key, _, value in pairs}
    variables = {f"{config.VARIABLE_PREFIX}{key.upper()}": value for key, value in values.items()}
    resolve_settings({}, command_line=values, environment={}, file=config.NO_FILE)
    resolve_settings({}, environment=variables, file=config.NO_FILE)


def _read_scenario(data: bytes) -> None:
    path = Path("/scenario.toml")
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = data.decode("latin-1")
    parse_scenarios(text, str(path))


__all__ = ["targets"]
