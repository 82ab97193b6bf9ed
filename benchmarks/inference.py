"""The engine of inference jobs beside one request after the other.

    python -m benchmarks.inference [--model DIR] [--requests 32] [--tokens 32] [--rounds 3]

Greedy answers by the engine and by `generate` of transformers, and mean vectors by the engine and by a forward pass for
each text: the same model in float32 on one thread, alternating in one process, by processor time, which says more than
the clock where others work too. Without ``--model`` the demo's model of a million weights is built. One JSON line on
standard output, a table on standard error.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from benchmarks.machine import description
from examples.build_demo_assets import MODEL, build
from trainyard.protocol.run_spec import RunSpec
from workers.trainers.inference.engine.interface import Pooling, Prompt, Sampling
from workers.trainers.inference.engine.transformers_engine import TransformersEngine

GOALS = {"generate": 5.0, "embeddings": 4.0}  # times as fast as one after the other
TEXT = "def get_value_{number}(self, default=None): "
LENGTHS = 3  # prompts have the text up to so many times


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--requests", type=int, default=32)
    parser.add_argument("--tokens", type=int, default=32, help="of each answer")
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="trainyard-inference-") as folder:
        if given.model is None:
            build(Path(folder) / "demo")
        model = given.model or Path(folder) / "demo" / MODEL
        ways = {"generate": answers(model, given.requests, given.tokens), "embeddings": vectors(model, given.requests)}
        measured = {name: compared(*pair, rounds=given.rounds) for name, pair in ways.items()}
    report = {"benchmark": "inference", **vars(given), "model": str(given.model or "demo"), "engine": measured}
    report["machine"] = description()
    print(table(report), file=sys.stderr)
    print(json.dumps(report))


Way = Callable[[], object]


def answers(model: Path, requests: int, new: int) -> tuple[Way, Way]:
    """Answers by the engine, and one after the other; both never end early."""
    engine = engine_of(model, "generate")
    prompts = texts(engine, requests)
    ends = [engine.tokenizer.eos_token_id]
    sampling = Sampling(max_new_tokens=new)

    def together() -> object:
        return engine.generate([Prompt(tokens=tokens) for tokens in prompts], sampling)

    def one_by_one() -> object:
        plain: Any = engine.model
        with torch.inference_mode():
            return [
                plain.generate(torch.tensor([tokens]), max_new_tokens=new, do_sample=False, eos_token_id=ends)
                for tokens in prompts
            ]

    return together, one_by_one


def vectors(model: Path, requests: int) -> tuple[Way, Way]:
    """Mean vectors by the engine, and one after the other."""
    engine = engine_of(model, "embed")
    found = texts(engine, requests)

    def together() -> object:
        return engine.embeddings(found, Pooling())

    def one_by_one() -> object:
        plain: Any = engine.model
        with torch.inference_mode():
            return [plain(torch.tensor([tokens])).last_hidden_state[0].mean(dim=0).numpy() for tokens in found]

    return together, one_by_one


def engine_of(model: Path, task: str) -> TransformersEngine:
    spec = RunSpec(
        run_dir=Path(),
        framework="TRANSFORMERS",
        training_type="BATCH",
        model_path=str(model),
        inference={"task": {"type": task}},
    )
    return TransformersEngine(spec)


def texts(engine: TransformersEngine, number: int) -> list[list[int]]:
    """Token ids of texts of mixed lengths."""
    return [list(engine.tokenizer(TEXT.format(number=i) * (1 + i % LENGTHS)).input_ids[:256]) for i in range(number)]


def compared(together: Way, one_by_one: Way, *, rounds: int) -> dict[str, float]:
    """Medians of the processor time of both, which alternate; a round before is not measured."""
    times: dict[Way, list[float]] = {together: [], one_by_one: []}
    for _ in range(rounds + 1):
        for way, found in times.items():
            begun = time.process_time()
            way()
            found.append(time.process_time() - begun)
    ours, plain = (statistics.median(found[1:]) for found in times.values())
    return {"engine_seconds": ours, "one_by_one_seconds": plain, "times_as_fast": plain / ours}


def table(report: Mapping[str, Any]) -> str:
    lines = ["| | engine | one by one | times as fast | goal |", "|---|---|---|---|---|"]
    rows: Sequence[tuple[str, Mapping[str, float]]] = list(report["engine"].items())
    lines += [
        f"| {name} | {row['engine_seconds']:.2f} s | {row['one_by_one_seconds']:.2f} s | {row['times_as_fast']:.1f} "
        f"| ≥ {GOALS[name]} |"
        for name, row in rows
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    main(sys.argv[1:])
