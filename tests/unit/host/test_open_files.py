"""How many files a process may open, in real processes."""

import subprocess
import sys

import pytest

SCRIPT = """
import resource, sys
from app.host.process_options import allow_open_files
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 512))
allow_open_files(int(sys.argv[1]))
print(*resource.getrlimit(resource.RLIMIT_NOFILE))
"""


@pytest.mark.parametrize(("wanted", "allowed"), [(256, 256), (100_000, 512), (10, 64)])
def test_the_limit_is_raised_as_far_as_it_may_be_and_never_lowered(wanted: int, allowed: int) -> None:
    ran = subprocess.run([sys.executable, "-c", SCRIPT, str(wanted)], capture_output=True, text=True, check=True)

    assert ran.stdout.split() == [str(allowed), "512"]
