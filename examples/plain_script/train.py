"""A training script without trainyard.hooks: a line through points, by gradient descent.

What it prints becomes metrics and progress by the patterns in examples/jobs/custom-plain.json, and what it leaves in
the directory given as its result. By itself:

    python examples/plain_script/train.py
"""

import json
import os
import random
from pathlib import Path

STEPS = 200
LEARNING_RATE = 0.1


def main() -> None:
    """Find slope and height again by which the points were made."""
    chance = random.Random(0)
    points = [(x, 3 * x - 1 + chance.gauss(0, 0.1)) for x in (chance.uniform(-1, 1) for _ in range(500))]
    slope = height = 0.0
    for step in range(1, STEPS + 1):
        errors = [(slope * x + height - y, x) for x, y in points]
        loss = sum(error**2 for error, _ in errors) / len(errors)
        slope -= LEARNING_RATE * 2 * sum(error * x for error, x in errors) / len(errors)
        height -= LEARNING_RATE * 2 * sum(error for error, _ in errors) / len(errors)
        print(f"step {step}/{STEPS} loss={loss:.5f}", flush=True)
    print(f"slope: {slope:.3f} height: {height:.3f}")
    output = Path(os.environ.get("TRAINYARD_OUTPUT_DIR", "."))
    (output / "line.json").write_text(json.dumps({"slope": slope, "height": height}), encoding="utf-8")


if __name__ == "__main__":
    main()
