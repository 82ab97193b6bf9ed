"""Benchmark `reward` by a reward model: its number for prompt and answer together, as in RLHF's `reward_model_id`."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from app.domain.evaluations.catalog import REWARD
from app.domain.spec.hyperparameters.rlhf import REWARD_MODEL
from workers.trainers.data.shapes import Record
from workers.trainers.failures import InvalidConfig
from workers.trainers.hf_trainer.model.reward_model import load_reward_model
from workers.trainers.inference.engine.classification import Classification
from workers.trainers.inference.engine.interface import RequestRefused, Scores, TokenIds
from workers.trainers.inference.engine.loading import device_of, ensure_padding
from workers.trainers.inference.engine.refusing import EngineLimits, answer_accepted, not_finite
from workers.trainers.inference.evaluation.dataset import Dataset
from workers.trainers.inference.evaluation.measure import BenchmarkTask
from workers.trainers.inference.evaluation.scoring import AnsweredRecord, Located, Scored
from workers.trainers.inference.inputs import InputRow
from workers.trainers.inference.tokens import Unanswerable, ids_of

_NO_LIMIT = 1 << 20  # tokens, for models whose positions have none


class RewardModelScorer:
    """Loads the reward model beside the measured one, on the same device. Raises ModelNotFound and InvalidConfig."""

    def __init__(self, task: BenchmarkTask, dataset: Dataset) -> None:
        if not task.spec.reward_model_path:
            raise InvalidConfig(f"{REWARD_MODEL}: the reward model is not on this node; submit the evaluation again")
        loaded, self._tokenizer = load_reward_model(task.spec)
        model: Any = loaded.to(device_of(task.spec))  # type: ignore[arg-type]
        model.requires_grad_(False)
        model.train(mode=False)
        ensure_padding(self._tokenizer)
        model.config.pad_token_id = self._tokenizer.pad_token_id
        self._dataset, self._interrupted = dataset, task.interrupted
        positions = getattr(model.config.get_text_config(), "max_position_embeddings", None) or _NO_LIMIT
        self._limits = EngineLimits(int(positions), int(model.get_input_embeddings().num_embeddings))
        self._scores = Classification(model, self._tokenizer.pad_token_id or 0)

    def check(self, records: Sequence[Located]) -> None:
        """Reads each prompt with an empty answer, which every other answer only makes longer."""
        for row, record in records:
            tokens = self._tokens(row, record, "")
            if tokens and (refused := self._limits.refuse(tokens)):
                self._accepted(row, refused)

    def __call__(self, answered: Sequence[AnsweredRecord]) -> list[Scored]:
        found: list[Scores | RequestRefused] = answer_accepted(
            [self._tokens(each.row, each.record, each.completion.text) for each in answered],
            self._limits.refuse,
            lambda accepted: self._scores(accepted, self._interrupted),
        )
        return [self._scored(*each) for each in zip(answered, found, strict=True)]

    def _tokens(self, row: InputRow, record: Record, answer: str) -> TokenIds:
        """The text that trainings give a reward model: prompt and answer joined, or a conversation by its template."""

        def tokenized() -> Mapping[str, Any]:
            prompt = record["prompt"]
            if isinstance(prompt, str):
                text: Any = prompt + answer
            else:
                messages = [*prompt, {"role": "assistant", "content": answer}]
                text = self._tokenizer.apply_chat_template(messages, tokenize=False)
            # Not verbose: lengths are checked by the limits.
            found: Mapping[str, Any] = self._tokenizer(text, add_special_tokens=False, verbose=False)
            return found

        try:
            return ids_of(tokenized)
        except Unanswerable as error:
            raise self._dataset.invalid(row, f"{REWARD_MODEL}: {error.message}") from error

    def _scored(self, answered: AnsweredRecord, scores: Scores | RequestRefused) -> Scored:
        value = self._accepted(answered.row, scores).value
        if value is None:
            raise InvalidConfig(f"{REWARD_MODEL}: it gives no single number; name a reward model")
        if not math.isfinite(value):
            self._accepted(answered.row, not_finite("score"))
        return Scored({REWARD: value})

    def _accepted(self, row: InputRow, scores: Scores | RequestRefused) -> Scores:
        """Raises DataInvalid for a refusal, which is of the reward model, not of the measured one."""
        if isinstance(scores, RequestRefused):
            scores = replace(scores, message=f"{REWARD_MODEL}: {scores.message}")
        return self._dataset.accepted(row, scores)
