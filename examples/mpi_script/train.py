"""A training script that calls MPI: a line through points, each process with a part of them, by gradient descent.

It needs mpi4py in the environment of the node worker, and Open MPI on the node. By itself:

    mpirun -n 2 python examples/mpi_script/train.py
"""

import json
import os
import random
from pathlib import Path

from mpi4py import MPI

STEPS = 200
LEARNING_RATE = 0.1


def main() -> None:
    """Find slope and height again by which the points were made."""
    world = MPI.COMM_WORLD
    chance = random.Random(world.rank)
    points = [(x, 3 * x - 1 + chance.gauss(0, 0.1)) for x in (chance.uniform(-1, 1) for _ in range(500))]
    count = world.allreduce(len(points))
    slope = height = 0.0
    for step in range(1, STEPS + 1):
        errors = [(slope * x + height - y, x) for x, y in points]
        loss = world.allreduce(sum(error**2 for error, _ in errors)) / count
        slope -= LEARNING_RATE * 2 * world.allreduce(sum(error * x for error, x in errors)) / count
        height -= LEARNING_RATE * 2 * world.allreduce(sum(error for error, _ in errors)) / count
        if world.rank == 0:
            print(f"step {step}/{STEPS} loss={loss:.5f}", flush=True)
    if world.rank == 0:
        print(f"slope: {slope:.3f} height: {height:.3f}")
        output = Path(os.environ.get("TRAINYARD_OUTPUT_DIR", "."))
        (output / "line.json").write_text(json.dumps({"slope": slope, "height": height}), encoding="utf-8")


if __name__ == "__main__":
    main()
