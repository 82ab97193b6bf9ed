"""Warns when rewards stop varying, because the training then learns nothing."""

# ruff: noqa: ARG002  (transformers calls every handler with the same arguments)

from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from workers.rank.run_context import RunContext

REWARDS_ALIKE = "REWARDS_ALIKE"
TOLERATED = 20  # single steps with equal rewards for all completions are normal


class RewardCollapseDetector(TrainerCallback):
    """Warns once per run; the count restarts after a resume."""

    def __init__(self, context: RunContext) -> None:
        self._context = context
        self._since = 0
        self._alike = 0

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, float] | None = None,
        **kwargs: Any,
    ) -> None:
        deviation = (logs or {}).get("reward_std")
        if deviation is None:
            return
        if deviation > 0:
            self._alike = 0
            return
        self._since = self._since if self._alike else state.global_step
        self._alike += 1
        if self._alike == TOLERATED:
            reward = float((logs or {}).get("reward", 0.0))
            self._context.note(
                REWARDS_ALIKE,
                f"since step {self._since} all completions have the same reward, {reward:.4g}: nothing is learned from "
                "them. Lower learning_rate or raise beta if the model has collapsed, otherwise use a reward that "
                "distinguishes completions",
                {"since_step": self._since, "reward": reward},
            )
