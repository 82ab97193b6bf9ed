"""Which processes the kernel ends first when the whole machine has no memory left: those of jobs; see proc(5).

A process that may (CAP_SYS_RESOURCE) sets with its own score the least that it and all that it starts can go back to.
So the score is raised before a sandbox takes its capabilities away.
"""

import contextlib
from pathlib import Path

OF_SANDBOXES = 500  # as if each process used half of the machine's memory in addition
OF_RANKS = 100  # in addition: before the process that tells the supervisor of their end
_MOST = 1000
_FILE = Path("/proc/self/oom_score_adj")
# The same for a shell that is to be replaced by a sandbox.
RAISED_BY_SHELL = (
    f"read score < {_FILE} && score=$((score + {OF_SANDBOXES})) && [ $score -gt {_MOST} ] && score={_MOST}; "
    f"echo $score 2> /dev/null > {_FILE}; "
)


def raise_oom_score(by: int) -> None:
    with contextlib.suppress(OSError):  # /proc may be read-only, then the kernel decides by size
        _FILE.write_text(str(min(_MOST, int(_FILE.read_text()) + by)))
