"""Evaluations: each benchmark is a shard, measured whole; ranks share them as they share the shards of a batch."""

import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from workers.rank.run_context import Result, RunContext
from workers.trainers.distributed import wait_for_all
from workers.trainers.failures import InvalidConfig
from workers.trainers.inference.advancing import Advancing
from workers.trainers.inference.engine.interface import Engine, Interrupted
from workers.trainers.inference.engines import load_engine
from workers.trainers.inference.evaluation.delivery import BenchmarkDelivery
from workers.trainers.inference.evaluation.measure import BenchmarkTask, Measurement
from workers.trainers.inference.evaluation.measures import measure_of
from workers.trainers.inference.evaluation.results import Figures, figures_of, read_figures, write_part, write_results
from workers.trainers.inference.section import inference_of
from workers.trainers.inference.shard_claims import Claims

_POLL_SECONDS = 0.1  # for benchmarks of other ranks


class EvaluationTrainer:
    """Every rank claims the next benchmark; rank 0 hands all over. A stop drops those in progress."""

    def __init__(self, context: RunContext) -> None:
        if context.spec.nodes > 1:
            raise InvalidConfig("resource_config.node_count: an evaluation runs on one node; leave it out, or set 1")
        self.context = context
        self._section = inference_of(context.spec)
        self._stop = context.stop

    def run(self) -> Result:
        """As Trainer.run."""
        with self.context.section("loading"):
            self._load()
        self.context.phase("EVALUATING")
        if self.context.rank == 0:
            return self._lead()
        for figures, measured in self._finished(self._claims.advance):
            write_part(self._claims.part_directory(figures.number), figures, measured)
            self._claims.leave(figures.number)
        return Result(stopped=self._stopped())

    def _load(self) -> None:
        spec, benchmarks = self.context.spec, self._section.benchmarks
        self._measures = [measure_of(each) for each in benchmarks]
        self._pending = [number for number in range(len(benchmarks)) if number not in spec.finished_shards]
        self._claims = Claims(self.context.work_dir)
        self._engine: Engine | None = load_engine(spec, self.context.ask) if self._pending else None
        # Only now: a rank could otherwise wait for the claims of one that can't load.
        wait_for_all()

    def _lead(self) -> Result:
        delivery = BenchmarkDelivery(self.context, len(self._section.benchmarks))
        delivery.report()
        for figures, measured in self._finished(delivery.advance):
            directory = self._claims.part_directory(figures.number)
            delivery.hand_over(figures, directory, partial(write_part, directory, figures, measured))
            self._collect(delivery)
        self._collect(delivery)
        with self.context.section("measuring on other ranks"):
            while delivery.open and not self._stops():
                time.sleep(_POLL_SECONDS)
                if self._claims.advanced():
                    delivery.advance(self._claims.advances)
                self._collect(delivery)
        stopped = self._stopped() if delivery.open else None
        return Result(
            stopped=stopped,
            step=delivery.count,
            tokens=delivery.tokens,
            final_metrics=delivery.final_metrics,
            output="" if stopped else str(self._export(delivery)),
        )

    def _finished(self, advance: Callable[[int], None]) -> Iterator[tuple[Figures, Measurement]]:
        """The benchmarks that this rank measures, until there is none left or a stop is requested."""
        for number in self._pending:
            if self._stops():
                return
            if self._claims.claim(number):
                try:
                    yield self._measured(number, advance)
                except Interrupted:
                    return

    def _measured(self, number: int, advance: Callable[[int], None]) -> tuple[Figures, Measurement]:
        if self._engine is None:
            raise RuntimeError("an engine is loaded whenever benchmarks are left")
        benchmark, seed = self._section.benchmarks[number], self._section.seed
        interrupted = Advancing(self._stops, advance)
        task = BenchmarkTask(
            spec=self.context.spec,
            engine=self._engine,
            benchmark=benchmark,
            seed=seed,
            interrupted=interrupted,
            ask=self.context.ask,
        )
        begun = time.monotonic()
        # Loading its records and scoring the answers make no steps, however long they take.
        with self.context.section(f"measuring {benchmark.name}"):
            measured = self._measures[number](task)
        return figures_of(number, benchmark, measured, time.monotonic() - begun, seed), measured

    def _collect(self, delivery: BenchmarkDelivery) -> None:
        """Hand over what other ranks have finished by now."""
        for number in self._claims.left():
            directory = self._claims.take(number)
            delivery.hand_over(read_figures(directory, number), directory)

    def _stops(self) -> bool:
        """Whether a stop was requested; once followed, it is followed to the end."""
        self._stop = self.context.stop or self._stop
        return self._stop is not None

    def _stopped(self) -> str | None:
        return self._stop.kind if self._stop is not None else None

    def _export(self, delivery: BenchmarkDelivery) -> Path:
        self.context.phase("EXPORTING")
        self.context.settle()
        write_results(self.context.spec, self.context.output_dir, delivery.figures)
        return self.context.output_dir
