"""A batch of requests in OpenAI's form beside the native batch job that asks the same.

    python -m benchmarks.batches [--model DIR] [--requests 64] [--tokens 64] [--rounds 5] [--device cpu|cuda]

What a rank does with a shard: read and tokenize its records, have them answered, and write its part; the same prompts
and lengths of answers, in float32 on one thread, alternating in one process, by the clock. On a CPU by processor time,
which says more where others work too. Without ``--model`` the demo's model of a million weights is built. One JSON line
on standard output, a table on standard error.
"""

import argparse
import json
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.machine import description
from examples.build_demo_assets import MODEL, build
from trainyard.protocol.run_spec import RunSpec
from workers.trainers.inference.engine.interface import never
from workers.trainers.inference.engines import load_engine
from workers.trainers.inference.inputs import Inputs, planned
from workers.trainers.inference.parts import part_of, write_part
from workers.trainers.inference.tasks.choice import task_of
from workers.trainers.inference.tasks.task import answer_shard
from workers.trainers.inference.writers.choice import writer_of

GOAL = 0.95  # of the native job's speed
CHAT, COMPLETIONS, EMBEDDINGS = "/v1/chat/completions", "/v1/completions", "/v1/embeddings"
TEXT = "def get_value_{number}(self, default=None): "
LENGTHS = 3  # prompts have the text up to so many times
Row = Mapping[str, Any]
Way = Callable[[], None]


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--requests", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=64, help="most of each answer")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="trainyard-batches-") as folder:
        if given.model is None:
            build(Path(folder) / "demo")
        model = given.model or Path(folder) / "demo" / MODEL
        clock = time.process_time if given.device == "cpu" else time.perf_counter
        found = {
            endpoint: compared(*ways(Path(folder), model, endpoint, given), rounds=given.rounds, clock=clock)
            for endpoint in (CHAT, COMPLETIONS, EMBEDDINGS)
        }
    report = {"benchmark": "batches", **vars(given), "model": str(given.model or "demo"), "endpoints": found}
    report["machine"] = description()
    print(table(report), file=sys.stderr)
    print(json.dumps(report))


def ways(folder: Path, model: Path, endpoint: str, given: argparse.Namespace) -> tuple[Way, Way]:
    """(the batch of requests, the native job)."""
    texts = [TEXT.format(number=number) * (1 + number % LENGTHS) for number in range(given.requests)]
    native, record, body = _forms(endpoint, given.tokens)
    requests = [
        {"custom_id": f"r{number}", "method": "POST", "url": endpoint, "body": {"model": "m", **body(text)}}
        for number, text in enumerate(texts)
    ]
    asked = {"type": "requests", "endpoint": endpoint}
    name = endpoint.replace("/", "-")
    return (
        shard_of(folder / f"requests{name}", model, asked, requests, given.device),
        shard_of(folder / f"native{name}", model, native, [record(text) for text in texts], given.device),
    )


def _forms(endpoint: str, tokens: int) -> tuple[Row, Callable[[str], Row], Callable[[str], Row]]:
    """(the task of the native job, its record with a text, the body of a request with it)."""
    generate = {"type": "generate", "max_new_tokens": tokens}
    limits = {"max_tokens": tokens, "temperature": 0}
    if endpoint == CHAT:
        return (
            generate,
            lambda text: {"messages": [{"role": "user", "content": text}]},
            lambda text: {"messages": [{"role": "user", "content": text}], **limits},
        )
    if endpoint == COMPLETIONS:
        return generate, lambda text: {"prompt": text}, lambda text: {"prompt": text, **limits}
    return {"type": "embed"}, lambda text: {"text": text}, lambda text: {"input": text}


def shard_of(folder: Path, model: Path, task: Row, rows: Sequence[Row], device: str) -> Way:
    """Answers all rows as one shard and writes its part; the model is loaded before."""
    folder.mkdir()
    data = folder / "data.jsonl"
    data.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    spec = RunSpec(
        run_dir=folder,
        framework="TRANSFORMERS",
        training_type="BATCH",
        model_path=str(model),
        data_paths=(str(data),),
        device_type=device,
        inference={"task": task},
    )
    engine_task, keep = task_of(spec, load_engine(spec)), ("custom_id",)

    def answer() -> None:
        inputs = Inputs(spec)
        writer = writer_of(spec, inputs)
        for shard, found in inputs.shards(planned(inputs.count(), len(rows)), lambda _: True):
            answered = answer_shard(engine_task, inputs, found, keep, never)
            part = part_of(shard, answered)
            if part.counts.failed:
                raise RuntimeError(f"{part.counts.failed} records have no answer: {part.errors[:1]}")
            write_part(folder / "part", writer, part, answered)
            shutil.rmtree(folder / "part")

    return answer


def compared(batch: Way, native: Way, *, rounds: int, clock: Callable[[], float]) -> dict[str, float]:
    """Medians of both, which alternate; a round before is not measured."""
    times: dict[Way, list[float]] = {batch: [], native: []}
    for _ in range(rounds + 1):
        for way, found in times.items():
            begun = clock()
            way()
            found.append(clock() - begun)
    ours, plain = (statistics.median(found[1:]) for found in times.values())
    return {"requests_seconds": ours, "native_seconds": plain, "share_of_native_speed": plain / ours}


def table(report: Mapping[str, Any]) -> str:
    lines = ["| | requests | native job | share of its speed | goal |", "|---|---|---|---|---|"]
    lines += [
        f"| {name} | {row['requests_seconds']:.2f} s | {row['native_seconds']:.2f} s "
        f"| {row['share_of_native_speed']:.2f} | ≥ {GOAL} |"
        for name, row in report["endpoints"].items()
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    main(sys.argv[1:])
