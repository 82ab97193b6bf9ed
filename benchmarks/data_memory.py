"""How much memory it takes to tokenize training data that is larger than what a rank should hold, and how fast it is.

    python -m benchmarks.data_memory [--megabytes 150] [--tokenizer DIRECTORY]

Writes a JSON Lines file of random words and loads it as a training does, stored and streamed, each in a process of its
own. Memory is the peak of what a process holds for itself (RssAnon): pages of mapped files can be dropped at any time.
`growth_mb` compares with a load of 1 MB. One JSON line on standard output.
"""

import argparse
import itertools
import json
import random
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from benchmarks.machine import description

_WORDS = 120


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=150)
    parser.add_argument("--tokenizer", help="directory of a model or tokenizer; default: the demo's")
    parser.add_argument("--load", nargs=2, metavar=("FILE", "HOW"), help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.load:
        print(json.dumps(_load(Path(given.load[0]), given.load[1], given.tokenizer)))
        return
    with tempfile.TemporaryDirectory() as directory:
        tokenizer = given.tokenizer or _demo_tokenizer(Path(directory) / "demo")
        small, large = Path(directory) / "small.jsonl", Path(directory) / "large.jsonl"
        _write(small, 1)
        _write(large, given.megabytes)
        found: dict[str, Any] = {}
        for how in ("stored", "streamed"):
            base, full = (_measured(file, how, tokenizer) for file in (small, large))
            found[how] = {**full, "growth_mb": round(full["peak_mb"] - base["peak_mb"], 1)}
    print(json.dumps({"benchmark": "data_memory", "file_mb": given.megabytes, **found, "machine": description()}))


def _demo_tokenizer(directory: Path) -> str:
    command = [sys.executable, "-m", "examples.build_demo_assets", "--out", str(directory)]
    subprocess.run(command, check=True, capture_output=True)
    return str(directory / "model")


def _write(path: Path, megabytes: int) -> None:
    draw = random.Random(0)
    words = ["".join(draw.choices("abcdefghijklmnopqrstuvwxyz", k=draw.randint(2, 9))) for _ in range(5000)]
    with path.open("w", encoding="utf-8") as file:
        while file.tell() < megabytes << 20:
            text = " ".join(draw.choices(words, k=_WORDS))
            file.write(json.dumps({"prompt": text[:200], "completion": text[200:]}) + "\n")


def _measured(file: Path, how: str, tokenizer: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.data_memory", "--tokenizer", tokenizer, "--load", str(file), how]
    ended = subprocess.run(command, check=True, capture_output=True, text=True)
    found: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    return found


def _load(file: Path, how: str, tokenizer_path: str) -> dict[str, Any]:
    """One load in this process."""
    from transformers import AutoTokenizer  # noqa: PLC0415  (only the measured processes need it)

    from workers.rank.run_context import RunSpec  # noqa: PLC0415
    from workers.trainers.data.datasets import load  # noqa: PLC0415

    tokenizer = AutoTokenizer.from_pretrained(tokenizer_path)
    spec = RunSpec(
        run_dir=file.parent,
        framework="HF_TRAINER",
        training_type="SFT",
        hyperparameters={},
        model_path="",
        data_paths=(str(file),),
        data_config={"streaming": how == "streamed"},
        threads_per_rank=2,
    )
    peak = _Peak()
    started = time.monotonic()
    train = load(spec, tokenizer, file.parent / "cache").train
    with file.open("rb") as lines:
        records = sum(1 for _ in lines)
    if how == "streamed":
        tokens = sum(len(row["input_ids"]) for row in itertools.islice(iter(train), records))
    else:
        tokens = sum(len(row["input_ids"]) for row in train)
    seconds = time.monotonic() - started
    return {"records": records, "tokens_per_second": round(tokens / seconds), "peak_mb": round(peak.megabytes(), 1)}


class _Peak:
    """The most memory that this process has held since, looked at every few milliseconds."""

    def __init__(self) -> None:
        self._most = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def megabytes(self) -> float:
        self._over.set()
        self._thread.join()
        return self._most / 1024

    def _look(self) -> None:
        while not self._over.wait(0.02):
            status = Path("/proc/self/status").read_text(encoding="ascii")
            self._most = max(self._most, int(status.partition("RssAnon:")[2].split()[0]))


if __name__ == "__main__":
    main()
