"""``python -m clonos.cli``: the command line."""

import sys

from clonos.cli import main

sys.exit(main())
