"""The generation loop of a replica beside one request after the other; alternating adapters beside their base alone.

    python -m benchmarks.serving [--model DIR] [--requests 24] [--tokens 32] [--rounds 3]

Greedy answers in float32 on one thread, by processor time; ways alternate in one process. `sampled` has another
temperature, seed and penalty for each request. Without ``--model`` the demo's model of a million weights is built. One
JSON line on standard output, a table on standard error.
"""

import argparse
import json
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM

from benchmarks.inference import engine_of, texts
from benchmarks.machine import description
from examples.build_demo_assets import MODEL, build
from workers.trainers.inference.serving.loop import GenerationLoop
from workers.trainers.inference.serving.requests import Delta, GenerationRequest, ServedSampling

ADAPTERS = 4
Way = Callable[[], object]


class Adapters:
    """By the name of their directory."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def directory(self, name: str) -> Path:
        return self._folder / name


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--requests", type=int, default=24)
    parser.add_argument("--tokens", type=int, default=32, help="of each answer")
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="trainyard-serving-") as folder:
        if given.model is None:
            build(Path(folder) / "demo")
        model = given.model or Path(folder) / "demo" / MODEL
        for number in range(ADAPTERS):
            write_adapter(model, Path(folder) / f"adapter-{number}")
        seconds = measured(ways(model, Path(folder), given.requests, given.tokens), given.rounds)
    report = {"benchmark": "serving", **vars(given), "model": str(given.model or "demo"), "seconds": seconds}
    report["machine"] = description()
    print(table(report), file=sys.stderr)
    print(json.dumps(report))


def ways(model: Path, folder: Path, requests: int, new: int) -> dict[str, Way]:
    """All of the same number of answers of one length. The bare base serves without a layer of peft in it."""
    bare, adapted = loop_of(model, folder), loop_of(model, folder)
    engine = engine_of(model, "generate")
    prompts = texts(engine, requests)
    endless = ServedSampling(max_new_tokens=new, logit_bias={int(engine.tokenizer.eos_token_id): -100.0})

    def one_by_one() -> object:
        plain: Any = engine.model
        with torch.inference_mode():
            return [
                plain.generate(torch.tensor([tokens]), max_new_tokens=new, min_new_tokens=new, do_sample=False)
                for tokens in prompts
            ]

    def request(number: int, adapters: int = 0, **options: Any) -> GenerationRequest:
        return GenerationRequest(
            prompt=tuple(prompts[number]),
            sampling=replace(endless, **options),
            seed=number,
            adapter=f"adapter-{number % adapters}" if adapters else None,
        )

    def sampled() -> None:
        numbers = range(requests)
        ask(bare, [request(each, temperature=0.5 + each / requests, frequency_penalty=0.1) for each in numbers])

    return {
        "one_by_one": one_by_one,
        "loop": lambda: ask(bare, [request(each) for each in range(requests)]),
        "sampled": sampled,
        "one_adapter": lambda: ask(adapted, [request(each, 1) for each in range(requests)]),
        "adapters": lambda: ask(adapted, [request(each, ADAPTERS) for each in range(requests)]),
    }


def loop_of(model: Path, adapters: Path) -> GenerationLoop:
    loop = GenerationLoop(engine_of(model, "generate"), Adapters(adapters), max_waiting=1000, on_step=lambda _: None)
    loop.start()
    return loop


def ask(loop: GenerationLoop, requests: list[GenerationRequest]) -> None:
    """All at once, until all have ended."""
    ended = threading.Semaphore(0)

    def on_delta(delta: Delta) -> None:
        if delta.refused:
            raise RuntimeError(delta.refused.message)
        if delta.is_last:
            ended.release()

    for request in requests:
        loop.submit(request, on_delta)
    for _ in requests:
        ended.acquire()


def write_adapter(model: Path, directory: Path) -> None:
    """A LoRA of all linear layers, as trainings here have it; its numbers don't matter."""
    base = AutoModelForCausalLM.from_pretrained(model)
    get_peft_model(base, LoraConfig(r=8, target_modules="all-linear", task_type="CAUSAL_LM")).save_pretrained(
        str(directory)
    )


def measured(found: Mapping[str, Way], rounds: int) -> dict[str, float]:
    """Medians of processor time; a round before is not measured."""
    times: dict[str, list[float]] = {name: [] for name in found}
    for _ in range(rounds + 1):
        for name, way in found.items():
            begun = time.process_time()
            way()
            times[name].append(time.process_time() - begun)
    return {name: statistics.median(each[1:]) for name, each in times.items()}


def table(report: Mapping[str, Any]) -> str:
    seconds = report["seconds"]
    rows = [
        ("loop, times as fast as one by one", seconds["one_by_one"] / seconds["loop"], "≥ 5"),
        ("sampled, times as fast as one by one", seconds["one_by_one"] / seconds["sampled"], ""),
        ("one adapter, time of the loop's", seconds["one_adapter"] / seconds["loop"], ""),
        (f"{ADAPTERS} adapters, time of the loop's", seconds["adapters"] / seconds["loop"], "≤ 1.6"),
    ]
    return "\n".join(
        ["| | | goal |", "|---|---|---|", *(f"| {name} | {value:.2f} | {goal} |" for name, value, goal in rows)]
    )


if __name__ == "__main__":
    main(sys.argv[1:])
