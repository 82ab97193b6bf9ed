"""How long a training stands still for one periodic checkpoint: transformers' own, and ours, written in the background.

    python -m benchmarks.checkpoint_stall [--rounds 2] [--sizes 1 2 4] [--layers 13] [--threads 1]
        [--save-steps 8] [--device cuda] [--framework FSDP|DEEPSPEED --ranks 2]

Alternating, each in a process of its own (`benchmarks/checkpoint_saves.py`) that trains the same model on the same
records and saves every few steps. The loop stands still from the end of an optimizer's step to the beginning of the
next; what it does there without a checkpoint (the median of the other steps) is subtracted. Sizes are multiples of
about 53 million parameters, all of them trained with Adam in float32. With a framework that shards the model, both
sides shard it among the ranks, and the save is compared: transformers' calls accelerate's or DeepSpeed's own. Figures
are those of the first rank.

The stall is not all that a checkpoint costs: the thread that writes takes processor time from the steps that follow.
Therefore also measured: how much longer all steps from one checkpoint to the next took than as many median steps; how
long the writing takes; and the memory of the copy, as the difference of the processes' greatest sizes.
One JSON line on standard output, a table on standard error.
"""

import argparse
import contextlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.machine import description
from benchmarks.overhead import ROOT, Case, build, spread

GOAL = 0.15
SIDES = ("plain", "trainyard")
HIDDEN, TOKENS, BATCH = 640, 32, 1
SAVES = 3


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--sizes", type=int, nargs="+", default=[1, 2, 4], help="in multiples of --layers")
    parser.add_argument("--layers", type=int, default=13, help="4.1 million parameters each")
    parser.add_argument("--threads", type=int, default=1, help="of the training")
    parser.add_argument("--save-steps", type=int, default=8, help="from one checkpoint to the next")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="what is trained on")
    parser.add_argument("--framework", choices=("HF_TRAINER", "FSDP", "DEEPSPEED"), default="HF_TRAINER")
    parser.add_argument("--ranks", type=int, default=1)
    given = parser.parse_args(arguments)
    machine = description()
    with contextlib.suppress(PermissionError):
        os.nice(-5)  # both sides alike: what else runs on the machine disturbs less
    folder = Path(tempfile.mkdtemp(prefix="trainyard-stall-"))
    try:
        cases = {f"{size}x": measured(size * given.layers, folder / str(size), given) for size in given.sizes}
    finally:
        shutil.rmtree(folder)
    report = {"benchmark": "checkpoint_stall", "rounds": given.rounds, "threads": given.threads, "device": given.device}
    report |= {"framework": given.framework, "ranks": given.ranks}
    report |= {"save_steps": given.save_steps, **cases}
    report |= {"growth": growth(cases), "machine": machine}
    print(table(report, list(cases)), file=sys.stderr)
    print(json.dumps(report))


def measured(layers: int, folder: Path, given: argparse.Namespace) -> dict[str, Any]:
    every = given.save_steps
    steps = SAVES * every + 1
    build(Case(steps=steps, save_steps=every, batch_size=BATCH, tokens=TOKENS, hidden=HIDDEN, layers=layers), folder)
    parameters = (folder / "model" / "model.safetensors").stat().st_size // 4
    found: dict[str, list[dict[str, float]]] = {side: [] for side in SIDES}
    for number in range(given.rounds):
        for side in SIDES if number % 2 else reversed(SIDES):
            found[side].append(figures(ran(side, folder, steps, given), steps, every))
            print(f"{layers} layers, round {number}, {side}: {found[side][-1]}", file=sys.stderr)
    pairs = list(zip(found["trainyard"], found["plain"], strict=True))
    shutil.rmtree(folder)
    return {
        "parameters": parameters,
        "ratio": spread([ours["stall"] / theirs["stall"] for ours, theirs in pairs], 3),
        "first_ratio": spread([ours["first_stall"] / theirs["first_stall"] for ours, theirs in pairs], 3),
        "extra_memory_mb": spread([ours["max_rss_mb"] - theirs["max_rss_mb"] for ours, theirs in pairs], 0),
        "background_seconds": spread([ours["background"] for ours in found["trainyard"]], 2),
        **{
            name: {side: spread([one[name] for one in found[side]], 3) for side in SIDES}
            for name in ("stall", "first_stall", "cost", "step")
        },
    }


def ran(side: str, folder: Path, steps: int, given: argparse.Namespace) -> dict[str, Any]:
    out, path = folder / "out", folder / "spec.json"
    spec = {
        "side": side,
        "model": str(folder / "model"),
        "data": str(folder / "data.jsonl"),
        "out": str(out),
        "threads": given.threads,
        "steps": steps,
        "save_steps": given.save_steps,
        "batch_size": BATCH,
        "tokens": TOKENS,
        "device": given.device,
        "framework": given.framework,
        "ranks": given.ranks,
    }
    path.write_text(json.dumps(spec))
    # Of glibc: what a step frees stays with the process, as in a rank of a job on the CPU.
    kept = str(1 << 30)
    environment = {
        **os.environ,
        "LOCAL_RANK": "0",  # of a rank alone
        "OMP_NUM_THREADS": str(given.threads),
        "HF_HUB_OFFLINE": "1",
        "HF_HOME": str(folder / "hf"),
        "TOKENIZERS_PARALLELISM": "false",
        "MALLOC_TRIM_THRESHOLD_": kept,
        "MALLOC_MMAP_THRESHOLD_": kept,
    }
    launch = [] if given.framework == "HF_TRAINER" else ["torch.distributed.run", "--standalone"]
    if launch:
        launch += ["--nproc-per-node", str(given.ranks), "-m"]
    command = [sys.executable, "-m", *launch, "benchmarks.checkpoint_saves", str(path)]
    ended = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    if ended.returncode != 0:
        sys.exit(f"{side} failed: {ended.stderr[-4000:]}")
    shutil.rmtree(out)
    said: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    return said


def figures(said: dict[str, Any], steps: int, every: int) -> dict[str, float]:
    """Of one run, in seconds: medians over its checkpoints; the first one stands alone, too: buffers are new then."""
    still = {int(step): value for step, value in said["stood_still"].items()}
    took = {int(step): value for step, value in said["step_seconds"].items()}
    saves = [step for step in range(every, steps, every) if step in still]
    # The first step makes the optimizer's state, and takes longer for it.
    others = [step for step in still if step not in saves and step > 1]
    usual = statistics.median(still[step] for step in others)
    # Before the first checkpoint nothing is being written.
    step = statistics.median(took[step] for step in range(2, every))
    stalls = [still[save] - usual for save in saves]
    costs = [sum(took.get(save + k, step) - step for k in range(every)) for save in saves]
    return {
        "stall": statistics.median(stalls),
        "first_stall": stalls[0],
        "cost": statistics.median(costs),
        "step": step,
        "max_rss_mb": float(said["max_rss_mb"]),
        "background": statistics.median(list(said.get("background_seconds", {}).values()) or [0.0]),
    }


def growth(cases: dict[str, Any]) -> dict[str, float]:
    """How much longer our stall gets with each doubling."""
    stalls = [case["stall"]["trainyard"]["median"] for case in cases.values()]
    names = list(cases)
    return {f"{names[n]}/{names[n - 1]}": round(stalls[n] / stalls[n - 1], 2) for n in range(1, len(stalls))}


def table(report: dict[str, Any], names: list[str]) -> str:
    head = (
        "parameters",
        "step",
        "transformers stands still",
        "Trainyard",
        "ratio (lowest, highest)",
        "of the first save",
        "written in the background",
        "all it costs: transformers",
        "Trainyard",
        "memory for the copy",
        "goal",
    )
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for name in names:
        f = report[name]
        cells = (
            f"{f['parameters'] / 1e6:.0f} M",
            f"{f['step']['plain']['median']:.2f} s",
            f"{f['stall']['plain']['median']:.3f} s",
            f"{f['stall']['trainyard']['median']:.3f} s",
            f"{f['ratio']['median']:.3f} ({f['ratio']['min']:.3f}, {f['ratio']['max']:.3f})",
            f"{f['first_ratio']['median']:.3f}",
            f"{f['background_seconds']['median']:.1f} s",
            f"{f['cost']['plain']['median']:.2f} s",
            f"{f['cost']['trainyard']['median']:.2f} s",
            f"{f['extra_memory_mb']['median']:.0f} MB",
            f"≤ {GOAL}",
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main(sys.argv[1:])
