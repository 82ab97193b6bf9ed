"""The program whose lines `benchmarks/logs.py` counts: lines at a rate, or beside computing on every core.

It imports nothing of Trainyard: the same program is a job's script and, writing to a file, the reference.
"""

import argparse
import json
import os
import sys
import time
from multiprocessing import Process
from pathlib import Path
from typing import TextIO

TICK_SECONDS = 0.01
LINE_BYTES = 55
LINES_PER_WRITE = 100  # of a flood; paced lines are written one by one
STEP = 2000  # iterations of the loop that stands for a step


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lines", type=int, default=0)
    parser.add_argument("--per-second", type=int, default=0, help="0: as fast as they are taken")
    parser.add_argument("--compute-seconds", type=float, default=0, help="compute on every core instead")
    parser.add_argument("--file", type=Path, help="where the lines go instead of standard output")
    parser.add_argument("--linger-seconds", type=float, default=0, help="continue to run, until it is cancelled")
    given = parser.parse_args()
    out = given.file.open("w", buffering=1) if given.file else sys.stdout
    print("ready", flush=True)
    time.sleep(1.0)  # the processor times of others are read now
    began, used, steps = time.perf_counter(), time.process_time(), 0
    if given.compute_seconds:
        steps = computed(given.compute_seconds, given.per_second, out)
    elif given.per_second:
        print_paced(given.lines, given.per_second, out)
    else:
        print_flood(given.lines, out)
    result = {"wall": time.perf_counter() - began, "cpu": time.process_time() - used, "steps": steps}
    print(f"result {json.dumps(result)}", flush=True)
    time.sleep(given.linger_seconds)


def print_paced(lines: int, per_second: int, out: TextIO) -> None:
    began, number = time.perf_counter(), 0
    while number < lines:
        due = min(lines, int((time.perf_counter() - began) * per_second))
        for number in range(number, due):  # noqa: B020 – it continues where it stopped
            out.write(line(number))
        number = max(number, due)
        time.sleep(TICK_SECONDS)


def print_flood(lines: int, out: TextIO) -> None:
    out.writelines(
        "".join(map(line, range(first, min(lines, first + LINES_PER_WRITE))))
        for first in range(0, lines, LINES_PER_WRITE)
    )


def line(number: int) -> str:
    return f"line {number} at {time.time():.3f} ".ljust(LINE_BYTES - 1, ".") + "\n"


def computed(seconds: float, per_second: int, out: TextIO) -> int:
    """Steps that this process does while another one computes on each further core."""
    others = [Process(target=steps_in, args=(seconds, 0, None), daemon=True) for _ in range(len(cores()) - 1)]
    for other in others:
        other.start()
    steps = steps_in(seconds, per_second, out)
    for other in others:
        other.join()
    return steps


def steps_in(seconds: float, per_second: int, out: TextIO | None) -> int:
    began, steps, written = time.perf_counter(), 0, 0
    while (passed := time.perf_counter() - began) < seconds:
        sum(n * n for n in range(STEP))
        steps += 1
        due = int(passed * per_second)
        if out is not None:
            for number in range(written, due):
                out.write(line(number))
        written = due
    return steps


def cores() -> set[int]:
    return os.sched_getaffinity(0)


if __name__ == "__main__":
    main()
