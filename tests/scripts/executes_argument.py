"""Prints rank, home, working directory and own path, then executes its argument as Python code."""

import os
import sys
from pathlib import Path

print(os.environ.get("RANK"), os.environ.get("HOME"), Path.cwd(), sys.argv[0])  # noqa: T201
exec(sys.argv[1])
