"""Supervised fine-tuning of all weights with trl, on one device or several (DDP)."""

import json
from pathlib import Path

from transformers import PreTrainedTokenizerBase, PrinterCallback, TrainerState
from transformers.utils.logging import disable_progress_bar
from trl.chat_template_utils import get_training_chat_template, has_generation_markers
from trl.trainer.sft_trainer import SFTTrainer

from workers.run_context import Result, RunContext
from workers.trainers.distributed import first_rank_first, wait_for_all
from workers.trainers.hf_trainer import chat_template, pretrained, records
from workers.trainers.hf_trainer.arguments import sft_config
from workers.trainers.hf_trainer.boundaries import Boundaries
from workers.trainers.hf_trainer.export import export
from workers.trainers.hf_trainer.reporting import Reporting, Totals

_STATE_FILE = "trainer_state.json"


class SftTrainer:
    """Trains, evaluates, exports; goes on exactly where a checkpoint was taken."""

    def __init__(self, context: RunContext) -> None:
        self._context = context
        manifest = context.resume_manifest()
        self._resume = context.spec.resume_checkpoint or None
        self._reporting = Reporting(context, Totals.restored(manifest.data_position if manifest else {}))
        self._boundaries = Boundaries(context, self._reporting)
        disable_progress_bar()  # type: ignore[no-untyped-call]

    def run(self) -> Result:
        """As Trainer.run."""
        splits = self._load_records()
        tokenizer = self._load_tokenizer(conversational=splits.conversational)
        trainer = self._build(splits, tokenizer)
        self._train(trainer)
        if self._boundaries.agree_on_stop() is None and splits.validation is not None:
            self._evaluate(trainer)
        if self._boundaries.agree_on_stop() is not None:
            return self._result(trainer)
        return self._result(trainer, self._export(trainer, tokenizer))

    def _load_records(self) -> records.Splits:
        spec = self._context.spec
        with first_rank_first(self._context.rank):
            return records.load(spec.data_paths, spec.data_config, self._context.work_dir / "datasets")

    def _load_tokenizer(self, *, conversational: bool) -> PreTrainedTokenizerBase:
        tokenizer = pretrained.load_tokenizer(self._context.spec)
        if conversational and not tokenizer.chat_template:
            tokenizer.chat_template = chat_template.DEFAULT
        return tokenizer

    def _build(self, splits: records.Splits, tokenizer: PreTrainedTokenizerBase) -> SFTTrainer:
        arguments = sft_config(
            self._context,
            validates=splits.validation is not None,
            conversational=splits.conversational,
            marks_assistant=_marks_assistant(tokenizer),
        )
        trainer = SFTTrainer(
            model=pretrained.load_model(self._context.spec),
            args=arguments,
            train_dataset=splits.train,
            eval_dataset=splits.validation,
            processing_class=tokenizer,
            callbacks=[self._reporting, self._boundaries],
        )
        # One line per step would fill the job's log; Reporting prints what a reader needs.
        trainer.remove_callback(PrinterCallback)
        return trainer

    def _train(self, trainer: SFTTrainer) -> None:
        if self._resume is not None and _is_finished(trainer, self._resume):
            self._restore_finished(trainer, self._resume)
        else:
            trainer.train(resume_from_checkpoint=self._resume)

    def _restore_finished(self, trainer: SFTTrainer, checkpoint: str) -> None:
        """Every step was done before the stop: asked to train, transformers would do one more."""
        self._context.phase("TRAINING")
        finished = pretrained.load_model(self._context.spec, checkpoint)
        trainer.accelerator.unwrap_model(trainer.model).load_state_dict(finished.state_dict())
        trainer.state = TrainerState.load_from_json(str(Path(checkpoint) / _STATE_FILE))

    def _evaluate(self, trainer: SFTTrainer) -> None:
        """The final measure, unless the last step has just been measured."""
        if self._reporting.evaluated_step != trainer.state.global_step:
            self._context.phase("EVALUATING")
            trainer.evaluate()

    def _export(self, trainer: SFTTrainer, tokenizer: PreTrainedTokenizerBase) -> tuple[str, ...]:
        self._context.phase("EXPORTING")
        weights: tuple[str, ...] = ()
        if self._context.rank == 0:
            model = trainer.accelerator.unwrap_model(trainer.model)
            weights = export(model, tokenizer, self._context.output_dir)
        wait_for_all()
        return weights

    def _result(self, trainer: SFTTrainer, weights: tuple[str, ...] = ()) -> Result:
        stop = self._boundaries.stop
        return Result(
            stopped=stop.kind if stop else None,
            step=trainer.state.global_step,
            tokens=self._reporting.totals.tokens,
            final_metrics=self._reporting.final_metrics,
            output=str(self._context.output_dir) if weights else "",
            weight_files=weights,
        )


def _marks_assistant(tokenizer: PreTrainedTokenizerBase) -> bool:
    """Whether the assistant's turns can be told apart; trl knows marked forms of common templates."""
    if not tokenizer.chat_template:
        return False
    if has_generation_markers(tokenizer.chat_template):
        return True
    try:
        return get_training_chat_template(tokenizer) is not None
    except ValueError:
        return False


def _is_finished(trainer: SFTTrainer, checkpoint: str) -> bool:
    state = json.loads((Path(checkpoint) / _STATE_FILE).read_text(encoding="utf-8"))
    if state["global_step"] < state["max_steps"]:
        return False
    # The job that goes on may ask for more steps than the one that made the checkpoint.
    planned = trainer.set_initial_training_values(trainer.args, trainer.get_train_dataloader())[-1]
    return bool(state["global_step"] >= planned)
