"""Batches: answers to the records of a job, shard by shard, on one or more ranks of a node."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from app.domain.spec.inference import REQUESTS, InferenceOutput
from workers.rank.run_context import Result, RunContext, Stop
from workers.trainers.distributed import wait_for_all
from workers.trainers.failures import InvalidConfig
from workers.trainers.inference.advancing import Advancing
from workers.trainers.inference.delivery import OutputDelivery
from workers.trainers.inference.engine.interface import Interrupted
from workers.trainers.inference.engines import load_engine
from workers.trainers.inference.inputs import InputRow, Inputs, Shard, planned
from workers.trainers.inference.output_manifest import described_model, write_manifest
from workers.trainers.inference.parts import OutputPart, part_of, read_part, write_part
from workers.trainers.inference.rows import OutputRow
from workers.trainers.inference.section import inference_of
from workers.trainers.inference.shard_claims import Claims
from workers.trainers.inference.tasks.choice import task_of
from workers.trainers.inference.tasks.requesting import CUSTOM_ID
from workers.trainers.inference.tasks.task import Task, answer_shard
from workers.trainers.inference.writers.choice import writer_of

_POLL_SECONDS = 0.1  # for parts of other ranks
_FILES_BESIDE = 10  # at most: manifest, meta, joined matrix
_WITH_LISTS_OF_ERRORS = ("npy", "safetensors")  # formats whose parts may have a second file


class BatchTrainer:
    """Every rank claims the next free shard; rank 0 hands all finished ones over. A stop drops those in progress."""

    def __init__(self, context: RunContext) -> None:
        if context.spec.nodes > 1:
            raise InvalidConfig("resource_config.node_count: an inference job runs on one node; leave it out, or set 1")
        self.context = context
        self._section = inference_of(context.spec)
        self._keeps = (CUSTOM_ID,) if self._section.task.type == REQUESTS else self._section.output.keep_columns
        self._stop: Stop | None = None

    def run(self) -> Result:
        """As Trainer.run."""
        with self.context.section("loading"):
            self._load()
        self.context.phase("EVALUATING")
        if self.context.rank == 0:
            return self._lead()
        self._follow()
        return Result(stopped=self._stopped())

    def _load(self) -> None:
        spec = self.context.spec
        self._inputs = Inputs(spec)
        self._inputs.check_columns(self._section.output.keep_columns)
        self._plan = planned(self._inputs.count(), self._section.output.shard_records)
        _refuse_too_many(self._plan, spec.max_output_files, self._section.output)
        self._writer = writer_of(spec, self._inputs)
        self._pending = {shard.number for shard in self._plan} - set(spec.finished_shards)
        self._claims = Claims(self.context.work_dir)
        self._task: Task[Any] | None = None
        if self._pending:
            self._task = task_of(spec, load_engine(spec, self.context.ask))
        # Only now: a rank could otherwise wait for the claims of one that can't load.
        wait_for_all()

    def _lead(self) -> Result:
        delivery = OutputDelivery(self.context, self._plan, self._section.on_error)
        delivery.report()
        for shard, rows in self._shards():
            answered = self._answered(rows, delivery.advance)
            if answered is None:
                break
            part, directory = part_of(shard, answered), self._claims.part_directory(shard.number)
            delivery.hand_over(part, directory, partial(write_part, directory, self._writer, part, answered))
            self._collect(delivery)
        self._await_others(delivery)
        stopped = None if delivery.is_complete else self._stopped()
        output = "" if stopped else str(self._export())
        tokens = delivery.counts.prompt_tokens + delivery.counts.completion_tokens
        final_metrics = delivery.final_metrics()
        return Result(stopped=stopped, step=delivery.records, tokens=tokens, final_metrics=final_metrics, output=output)

    def _follow(self) -> None:
        for shard, rows in self._shards():
            answered = self._answered(rows, self._claims.advance)
            if answered is None:
                break
            directory = self._claims.part_directory(shard.number)
            write_part(directory, self._writer, part_of(shard, answered), answered)
            self._claims.leave(shard.number)

    def _shards(self) -> Iterator[tuple[Shard, list[InputRow]]]:
        return self._inputs.shards(self._plan, self._is_ours) if self._pending else iter(())

    def _is_ours(self, number: int) -> bool:
        return number in self._pending and self._claims.claim(number)

    def _answered(self, rows: Sequence[InputRow], advance: Callable[[int], None]) -> list[OutputRow] | None:
        """None: a stop is requested, and nothing of the shard is kept."""
        if self._task is None or self._stops():
            return None
        interrupted = Advancing(self._stops, advance)
        try:
            return answer_shard(self._task, self._inputs, rows, self._keeps, interrupted)
        except Interrupted:
            return None

    def _collect(self, delivery: OutputDelivery) -> None:
        """Hand over what other ranks have finished by now."""
        for number in self._claims.left():
            directory = self._claims.take(number)
            delivery.hand_over(read_part(directory, self._plan[number]), directory)

    def _await_others(self, delivery: OutputDelivery) -> None:
        """Hand over the rest of the other ranks' parts; of a stop only what is finished."""
        self._collect(delivery)
        with self.context.section("answering on other ranks"):
            while not delivery.is_complete and not self._stops():
                time.sleep(_POLL_SECONDS)
                if self._claims.advanced():
                    delivery.advance(self._claims.advances)
                self._collect(delivery)

    def _stops(self) -> bool:
        """Whether a stop was requested; once followed, it is followed to the end."""
        self._stop = self.context.stop or self._stop
        return self._stop is not None

    def _stopped(self) -> str | None:
        return self._stop.kind if self._stop is not None else None

    def _export(self) -> Path:
        """Write what describes or joins all parts, the manifest last."""
        self.context.phase("EXPORTING")
        self.context.settle()
        output = self.context.output_dir
        with self.context.section("describing"):
            self._writer.join(output, self._plan)
            parts = [read_part(output, shard) for shard in self._plan]
            model = described_model(self.context.spec)
            self.describe(output, parts, model)
            write_manifest(self.context.spec, output, parts, model)
        return output

    def describe(self, output: Path, parts: Sequence[OutputPart], model: Mapping[str, Any]) -> None:
        """Write files beside the parts, for subclasses; ``model`` is what they say of it."""


def _refuse_too_many(plan: Sequence[Shard], most: int, form: InferenceOutput) -> None:
    """Before hours of work: the whole output would be refused at the end. Raises InvalidConfig."""
    each = 2 if form.format in _WITH_LISTS_OF_ERRORS else 1
    parts, room = len(plan), (most - _FILES_BESIDE) // each
    if most and parts > room:
        least = form.shard_records * -(-parts // max(1, room))
        files = "" if each == 1 else f" of up to {each} files"
        raise InvalidConfig(
            f"output.shard_records: {form.shard_records} records in each make {parts} parts{files}, and the operator's "
            f"TRAINYARD_STORAGE_MAX_OUTPUT_FILES allows {most} files; set it to {least} or more"
        )
