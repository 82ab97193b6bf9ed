"""The kernel fence: armed it kills, also a stopped process; re-armed in time or disarmed it does not."""

import os
import signal
import subprocess
import sys
import textwrap
import time

PROGRAM = """
    import os, signal, sys, time
    from workers.supervisor.control.lease_fence import Fence, boot_seconds
    fence = Fence()
    {body}
    print("alive", flush=True)
"""


def run(body, **options):
    program = textwrap.dedent(PROGRAM).replace("{body}", body)
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=20, check=False, **options
    )


def test_fence_kills_after_its_seconds():
    began = time.monotonic()

    ended = run("fence.arm(boot_seconds(), 0.4); time.sleep(10)")

    assert ended.returncode == -signal.SIGKILL
    assert time.monotonic() - began < 5


def test_fence_counts_from_the_moment_of_sending():
    ended = run("fence.arm(boot_seconds() - 5, 4.9); time.sleep(10)")

    assert ended.returncode == -signal.SIGKILL


def test_rearmed_fence_does_not_kill():
    ended = run("fence.arm(boot_seconds(), 0.2); fence.arm(boot_seconds(), 60); time.sleep(0.4)")

    assert ended.returncode == 0
    assert "alive" in ended.stdout


def test_disarmed_fence_does_not_kill():
    ended = run("fence.arm(boot_seconds(), 0.2); fence.disarm(); time.sleep(0.4)")

    assert ended.returncode == 0


def test_fence_kills_a_stopped_process():
    program = textwrap.dedent(PROGRAM).replace(
        "{body}", "fence.arm(boot_seconds(), 0.5); print('armed', flush=True); time.sleep(10)"
    )
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()

    os.kill(process.pid, signal.SIGSTOP)

    assert process.wait(5) == -signal.SIGKILL
    process.stdout.close()
