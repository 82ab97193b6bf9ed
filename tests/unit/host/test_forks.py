"""The end of a fork: that of a program, without taking the interpreter apart."""

import subprocess
import sys

import pytest

PRELUDE = """
import atexit, sys
from app.host.forks import run_as_program
atexit.register(print, "taken apart")
sys.excepthook = lambda kind, error, _at: print("uncaught", error)
def work():
    print("works")
"""


@pytest.mark.parametrize(
    ("end", "exit_code", "said"),
    [
        ("return 3", 3, "works\n"),
        ("raise SystemExit('why')", 1, "works\n"),
        ("raise ValueError('wrong')", 1, "works\nuncaught wrong\n"),
    ],
)
def test_program_ends_with_its_output_and_exit_code_and_nothing_after_it(end: str, exit_code: int, said: str) -> None:
    program = f"{PRELUDE}    {end}\nrun_as_program(work, at_end=lambda code: sys.stderr.write(f'ends with {{code}}'))\n"

    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)

    assert (ended.returncode, ended.stdout) == (exit_code, said)
    assert ended.stderr.endswith(f"ends with {exit_code}")
