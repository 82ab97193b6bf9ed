"""The role `trainer` of examples/jobs/roles.json: learns which lever pays most from what the rollouts have played.

Each step sends the newest weights to every rollout and follows the rewards uphill (REINFORCE).
"""

import json
import math
import os
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from trainyard import hooks

LEVERS = 10
Place = dict[str, Any]


def main() -> None:
    """Train, or resume a training that was interrupted."""
    run = hooks.init(can_checkpoint=True)
    steps = int(run.hyperparameters.get("steps", 60))
    learning_rate = float(run.hyperparameters.get("learning_rate", 2.0))
    save_steps = int(run.hyperparameters.get("save_steps", 20))
    rollouts = json.loads(os.environ["TRAINYARD_TASKS"])["rollout"]
    done, weights = restore(run.resume_checkpoint())

    for step in range(done + 1, steps + 1):
        plays = [play for place in rollouts for play in ask(place, weights, seed=step * len(rollouts) + place["index"])]
        reward = sum(reward for _, reward in plays) / len(plays)
        weights = learned(weights, plays, reward, learning_rate)
        run.log_metrics({"loss": 1 - reward, "reward": reward}, step=step)
        run.progress(step, steps)
        if step % save_steps == 0:
            with run.checkpoint(step=step, metrics={"reward": reward}) as path:
                Path(path, "weights.json").write_text(json.dumps({"step": step, "weights": weights}), encoding="utf-8")

    best = max(range(LEVERS), key=lambda lever: weights[lever])
    Path(run.output_dir, "policy.json").write_text(json.dumps({"best": best, "weights": weights}), encoding="utf-8")
    print(f"lever {best} pays most", flush=True)


def restore(checkpoint: str | None) -> tuple[int, list[float]]:
    """Step and weights to resume from."""
    if checkpoint is None:
        return 0, [0.0] * LEVERS
    saved = json.loads(Path(checkpoint, "weights.json").read_text(encoding="utf-8"))
    return saved["step"], saved["weights"]


def ask(place: Place, weights: Sequence[float], *, seed: int, seconds: float = 30.0) -> list[tuple[int, float]]:
    """The plays of one rollout; one that starts, or starts again, is asked until it answers."""
    body = json.dumps({"weights": weights, "seed": seed}).encode()
    until = time.monotonic() + seconds
    while True:
        try:
            with urllib.request.urlopen(f"http://{place['address']}:{place['port']}", body, timeout=10) as answer:
                return [(lever, reward) for lever, reward in json.load(answer)["plays"]]
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.1)


def learned(
    weights: Sequence[float], plays: Sequence[tuple[int, float]], mean: float, learning_rate: float
) -> list[float]:
    """The weights after one step: levers that paid more than the mean gain, others lose."""
    total = sum(map(math.exp, weights))
    shares = [math.exp(weight) / total for weight in weights]
    gradient = [0.0] * LEVERS
    for lever, reward in plays:
        for number, share in enumerate(shares):
            gradient[number] += (reward - mean) * ((number == lever) - share) / len(plays)
    return [weight + learning_rate * slope for weight, slope in zip(weights, gradient, strict=True)]


if __name__ == "__main__":
    main()
