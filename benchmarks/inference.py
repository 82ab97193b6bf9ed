"""The engine of inference jobs beside one request after the other, the job around it, and other libraries.

    python -m benchmarks.inference [--model DIR] [--requests 32] [--tokens 32] [--rounds 3] [--harness-batch 1]
        [--sentence-transformers PYTHON]

The same model in float32 on one thread, alternating, by processor time, which says more than the clock where others
work too. Greedy answers by the engine and by `generate` of transformers; mean vectors by the engine and by a forward
pass for each text, and, where an interpreter that has sentence-transformers is named, by that in its own process; a
batch job, from its records to its part, and the engine alone; what tasks of the harness ask (log-likelihoods, answers),
by the engine and by the harness's own class for transformers, in batches of ``--harness-batch``. Without ``--model``
the demo's model of a million weights is built. One JSON line on standard output, a table on standard error.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch
from lm_eval.api.instance import Instance
from lm_eval.models.huggingface import HFLM

from benchmarks.batches import shard_of
from benchmarks.machine import description
from examples.build_demo_assets import MODEL, build
from trainyard.protocol.run_spec import RunSpec
from workers.trainers.inference.engine.interface import Pooling, Prompt, SamplingParams, never
from workers.trainers.inference.engine.transformers_engine import TransformersEngine
from workers.trainers.inference.evaluation.harness.language_model import HarnessModel

# How many times as fast as what is named beside it.
GOALS = {
    "generate": 5.0,
    "embeddings": 4.0,
    "sentence-transformers": 1.0,
    "batch job": 0.95,
    "harness, log-likelihoods": 1.5,
    "harness, answers": 1.5,
}
TEXT = "def get_value_{number}(self, default=None): "
LENGTHS = 3  # prompts have the text up to so many times
MOST_TOKENS = 256  # of a text
Way = Callable[[], object]
Timed = Callable[[], float]  # processor seconds


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--requests", type=int, default=32)
    parser.add_argument("--tokens", type=int, default=32, help="of each answer")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--harness-batch", type=int, default=1, help="requests of a batch of the harness's own class")
    parser.add_argument("--sentence-transformers", metavar="PYTHON", help="an interpreter that has the library")
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="trainyard-inference-") as folder, ExitStack() as stack:
        if given.model is None:
            build(Path(folder) / "demo")
        model = given.model or Path(folder) / "demo" / MODEL
        measured = {name: compared(*pair, rounds=given.rounds) for name, pair in pairs(model, folder, given, stack)}
    report = {"benchmark": "inference", **vars(given), "model": str(given.model or "demo"), "engine": measured}
    report["machine"] = description()
    print(table(report), file=sys.stderr)
    print(json.dumps(report))


def pairs(
    model: Path, folder: str, given: argparse.Namespace, stack: ExitStack
) -> Iterator[tuple[str, tuple[Timed, Timed]]]:
    """By name what is compared: ours first."""
    yield "generate", own(answers(model, given.requests, given.tokens))
    yield "embeddings", own(vectors(model, given.requests))
    if given.sentence_transformers:
        theirs = stack.enter_context(sentence_vectors(given.sentence_transformers, model, given.requests))
        yield "sentence-transformers", (timed(tokenized_vectors(model, given.requests)), theirs)
    yield "batch job", own(batch(model, Path(folder), given.requests, given.tokens))
    for name, pair in harness(model, given):
        yield f"harness, {name}", own(pair)


def own(pair: tuple[Way, Way]) -> tuple[Timed, Timed]:
    ours, other = pair
    return timed(ours), timed(other)


def timed(way: Way) -> Timed:
    def seconds() -> float:
        begun = time.process_time()
        way()
        return time.process_time() - begun

    return seconds


def answers(model: Path, requests: int, new: int) -> tuple[Way, Way]:
    """Answers by the engine, and one after the other; both never end early."""
    engine = engine_of(model, "generate")
    prompts = texts(engine, requests)
    ends = [engine.tokenizer.eos_token_id]
    sampling = SamplingParams(max_new_tokens=new)

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


def tokenized_vectors(model: Path, requests: int) -> Way:
    """Mean vectors by the engine from texts, as libraries make them."""
    engine = engine_of(model, "embed")
    return lambda: engine.embeddings(texts(engine, requests), Pooling())


@contextmanager
def sentence_vectors(interpreter: str, model: Path, requests: int) -> Iterator[Timed]:
    """The same vectors by sentence-transformers."""
    script = str(Path(__file__).parent / "sentence_vectors.py")
    command = [interpreter, script, str(model), str(MOST_TOKENS)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        asking, answering = process.stdin, process.stdout
        if asking is None or answering is None:
            raise RuntimeError("the process has no pipes")
        line = json.dumps(plain_texts(requests))

        def seconds() -> float:
            print(line, file=asking, flush=True)
            return float(answering.readline())

        yield seconds
        asking.close()


def batch(model: Path, folder: Path, requests: int, new: int) -> tuple[Way, Way]:
    """A batch job from its records to its part, and the engine alone with their tokens."""
    task = {"type": "generate", "max_new_tokens": new}
    job = shard_of(folder / "job", model, task, [{"prompt": text} for text in plain_texts(requests)], "cpu")
    engine = engine_of(model, "generate")
    prompts = [Prompt(tokens=tokens) for tokens in texts(engine, requests)]
    return job, lambda: engine.generate(prompts, SamplingParams(max_new_tokens=new))


def harness(model: Path, given: argparse.Namespace) -> Iterator[tuple[str, tuple[Way, Way]]]:
    """What tasks ask, by our class of the harness and by its own. Raises RuntimeError where their answers differ."""
    ours = HarnessModel(engine_of(model, "generate"), "benchmark", 0, never)
    theirs = HFLM(pretrained=str(model), device="cpu", dtype="float32", batch_size=given.harness_batch)
    asked = plain_texts(given.requests)
    options = {"until": ["\n\n"], "max_gen_toks": given.tokens, "do_sample": False}
    choices = [instance("loglikelihood", text, f"return {word}") for text in asked for word in ("default", "None")]
    prompts = [instance("generate_until", text, options) for text in asked]
    scores = (partial(ours.loglikelihood, choices), partial(theirs.loglikelihood, choices, disable_tqdm=True))
    written = (partial(ours.generate_until, prompts), partial(theirs.generate_until, prompts, disable_tqdm=True))
    if any(abs(one[0] - other[0]) > 1e-3 for one, other in zip(*(way() for way in scores), strict=True)):
        raise RuntimeError("log-likelihoods differ from those of the harness")
    if written[0]() != written[1]():
        raise RuntimeError("answers differ from those of the harness")
    yield "log-likelihoods", scores
    yield "answers", written


def instance(kind: str, *asked: object) -> Instance:
    return Instance(request_type=kind, doc={}, arguments=asked, idx=0)


def engine_of(model: Path, task: str) -> TransformersEngine:
    spec = RunSpec(
        run_dir=Path(),
        framework="TRANSFORMERS",
        training_type="BATCH",
        model_path=str(model),
        inference={"task": {"type": task}},
    )
    return TransformersEngine(spec)


def plain_texts(number: int) -> list[str]:
    """Of mixed lengths."""
    return [TEXT.format(number=i) * (1 + i % LENGTHS) for i in range(number)]


def texts(engine: TransformersEngine, number: int) -> list[list[int]]:
    """Token ids of these."""
    return [list(engine.tokenizer(text).input_ids[:MOST_TOKENS]) for text in plain_texts(number)]


def compared(ours: Timed, other: Timed, *, rounds: int) -> dict[str, float]:
    """Medians of the processor time of both, which alternate; a round before is not measured."""
    times: dict[Timed, list[float]] = {ours: [], other: []}
    for _ in range(rounds + 1):
        for way, found in times.items():
            found.append(way())
    mine, theirs = (statistics.median(found[1:]) for found in times.values())
    return {"engine_seconds": mine, "other_seconds": theirs, "times_as_fast": theirs / mine}


def table(report: Mapping[str, Any]) -> str:
    lines = ["| | ours | beside it | times as fast | goal |", "|---|---|---|---|---|"]
    rows: Sequence[tuple[str, Mapping[str, float]]] = list(report["engine"].items())
    lines += [
        f"| {name} | {row['engine_seconds']:.2f} s | {row['other_seconds']:.2f} s | {row['times_as_fast']:.2f} "
        f"| ≥ {GOALS[name]} |"
        for name, row in rows
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    main(sys.argv[1:])
