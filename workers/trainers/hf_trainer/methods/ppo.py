"""Proximal policy optimization: policy and critic train for several steps on the same completions.

Schulman et al., 2017 (arXiv:1707.06347); with language models: Ouyang et al., Training language models to follow
instructions with human feedback, 2022 (arXiv:2203.02155). Prompts, completions, rewards and the reference model are
trl's.
"""

from pathlib import Path
from typing import Any, cast

import torch
from peft import PeftModel
from torch import Tensor, nn
from transformers import PreTrainedModel
from trl.trainer.rloo_config import RLOOConfig
from trl.trainer.rloo_trainer import RLOOTrainer

from workers.trainers.hf_trainer.methods.advantages import (
    advantages_of,
    policy_loss,
    token_rewards,
    value_loss,
    whitened,
)
from workers.trainers.hf_trainer.methods.critic import Critic
from workers.trainers.hf_trainer.methods.generation import Examples, GenerationTrainer
from workers.trainers.hf_trainer.model.pretrained import without_dropout

_HEAD_FILE, _COMPLETIONS_FILE = "value_head.pt", "completions.pt"


class Ppo(GenerationTrainer, RLOOTrainer):
    """The advantage of a token is the return relative to the critic's prediction.

    Completions still in use are stored in every checkpoint, so that training can resume at any step.
    """

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._critic = Critic(self.model)
        self._passes: list[tuple[Tensor, Tensor]] = []
        self._scores = torch.zeros(0)

    def whole_model(self) -> PreTrainedModel | PeftModel | None:
        self._critic.detached()
        return super().whole_model()

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        if self._metrics["train"]:
            # trl reports it only for steps that generate completions.
            self._metrics["train"]["num_tokens"] = [self.state.num_input_tokens_seen]
        super().log(logs, start_time)

    def own_files(self) -> dict[str, Any]:
        head = {name: tensor.clone() for name, tensor in self._critic.head.state_dict().items()}
        return {_HEAD_FILE: head, _COMPLETIONS_FILE: self._buffered_inputs}

    def _load_from_checkpoint(self, checkpoint: str, model: nn.Module | None = None) -> None:
        super()._load_from_checkpoint(checkpoint, model)
        # An adapter's model has no other file for it.
        head, buffered = (
            torch.load(Path(checkpoint) / name, map_location=self.args.device, weights_only=True)
            for name in (_HEAD_FILE, _COMPLETIONS_FILE)
        )
        self._critic.head.load_state_dict(head)
        # Batches of another size (as after running out of memory) split completions differently, so new ones are
        # generated.
        steps = cast("RLOOConfig", self.args).steps_per_generation
        if buffered is not None and self._taken_over is None and len(buffered) == steps:
            self._buffered_inputs = buffered

    def _init_training_state(self, *given: Any) -> tuple[int, int]:
        place = super()._init_training_state(*given)
        self._step = self.state.global_step * self.args.gradient_accumulation_steps
        return place

    def _generate_and_score_completions(self, inputs: Examples) -> dict[str, Any]:
        """As trl's, with values per token; all except prompts and completions have shape (records, tokens)."""
        self._passes = []
        with without_dropout(cast("nn.Module", self.model)):
            found = super()._generate_and_score_completions(inputs)
        mask = found["completion_mask"]
        logps, values = self._passes[0]
        reference = self._passes[1][0] if self.beta else logps
        rewards = token_rewards(self._scores, logps - reference, mask, self.beta)
        hyperparameters = self._spec.hyperparameters
        advantages, returns = advantages_of(rewards, values, mask, hyperparameters["gamma"], hyperparameters["lam"])
        self._passes = []
        return found | {
            "advantages": whitened(advantages, mask),
            "token_logps": logps,
            "values": values * mask,
            "returns": returns,
        }

    def _calculate_rewards(self, *given: Any) -> Tensor:
        found: Tensor = super()._calculate_rewards(*given)
        self._scores = found.nansum(dim=1)
        return found

    def _get_per_token_logps_and_entropies(
        self, model: nn.Module, input_ids: Tensor, attention_mask: Tensor, logits_to_keep: int, *more: Any, **named: Any
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        with self._critic.capturing() as hidden:
            found: tuple[Tensor, Tensor | None, Tensor | None] = super()._get_per_token_logps_and_entropies(
                model, input_ids, attention_mask, logits_to_keep, *more, **named
            )
        # A separate reference model is not captured, and its values are not needed.
        values = self._critic.values(hidden, logits_to_keep) if hidden else torch.zeros_like(found[0])
        self._passes.append((found[0], values))
        return found

    def _compute_loss(self, model: nn.Module, inputs: dict[str, Any]) -> Tensor:
        mask = inputs["completion_mask"]
        ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], dim=1)
        self._passes = []
        _, entropies, _ = self._get_per_token_logps_and_entropies(
            model, ids, torch.cat([inputs["prompt_mask"], mask], dim=1), mask.shape[1], compute_entropy=True
        )
        logps, values = self._passes.pop()
        hyperparameters = self._spec.hyperparameters
        ratio = torch.exp((logps - inputs["token_logps"]) * mask)
        policy, clipped = policy_loss(ratio, inputs["advantages"], mask, hyperparameters["cliprange"])
        value = value_loss(values, inputs["values"], inputs["returns"], mask, hyperparameters["cliprange_value"])
        metrics = {"policy_loss": policy, "value_loss": value, "clip_ratio": clipped}
        self._report(model, {**metrics, "entropy": (entropies * mask).sum() / mask.sum().clamp(min=1)})
        loss: Tensor = policy + hyperparameters["vf_coef"] * value
        return loss

    def _report(self, model: nn.Module, values: dict[str, Tensor]) -> None:
        measured = self._metrics["train" if model.training else "eval"]
        for name, value in values.items():
            measured[name].append(value.item())
