"""Reading /proc, where a process may have any name."""

import os
import subprocess
import sys

from app.host import processes
from tests.systems.system import wait_for

# Seventeen bytes, of which the kernel keeps fifteen: the last letter is cut in half.
NAMES_ITSELF = """
import ctypes, sys, time
ctypes.CDLL(None).prctl(15, "Trainingsprüfü".encode() + b"x", 0, 0, 0)
sys.stdout.write("named\\n")
sys.stdout.flush()
time.sleep(60)
"""


def test_name_that_is_cut_within_a_letter_hides_no_process() -> None:
    with subprocess.Popen([sys.executable, "-c", NAMES_ITSELF], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "named\n"
        name = processes.PROC / str(child.pid) / "comm"
        assert b"\xc3\n" in name.read_bytes()

        assert child.pid in processes.descendants(processes.own_identity().pid)
        assert processes.identity_of(child.pid).is_alive()
        child.kill()


def test_processes_of_another_node_on_this_machine_are_left_out() -> None:
    marks = {"TRAINYARD_JOB_ID": "job-of-two-nodes", "TRAINYARD_ATTEMPT": "1", "TRAINYARD_NODE": "n2"}
    with subprocess.Popen(["sleep", "60"], env=marks | {"PATH": os.environ["PATH"]}) as child:
        try:
            # The kernel shows a new program's environment a moment after it has closed the files of the old one.
            wait_for(
                lambda: processes.processes_of_attempt("job-of-two-nodes", 1) == [child.pid], seconds=5, what="seen"
            )
            assert processes.processes_of_attempt("job-of-two-nodes", 1, node="n2") == [child.pid]
            assert processes.kill_attempt("job-of-two-nodes", 1, node="n1", seconds=1.0)
            assert child.poll() is None
        finally:
            child.kill()
