"""Rank 0's books of an inference job: hands finished parts to the supervisor, counts, and reports progress."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from app.domain.spec.inference import OnRecordError
from workers.rank.run_context import Progress, RunContext, Saved
from workers.trainers.inference.error_budget import ErrorBudget
from workers.trainers.inference.inputs import Shard
from workers.trainers.inference.parts import Counts, OutputPart, copy_part, read_part

_POINT_SECONDS = 1.0  # between points of the curves


class OutputDelivery:
    """Knows every finished part, those of earlier attempts included, whose files lie in the output already."""

    def __init__(self, context: RunContext, plan: Sequence[Shard], rule: OnRecordError) -> None:
        self._context = context
        self._total = sum(shard.records for shard in plan)
        self._budget = ErrorBudget(rule, self._total)
        self._open = {shard.number: shard for shard in plan}
        self._counts = Counts()
        for shard in plan:
            if shard.number in context.spec.finished_shards:
                self._add(read_part(context.output_dir, shard))
        self._rates = _Rates(self.records, self._tokens)

    @property
    def is_complete(self) -> bool:
        """Whether every shard is handed over."""
        return not self._open

    @property
    def records(self) -> int:
        """The records of all finished shards."""
        return self._total - sum(shard.records for shard in self._open.values())

    @property
    def counts(self) -> Counts:
        return self._counts

    def hand_over(self, part: OutputPart, directory: Path, write: Callable[[], None] = lambda: None) -> None:
        """Have ``directory`` filled by ``write``, copied to the output and stored. Raises DataInvalid when too many
        records have no answer, and the error of an earlier part.
        """
        self._add(part)

        def complete() -> None:
            write()
            copy_part(directory, self._context.output_dir)

        saved = Saved(step=self.records, data_position=part.position())
        self._context.commit_checkpoint(directory, saved, complete)
        self.report()

    def report(self) -> None:
        """Progress, and a point of the curves if the last one is a while ago."""
        self._context.report_progress(Progress(step=self.records, total_steps=self._total, tokens=self._tokens))
        if rates := self._rates.take(self.records, self._tokens, is_last=not self._open):
            self._context.report_metrics(self.records, rates)

    def advance(self, tokens: int) -> None:
        """Report that so many more tokens are computed, of a shard that is not finished."""
        tokens += self._tokens
        self._context.report_progress(Progress(step=self.records, total_steps=self._total, tokens=tokens))

    def final_metrics(self) -> dict[str, float]:
        return {
            "records": self.records,
            "failed_records": self._counts.failed,
            "prompt_tokens": self._counts.prompt_tokens,
            "completion_tokens": self._counts.completion_tokens,
        }

    @property
    def _tokens(self) -> int:
        return self._counts.prompt_tokens + self._counts.completion_tokens

    def _add(self, part: OutputPart) -> None:
        self._budget.spend(part)
        self._counts += part.counts
        del self._open[part.shard.number]


class _Rates:
    """Records and tokens per second since the last point."""

    def __init__(self, records: int, tokens: int) -> None:
        self._records, self._tokens = records, tokens
        self._at = time.monotonic()

    def take(self, records: int, tokens: int, *, is_last: bool) -> dict[str, float]:
        """The rates, empty where it is too early for the next point."""
        now = time.monotonic()
        seconds, made = now - self._at, records - self._records
        if not made or seconds <= 0 or not (is_last or seconds >= _POINT_SECONDS):
            return {}
        rates = {"records_per_second": made / seconds, "tokens_per_second": (tokens - self._tokens) / seconds}
        self._records, self._tokens, self._at = records, tokens, now
        return rates
