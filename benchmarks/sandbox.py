"""What a sandbox adds to the start and end of a program, and how much of that its parts take.

    python -m benchmarks.sandbox [--rounds 60]

`true` alone, in its control group, and in sandboxes as supervisors make them; in each round every one of them, in a
changing order; also in an image that is unpacked already (of a static busybox, where the machine has it and may mount
overlays), whose `true` is another program. The clock runs from the preparation of the command line (mounts, filter of
system calls, group) to the end of the program. ``added`` is the difference to `true` alone in the same round.
One JSON line on standard output, a table on standard error.
"""

import argparse
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from app.host.overlays import lack_of_overlays
from app.host.own_users import lack_of_own_users, uid_range
from benchmarks.machine import description
from workers.sandbox.control_groups import GroupLimits, find_hierarchies, joining
from workers.sandbox.own_user import take_user
from workers.sandbox.sandbox import Bubblewrap, ProcessGroup, Sandbox
from workers.sandbox.spec import FilesystemView, ImageRoot, SandboxSpec

PROGRAM = ("true",)
LIMITS = GroupLimits(memory_mb=1024, processes=100, cpus=1.0)
ALONE = "alone"
UIDS = "700000-765535"
BUSYBOX = Path("/bin/busybox")  # of Debian's busybox-static


def main(arguments: Sequence[str] = ()) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=60)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="trainyard-sandbox-") as folder:
        found = measured(Path(folder), options.rounds)
    figures = {}
    for name, seconds in found.items():
        added = [mine - alone for mine, alone in zip(seconds, found[ALONE], strict=True)]
        figures[name] = {"ms": _milliseconds(seconds), "added_ms": _milliseconds(added)}
        print(f"{name:34} {figures[name]['ms']} added {figures[name]['added_ms']}", file=sys.stderr)
    print(json.dumps({"benchmark": "sandbox", "rounds": options.rounds, **figures, "machine": description()}))


def measured(folder: Path, rounds: int) -> dict[str, list[float]]:
    """What is started → seconds of each round."""
    view = FilesystemView(run_dir=folder / "run", data_dir=folder / "data")
    for path in (view.run_dir, view.data_dir):
        path.mkdir()
    starts: dict[str, Callable[[], object]] = {
        ALONE: partial(subprocess.run, PROGRAM, check=True),
        "sandbox, the machine's network": partial(start, Bubblewrap(), SandboxSpec(view=view, own_network=False)),
        "sandbox": partial(start, Bubblewrap(), SandboxSpec(view=view)),
    }
    if not lack_of_own_users(UIDS, folder):
        starts["sandbox with a user of its own"] = partial(start_as_own_user, view)
    if find_hierarchies().parents:
        starts["in a control group"] = partial(start_in_group, ProcessGroup(), SandboxSpec(view=view))
        starts["sandbox in a control group"] = partial(start_in_group, Bubblewrap(), SandboxSpec(view=view))
    if BUSYBOX.exists() and not lack_of_overlays(folder):
        in_image = SandboxSpec(view=image_view(folder))
        starts["sandbox of an image"] = partial(start, Bubblewrap(), in_image)
        if find_hierarchies().parents:
            starts["the same in a control group"] = partial(start_in_group, Bubblewrap(), in_image)
    found: dict[str, list[float]] = {name: [] for name in starts}
    for number in range(rounds + 1):
        for name in random.sample(list(starts), len(starts)):
            began = time.perf_counter()
            starts[name]()
            if number:  # the first round compiles the filter and fills caches
                found[name].append(time.perf_counter() - began)
    return found


def image_view(folder: Path) -> FilesystemView:
    """An attempt whose root is an image of busybox alone."""
    root, run_dir = folder / "image", folder / "run-in-image"
    (root / "bin").mkdir(parents=True)
    run_dir.mkdir()
    shutil.copy(BUSYBOX, root / "bin" / "busybox")
    (root / "bin" / "true").symlink_to("busybox")
    return FilesystemView(run_dir=run_dir, data_dir=folder / "data", image=ImageRoot(directory=root))


def start(sandbox: Sandbox, spec: SandboxSpec) -> None:
    """Run the program in the sandbox to its end."""
    with sandbox.enclosed(PROGRAM, spec) as enclosed:
        command = joining(spec.joined, enclosed.command)
        subprocess.run(command, pass_fds=enclosed.files, cwd=spec.view.run_dir, check=True)


def start_as_own_user(view: FilesystemView) -> None:
    """As the first user of the range that is free."""
    user = take_user(uid_range(UIDS))
    start(Bubblewrap(), SandboxSpec(view=view, user=user))
    user.release()


def start_in_group(sandbox: Sandbox, spec: SandboxSpec) -> None:
    """The same in a control group with limits, which is removed afterwards."""
    group = find_hierarchies().make(f"benchmark-{os.getpid()}", LIMITS)
    start(sandbox, SandboxSpec(view=spec.view, own_network=spec.own_network, joined=group.joined))
    group.remove()


def _milliseconds(seconds: Sequence[float]) -> dict[str, float]:
    ordered = sorted(1000 * value for value in seconds)
    return {"median": round(statistics.median(ordered), 1), "p95": round(ordered[int(0.95 * len(ordered))], 1)}


if __name__ == "__main__":
    main(sys.argv[1:])
