"""`python -m benchmarks [NAME,…]`: every benchmark, or those that are named."""

import importlib
import sys

# Name → module with a `main(arguments)`; docs/benchmarks holds what they printed.
BENCHMARKS = {
    "batches": "benchmarks.batches",
    "checkpoint_stall": "benchmarks.checkpoint_stall",
    "cli": "benchmarks.cli",
    "data_memory": "benchmarks.data_memory",
    "dispatch": "benchmarks.dispatch",
    "first_token": "benchmarks.first_token",
    "footprint": "benchmarks.footprint",
    "gateway": "benchmarks.gateway",
    "inference": "benchmarks.inference",
    "interactive": "benchmarks.interactive",
    "logs": "benchmarks.logs",
    "memory": "benchmarks.memory",
    "metrics": "benchmarks.metrics",
    "overhead": "benchmarks.overhead",
    "pause": "benchmarks.pause",
    "planning": "benchmarks.planning",
    "reads": "benchmarks.reads",
    "recovery": "benchmarks.recovery",
    "rollouts": "benchmarks.rollouts",
    "sandbox": "benchmarks.sandbox",
    "scale": "benchmarks.scale",
    "serving": "benchmarks.serving",
    "simulation": "benchmarks.simulation",
    "start": "benchmarks.start",
    "submit": "benchmarks.submit",
    "sweep_beside_ray": "benchmarks.sweep_beside_ray",
    "sweeps": "benchmarks.sweeps",
    "uploads": "benchmarks.uploads",
    "viewers": "benchmarks.viewers",
    "vocabularies": "benchmarks.vocabularies",
    "web": "benchmarks.web",
}


def main(arguments: list[str]) -> None:
    names = [name for argument in arguments for name in argument.split(",") if name]
    unknown = sorted(set(names) - set(BENCHMARKS))
    if unknown:
        sys.exit(f"no benchmark {', '.join(unknown)}; known: {', '.join(BENCHMARKS)}")
    for name in names or BENCHMARKS:
        importlib.import_module(BENCHMARKS[name]).main([])


if __name__ == "__main__":
    main(sys.argv[1:])
