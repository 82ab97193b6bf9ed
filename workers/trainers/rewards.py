"""Rewards for completions in RLHF: length, pattern or exact match, or a user function."""

import importlib.util
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.domain.spec.hyperparameters.parsing import InvalidHyperparameter
from app.domain.spec.hyperparameters.rlhf import EXACT, LENGTH, REGEX, reward_kind
from app.patterns.rewards import compiled
from workers.trainers.failures import InvalidConfig, TrainingFailure
from workers.trainers.hidden_packages import let_users_import

FUNCTION = "reward"  # in a user's file

Message = dict[str, Any]
Completion = str | list[Message]
Scores = list[float]


class RewardFailed(TrainingFailure):
    """The user's function raised, or did not return one number per completion."""

    error_type = "SCRIPT_ERROR"


@dataclass(frozen=True)
class RewardInputs:
    """The inputs of a reward; all lists have one length and order."""

    prompts: list[Any]
    completions: list[str]
    completion_ids: Sequence[Sequence[int]]
    columns: Sequence[Mapping[str, Any]]

    def column(self, name: str) -> list[Any]:
        """The column's values; None where a record lacks it."""
        return [each.get(name) for each in self.columns]


class Reward:
    """Scores completions in trl's reward function interface; `name` appears in metric names."""

    def __init__(self, name: str, score: Callable[[RewardInputs], Sequence[float]]) -> None:
        self.__name__ = name
        self._score = score

    def __call__(
        self,
        *,
        prompts: Sequence[Any],
        completions: Sequence[Completion],
        completion_ids: Sequence[Sequence[int]],
        columns: Sequence[Mapping[str, Any]],
        **_: Any,
    ) -> Scores:
        """One score per completion, from its text, its tokens and the columns of its record.

        Raises RewardFailed.
        """
        try:
            given = RewardInputs(list(prompts), [text_of(each) for each in completions], completion_ids, columns)
            found = [float(score) for score in self._score(given)]
        except TrainingFailure:
            raise
        except Exception as error:
            raise RewardFailed(f"the reward {self.__name__} failed: {type(error).__name__}: {error}") from error
        if len(found) != len(completions):
            raise RewardFailed(
                f"the reward {self.__name__} gave {len(found)} numbers for {len(completions)} completions; it must "
                "return one for each, in their order"
            )
        if bad := next((score for score in found if not math.isfinite(score)), None):
            raise RewardFailed(f"the reward {self.__name__} gave {bad}; it must return finite numbers")
        return found


def reward_of(said: str, columns: Sequence[str], path: str = "") -> Reward:
    """The reward that hyperparameter `reward` names; `columns` are those of the records besides the prompt.

    `length:N`: from 1 at N tokens down to 0 at none or 2 N. `regex:PATTERN`: 1 where it is found, in RE2's syntax, else
    0. `exact` or `exact:COLUMN`: 1 where the completion equals that column's text, else 0; surrounding space is
    ignored. Otherwise the path of a Python file with `reward(prompts, completions, **columns)`, stored at `path` here.
    Raises InvalidConfig.
    """
    kind, rest = reward_kind(said)
    if kind == LENGTH:
        return _length(int(rest))
    if kind == REGEX:
        return _regex(rest)
    if kind == EXACT:
        return _exact(rest, columns)
    return _of_file(Path(path or said), columns)


def text_of(completion: Completion) -> str:
    """The generated text; of a conversation the last message."""
    return completion if isinstance(completion, str) else str(completion[-1].get("content") or "")


def _length(target: int) -> Reward:
    def score(given: RewardInputs) -> Scores:
        return [max(0.0, 1 - abs(len(ids) - target) / target) for ids in given.completion_ids]

    return Reward(LENGTH, score)


def _regex(text: str) -> Reward:
    try:
        pattern = compiled(text)
    except InvalidHyperparameter as error:
        raise InvalidConfig(error.message) from error

    def score(given: RewardInputs) -> Scores:
        return [float(pattern.search(each) is not None) for each in given.completions]

    return Reward(REGEX, score)


def _exact(column: str, columns: Sequence[str]) -> Reward:
    if column not in columns:
        known = ", ".join(columns) or "none beside the prompt"
        raise InvalidConfig(
            f"reward exact: the records have no column {column}; they have {known}. Name one, as in exact:solution"
        )

    def score(given: RewardInputs) -> Scores:
        pairs = zip(given.completions, given.column(column), strict=True)
        return [float(each.strip() == str(wanted).strip()) for each, wanted in pairs]

    return Reward(EXACT, score)


def _of_file(path: Path, columns: Sequence[str]) -> Reward:
    spec = importlib.util.spec_from_file_location("trainyard_reward", path)
    if not path.is_file() or spec is None or spec.loader is None:
        raise InvalidConfig(f"reward {path.name}: there is no Python file of that name")
    module = importlib.util.module_from_spec(spec)
    let_users_import()
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise RewardFailed(f"{path.name} can't be loaded: {type(error).__name__}: {error}") from error
    function = getattr(module, FUNCTION, None)
    if not callable(function):
        raise InvalidConfig(f"{path.name} has no function {FUNCTION}(prompts, completions, **columns)")

    if taken := {"prompts", "completions"}.intersection(columns):
        raise InvalidConfig(
            f"{path.name}: a column of the records is called {' and '.join(sorted(taken))}, as an argument of "
            f"{FUNCTION} is; leave it out of data_config.sources.columns"
        )

    def score(given: RewardInputs) -> Sequence[float]:
        named = {name: given.column(name) for name in columns}
        found: Sequence[float] = function(given.prompts, given.completions, **named)
        return found

    return Reward(path.stem, score)
