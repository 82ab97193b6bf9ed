"""Inside the virtual machine: a job makes the kernel run a program of its own as root, outside of its sandbox.

It sets `kernel.core_pattern` to a program in its run directory, and crashes. First with the arguments that the sandbox
had before it covered the kernel's files, where that succeeds; then with those that it has.
"""

import subprocess
import time
from pathlib import Path

from workers.sandbox.kernel_files import kernel_arguments
from workers.sandbox.sandbox import Bubblewrap, choose_sandbox
from workers.sandbox.spec import FilesystemView, SandboxSpec

OWNED = Path("/root/owned")
RUN_DIR = Path("/data/run/jobs/job/1")
PATTERN = Path("/proc/sys/kernel/core_pattern")
ATTACK = f"""
cat > {RUN_DIR}/own.sh <<END
#!/bin/busybox sh
{{ id; grep CapEff /proc/self/status; readlink /proc/self/ns/mnt; }} > {OWNED}
END
chmod 755 {RUN_DIR}/own.sh
echo "|{RUN_DIR}/own.sh %P" > {PATTERN}
ulimit -c unlimited
sh -c 'kill -SEGV $$'
"""


def main() -> None:
    choose_sandbox("bubblewrap")  # it works here
    old, new = owned_by("before", are_kernel_files_covered=False), owned_by("now", are_kernel_files_covered=True)
    is_root = "uid=0" in old and "000001ffffffffff" in old and str(Path("/proc/1/ns/mnt").readlink()) in old
    say("before", "root of the machine" if is_root else f"not what was expected: {old!r}")
    say("now", "refused" if not new else f"root of the machine: {new!r}")
    say("verdict", "passed" if is_root and not new else "failed")


def spec() -> SandboxSpec:
    for name in ("work", "tmp"):
        (RUN_DIR / name).mkdir(parents=True, exist_ok=True)
    return SandboxSpec(view=FilesystemView(run_dir=RUN_DIR, data_dir=Path("/data")))


def owned_by(what: str, *, are_kernel_files_covered: bool) -> str:
    """What a program that the kernel started for this job left on the machine; nothing if it started none."""
    pattern = PATTERN.read_text()
    OWNED.unlink(missing_ok=True)
    with Bubblewrap().enclosed(["/bin/busybox", "sh", "-c", ATTACK], spec()) as enclosed:
        command, added = list(enclosed.command), kernel_arguments()
        at = command.index(added[1]) - 1  # the first covered file
        assert command[at : at + len(added)] == added
        if not are_kernel_files_covered:
            del command[at : at + len(added)]
        done = subprocess.run(command, pass_fds=enclosed.files, capture_output=True, text=True, check=False)
    for line in done.stderr.splitlines():
        say(what, line)
    deadline = time.monotonic() + 10.0
    while not OWNED.exists() and PATTERN.read_text() != pattern and time.monotonic() < deadline:
        time.sleep(0.1)
    time.sleep(1.0)  # it may still be writing
    PATTERN.write_text(pattern)
    return OWNED.read_text() if OWNED.exists() else ""


def say(what: str, text: str) -> None:
    print(f"{what}: {text}", flush=True)  # noqa: T201 – to the console, where the script reads it


if __name__ == "__main__":
    main()
