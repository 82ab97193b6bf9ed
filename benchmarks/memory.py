"""How far the memory estimate is from the bytes of tensors that live at the peaks of real trainings.

    python -m benchmarks.memory

Small models with the real trainers on the CPU, as in `tests/trainers/test_memory_estimate.py`. One JSON line on
standard output, a table on standard error.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.machine import description
from tests.systems.once import build_demo
from tests.trainers.memory_cases import CASES

_MB = 2**20


def main(_arguments: list[str]) -> None:
    with tempfile.TemporaryDirectory() as temporary:
        directory = Path(temporary)
        build_demo(directory / "demo")
        plans = {name: case.plan(directory / name, directory / "demo") for name, case in CASES.items()}
        file = directory / "plan.json"
        file.write_text(json.dumps(plans))
        command = [sys.executable, "-m", "tests.trainers.tracked_memory", str(file)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, timeout=1800)
        peaks = json.loads(file.with_suffix(".peaks").read_text())
        found = {name: (peaks[name], CASES[name].estimated(directory / name).total_bytes) for name in CASES}
    for name, (peak, estimated) in found.items():
        print(
            f"{name:24} {peak / _MB:8.1f} MB  estimated {estimated / _MB:8.1f}  {estimated / peak - 1:+.1%}",
            file=sys.stderr,
        )
    print(json.dumps({"machine": description(), "bytes": found}))


if __name__ == "__main__":
    main(sys.argv[1:])
