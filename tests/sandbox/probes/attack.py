"""Tries the probes whose numbers are its arguments, such as 1-68,71, and prints what came of each as a line of JSON.

The script of a job. What it attacks stands in targets.json beside it.
"""

import json
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

from tests.sandbox.probes.probing import Targets, report

SUBJECTS = ("files", "mounts", "processes", "kernel", "network", "limits")


def main() -> None:
    for subject in SUBJECTS:
        import_module(f"tests.sandbox.probes.{subject}")
    targets = Targets.read(Path(sys.argv[0]).with_name("targets.json"))
    for number in numbers(sys.argv[1]):
        print(json.dumps(report(number, targets)), flush=True)  # noqa: T201 – to the job's log


def numbers(text: str) -> Iterator[int]:
    for part in text.split(","):
        first, _, last = part.partition("-")
        yield from range(int(first), int(last or first) + 1)


if __name__ == "__main__":
    main()
