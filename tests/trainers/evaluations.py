"""Evaluations in this process, without a supervisor, and what they have left."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.domain.evaluations.results import FILE, samples_file
from app.domain.evaluations.samples import Sample
from trainyard._hooks.local_session import LocalSession
from trainyard.protocol.session import Identity
from workers.rank.run_context import Ask, Result, RunContext, RunSpec, local_run
from workers.trainers.inference.evaluation.evaluating import EvaluationTrainer


@dataclass(frozen=True)
class Evaluated:
    """The result and the files of an evaluation."""

    result: Result
    output: Path

    @property
    def document(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.output / FILE).read_text())
        return found

    def value(self, label: str, metric: str) -> float:
        return float(self.document["benchmarks"][label]["metrics"][metric]["value"])

    def samples(self, label: str) -> list[Sample]:
        lines = (self.output / samples_file(label)).read_bytes().splitlines()
        return [Sample.from_line(line) for line in lines]


class AnsweredRun(RunContext):
    """A run without a supervisor whose questions to models ``answer`` answers."""

    def __init__(self, spec: RunSpec, answer: Ask) -> None:
        super().__init__(spec, LocalSession(Identity.of(spec, rank=0)))
        self._answer = answer

    def ask(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        return self._answer(path, body)


def evaluate(
    run_dir: Path,
    benchmarks: Sequence[Mapping[str, Any]],
    *,
    inference: Mapping[str, Any] | None = None,
    run: Callable[[RunSpec], RunContext] = local_run,
    **spec: Any,
) -> Evaluated:
    """Measure the benchmarks; ``spec`` are fields of the run specification."""
    given = RunSpec(
        run_dir=run_dir,
        framework="TRANSFORMERS",
        training_type="EVALUATION",
        inference={"benchmarks": [dict(each) for each in benchmarks], **(inference or {})},
        **spec,
    )
    context = run(given)
    result = EvaluationTrainer(context).run()
    context.finish(result)
    return Evaluated(result, given.run_dir / "output")


def mean_of_batches(found: Evaluated, size: int) -> float:
    """The loss by the scores of its samples: the mean over tokens of each batch, weighed by its records."""
    scores = [sample.scores["loss"] for sample in found.samples("loss")]
    rows = [score for score in scores if isinstance(score, tuple)]
    batches = [rows[at : at + size] for at in range(0, len(rows), size)]
    return sum(len(each) * sum(nll for nll, _ in each) / sum(n for _, n in each) for each in batches) / len(scores)


def records(path: Path, rows: Sequence[Mapping[str, Any]]) -> str:
    """A file of records, for data_paths."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)
