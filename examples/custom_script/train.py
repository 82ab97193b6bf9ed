"""A training script of one's own: a bigram model of characters, learned by gradient descent.

Needs the standard library and trainyard.hooks only. It runs as a job (examples/jobs/custom.json),
and by itself on any JSON Lines file with a "text" in each line:

    python examples/custom_script/train.py text.jsonl
"""

import json
import math
import random
import sys
from pathlib import Path

from trainyard import hooks

LINES_PER_STEP = 8
Weights = list[list[float]]


def main() -> None:
    """Train, or resume a training that was stopped."""
    run = hooks.init(can_checkpoint=True, data_paths=sys.argv[1:])
    steps = int(run.hyperparameters.get("steps", 300))
    learning_rate = float(run.hyperparameters.get("learning_rate", 2.0))
    save_steps = int(run.hyperparameters.get("save_steps", 100))

    lines = read_lines(run.data_paths)
    alphabet = "\n" + "".join(sorted(set("".join(lines)) - {"\n"}))
    weights = [[0.0] * len(alphabet) for _ in alphabet]
    chance = random.Random(int(run.data_config.get("seed") or 42))
    done = restore(run.resume_checkpoint(), weights, chance)

    for step in range(done + 1, steps + 1):
        loss = train_step(weights, alphabet, chance.sample(lines, LINES_PER_STEP), learning_rate)
        run.log_metrics({"loss": loss}, step=step)
        run.progress(step, steps)
        stop = run.should_stop(step=step)
        if stop or step % save_steps == 0 or run.should_checkpoint():
            with run.checkpoint(step=step, metrics={"loss": loss}) as path:
                save(Path(path), step, weights, chance)
        if stop and run.should_stop():  # asked again: a pause that can't be saved is given up
            print(f"stopped after step {step} ({run.stop_reason})")
            return

    model = {"alphabet": alphabet, "weights": weights}
    (Path(run.output_dir) / "bigram.json").write_text(json.dumps(model), encoding="utf-8")
    print("sample:", sample(weights, alphabet, random.Random(0)))


def read_lines(paths: list[str]) -> list[str]:
    """One text per record, with a line end that the model can learn to write."""
    records = [json.loads(line) for path in paths for line in Path(path).read_text(encoding="utf-8").splitlines()]
    return [record["text"].replace("\n", " ") + "\n" for record in records]


def train_step(weights: Weights, alphabet: str, lines: list[str], learning_rate: float) -> float:
    """One step of gradient descent on the mean cross-entropy; returns that loss before the step."""
    index = {character: number for number, character in enumerate(alphabet)}
    pairs = [(index[a], index[b]) for line in lines for a, b in zip("\n" + line, line, strict=False)]
    gradients: dict[int, list[float]] = {}
    loss = 0.0
    for before, after in pairs:
        probabilities = softmax(weights[before])
        loss -= math.log(probabilities[after])
        row = gradients.setdefault(before, [0.0] * len(alphabet))
        for number, probability in enumerate(probabilities):
            row[number] += probability - (number == after)
    # Each row by the mean of its own pairs: rare characters learn as fast as frequent ones.
    counts = {before: sum(1 for pair in pairs if pair[0] == before) for before in gradients}
    for before, row in gradients.items():
        for number, gradient in enumerate(row):
            weights[before][number] -= learning_rate * gradient / counts[before]
    return loss / len(pairs)


def softmax(logits: list[float]) -> list[float]:
    """Probabilities of the next character."""
    highest = max(logits)
    powers = [math.exp(logit - highest) for logit in logits]
    total = sum(powers)
    return [power / total for power in powers]


def save(directory: Path, step: int, weights: Weights, chance: random.Random) -> None:
    """All state that the next start needs to resume exactly."""
    state = {"step": step, "weights": weights, "random": chance.getstate()}
    (directory / "state.json").write_text(json.dumps(state), encoding="utf-8")


def restore(path: str | None, weights: Weights, chance: random.Random) -> int:
    """Fill in a saved state and return its step; 0 without one."""
    if path is None:
        return 0
    state = json.loads((Path(path) / "state.json").read_text(encoding="utf-8"))
    weights[:] = state["weights"]
    version, numbers, gauss = state["random"]
    chance.setstate((version, tuple(numbers), gauss))
    return int(state["step"])


def sample(weights: Weights, alphabet: str, chance: random.Random) -> str:
    """A line as the model would write it."""
    text, current = "", 0
    while len(text) < 80:
        (current,) = chance.choices(range(len(alphabet)), softmax(weights[current]))
        if current == 0:
            break
        text += alphabet[current]
    return text


if __name__ == "__main__":
    main()
