"""Becomes a command that opens nothing but by paths of its sandbox, whatever gets out of it: `-m … COMMAND…`.

For programs in a sandbox that are not ours; ours call `stay_below` themselves.
"""

import os
import sys
from pathlib import Path

from app.host.landlock import stay_below


def main() -> None:
    stay_below(Path("/"))
    os.execvp(sys.argv[1], sys.argv[1:])  # noqa: S606 – the command is ours


if __name__ == "__main__":
    main()
