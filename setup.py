"""The native kernels: an optional extension, built by an ordinary installation where a C compiler is found.

Everything else about the package is in setup.cfg, which cannot describe an extension.
"""

import sys
from pathlib import Path

from setuptools import Extension, setup

FOLDER = Path("clonos", "kernels")
NAMES = (
    *("_native", "int64_index", "bytes_index", "gather", "gather_parts", "key_groups"),
    *("cells", "ranks", "records", "rows", "running", "texts", "timed_runs"),
)

# The kernels read the words of Arrow, and hash keys, in this order of bytes.
IS_LITTLE_ENDIAN = sys.byteorder == "little"

setup(
    ext_modules=[
        Extension(
            "clonos.kernels._native",
            sources=[str(FOLDER / f"{name}.c") for name in NAMES],
            depends=[str(FOLDER / "native.h")],
            optional=True,
        )
    ]
    if IS_LITTLE_ENDIAN
    else []
)
