"""Rank 0's books of an evaluation: hands finished benchmarks to the supervisor, and reports their figures."""

from collections.abc import Callable
from pathlib import Path

from workers.rank.run_context import Progress, RunContext, Saved
from workers.trainers.inference.evaluation.results import Figures, read_figures
from workers.trainers.inference.parts import copy_part


class BenchmarkDelivery:
    """Knows every finished benchmark, those of earlier attempts included, whose files lie in the output already."""

    def __init__(self, context: RunContext, benchmarks: int) -> None:
        self._context = context
        self._total = benchmarks
        self._found = {number: read_figures(context.output_dir, number) for number in context.spec.finished_shards}

    @property
    def figures(self) -> list[Figures]:
        """Those of finished benchmarks, in the document's order."""
        return [self._found[number] for number in sorted(self._found)]

    @property
    def open(self) -> list[int]:
        """The numbers of benchmarks that are not handed over yet."""
        return [number for number in range(self._total) if number not in self._found]

    @property
    def count(self) -> int:
        """The number of finished benchmarks: the job's step."""
        return len(self._found)

    @property
    def tokens(self) -> int:
        return sum(each.prompt_tokens + each.completion_tokens for each in self._found.values())

    @property
    def final_metrics(self) -> dict[str, float]:
        return {name: value for each in self.figures for name, value in each.values.items()}

    def hand_over(self, figures: Figures, directory: Path, write: Callable[[], None] = lambda: None) -> None:
        """Have ``directory`` filled by ``write``, copied to the output and stored. Raises an earlier part's error."""
        self._found[figures.number] = figures

        def complete() -> None:
            write()
            copy_part(directory, self._context.output_dir)

        self._context.commit_checkpoint(directory, Saved(step=self.count, data_position=_position(figures)), complete)
        self._context.report_metrics(self.count, figures.values)
        self.report()

    def report(self) -> None:
        self.advance(0)

    def advance(self, tokens: int) -> None:
        """Report that so many more tokens are computed, of a benchmark that is not finished."""
        tokens += self.tokens
        self._context.report_progress(Progress(step=self.count, total_steps=self._total, tokens=tokens))


def _position(figures: Figures) -> dict[str, object]:
    """What the manifest of the checkpoint says of it, for the supervisor."""
    counts = {"failed": 0, "prompt_tokens": figures.prompt_tokens, "completion_tokens": figures.completion_tokens}
    return {"shard": figures.number, "first_record": 0, "records": figures.n, "counts": counts}
