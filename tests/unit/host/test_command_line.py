"""What /proc shows of a process that became another program."""

import os
import subprocess
import sys
from pathlib import Path

PROGRAM = """
from pathlib import Path
from app.host.command_line import show_command_line
show_command_line(["/bin/python", "-m", "long", "x" * 9000], {"ONE": "1", "ODD": "\\udcff"})
for name in ("cmdline", "environ", "comm"):
    print(Path(f"/proc/self/{name}").read_bytes())
print(len([bytes(1000) for _ in range(5000)]), sum(range(1000)))
"""


def test_a_process_shows_any_command_line_and_environment_and_goes_on() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[3],
        env={**os.environ, "HIDDEN": "yes"},
    )

    words, variables, name, allocated = done.stdout.splitlines()
    assert words == repr(b"/bin/python\0-m\0long\0" + b"x" * 9000 + b"\0")
    assert variables == repr(b"ONE=1\0ODD=\xff\0")
    assert name == repr(b"python\n")
    assert allocated == "5000 499500"
