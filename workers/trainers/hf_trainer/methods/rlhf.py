"""Reinforcement learning from feedback (RLHF): raises the likelihood of completions with above-average reward for their
prompt.

GRPO: Shao et al., DeepSeekMath, 2024 (arXiv:2402.03300), with the losses of Yu et al., DAPO, 2025 (arXiv:2503.14476)
and Liu et al., Understanding R1-Zero-Like Training, 2025 (arXiv:2503.20783). RLOO: Ahmadian et al., Back to Basics,
2024 (arXiv:2402.14740).
"""

from typing import Any

from datasets import Dataset
from transformers import PreTrainedModel, PreTrainedTokenizerBase
from trl.trainer.grpo_config import GRPOConfig
from trl.trainer.grpo_trainer import GRPOTrainer
from trl.trainer.rloo_config import RLOOConfig
from trl.trainer.rloo_trainer import RLOOTrainer

from app.domain.spec.hyperparameters import rlhf
from app.domain.spec.hyperparameters.parsing import InvalidHyperparameter
from workers.rank.run_context import Result, RunContext
from workers.rank.spec_sections import training_config
from workers.trainers.data.datasets import Splits
from workers.trainers.failures import DataInvalid, InvalidConfig
from workers.trainers.graders.reward import GraderReward, checked_grader
from workers.trainers.hf_trainer.loop.arguments import arguments
from workers.trainers.hf_trainer.loop.parallelism import parallelism_of
from workers.trainers.hf_trainer.loop.training import Training
from workers.trainers.hf_trainer.loop.trl_trainer import TrlTrainer
from workers.trainers.hf_trainer.methods.generation import GenerationTrainer, column_names
from workers.trainers.hf_trainer.methods.ppo import Ppo
from workers.trainers.hf_trainer.model.pretrained import disable_dropout
from workers.trainers.hf_trainer.model.reward_model import load_reward_model
from workers.trainers.hf_trainer.model.trainable_weights import FullWeights, chosen_weights
from workers.trainers.hf_trainer.monitoring.reward_collapse_detector import RewardCollapseDetector
from workers.trainers.rewards import reward_of


class _Grpo(GenerationTrainer, GRPOTrainer):
    """The advantage is the reward relative to the mean of the prompt's completions."""

    def _in_form(self, found: list[list[int]]) -> tuple[list[list[int]], None]:
        return found, None  # log-probabilities, which only other samplers than the policy need


class _Rloo(GenerationTrainer, RLOOTrainer):
    """The advantage is the reward relative to the mean of the prompt's other completions."""


_CHOSEN: dict[str, tuple[type[GenerationTrainer], type[GRPOConfig] | type[RLOOConfig], tuple[str, ...]]] = {
    rlhf.GRPO: (_Grpo, GRPOConfig, ("loss_type", "scale_rewards")),
    rlhf.RLOO: (_Rloo, RLOOConfig, ("normalize_advantages",)),
    rlhf.PPO: (Ppo, RLOOConfig, ()),
}
_COPIED = ("num_generations", "max_completion_length", "temperature", "top_p", "top_k", "mask_truncated_completions")


class RlhfTrainer(Training):
    """Trains all weights against a frozen reference copy, or an adapter, without which the model is its own
    reference.
    """

    loss_has_trend = False

    def __init__(self, context: RunContext) -> None:
        super().__init__(context)
        self._grader: GraderReward | None = None
        self._built: GenerationTrainer | None = None
        try:
            rlhf.check_batch(context.spec.hyperparameters, self.plan.records_per_step)
        except InvalidHyperparameter as error:
            raise InvalidConfig(error.message) from error

    def run(self) -> Result:
        """As Trainer.run."""
        try:
            return super().run()
        finally:
            if self._grader is not None:
                self._grader.close()
            if self._built is not None:
                self._built.close()

    def choose_weights(self) -> FullWeights:
        return chosen_weights(self.context.spec)

    def build(self, splits: Splits, tokenizer: PreTrainedTokenizerBase) -> TrlTrainer:
        spec = self.context.spec
        values = spec.hyperparameters
        trainer, config, own = _CHOSEN[values[rlhf.ALGORITHM]]
        self._check_amount(splits)
        args = config(
            **arguments(self.context, self.plan, validates=splits.validation is not None),
            **{name: values[name] for name in (*_COPIED, *own)},
            **self._reuse(),
            # One completion per prompt suffices for evaluation and fits every batch.
            num_generations_eval=1,
            # trl would reload the reference model from disk, without the changes made since.
            beta=0.0,
            disable_dropout=False,
        )
        model = self._read(tokenizer)
        adapter = self.weights.adapter(model)
        found = self._built = trainer(
            **self.common(splits, tokenizer),
            beta=values["beta"],
            section=self.context.section,
            stop_and_save=self.stop_and_save,
            reference=self._reference(model, tokenizer) if adapter is None and values["beta"] else None,
            model=model,
            **self._judge(splits),
            peft_config=adapter,
            args=args,
        )
        found.add_callback(RewardCollapseDetector(self.context))
        return found

    def _read(self, tokenizer: PreTrainedTokenizerBase) -> PreTrainedModel:
        model = self.weights.load_base(tokenizer)
        if self.context.spec.hyperparameters["disable_dropout"]:
            disable_dropout(model)
        return model

    def _reference(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> PreTrainedModel:
        return parallelism_of(self.context.spec.framework).reference_copy(model, lambda: self._read(tokenizer))

    def _reuse(self) -> dict[str, Any]:
        """Number of steps per generation batch: one, unless completions are stored in checkpoints."""
        values = self.context.spec.hyperparameters
        if values[rlhf.ALGORITHM] != rlhf.PPO:
            return {}
        steps = self.plan.accumulation * values["num_mini_batches"]
        return {"num_iterations": values["num_ppo_epochs"], "steps_per_generation": steps}

    def _judge(self, splits: Splits) -> dict[str, Any]:
        """The reward functions or models that score completions."""
        spec = self.context.spec
        if spec.reward_model_path:
            model, tokenizer = load_reward_model(spec)
            return {"reward_funcs": model, "reward_processing_classes": tokenizer}
        if given := training_config(spec).grader:
            self._grader = GraderReward(self.context, checked_grader(given, column_names(splits.train)))
            return {"reward_funcs": self._grader}
        return {
            "reward_funcs": reward_of(spec.hyperparameters[rlhf.REWARD], column_names(splits.train), spec.reward_path)
        }

    def _check_amount(self, splits: Splits) -> None:
        values = self.context.spec.hyperparameters
        steps = values["num_mini_batches"] if values[rlhf.ALGORITHM] == rlhf.PPO else 1
        prompts = self.plan.records_per_step * steps // values["num_generations"]
        if isinstance(splits.train, Dataset) and len(splits.train) < prompts:
            raise DataInvalid(
                f"there are {len(splits.train)} prompts to train on, fewer than the {prompts} completed at once: "
                "lower data_config.batch_size, or raise num_generations"
            )
