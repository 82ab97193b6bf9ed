"""Scorers with code of users: `custom:/path/metric.py`, and rewards as of RLHF. They run in the job's sandbox."""

import importlib.util
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from app.domain.evaluations.catalog import REWARD, argument, files
from app.domain.spec.hyperparameters.rlhf import EXACT, reward_kind
from workers.trainers.failures import InvalidConfig
from workers.trainers.hidden_packages import let_users_import
from workers.trainers.inference.evaluation.dataset import Dataset
from workers.trainers.inference.evaluation.measure import BenchmarkTask
from workers.trainers.inference.evaluation.scoring import AnsweredRecord, Located, Scored
from workers.trainers.rewards import Reward, RewardFailed, reward_of

FUNCTION = "score"  # in a user's file
_SIGNATURE = f"{FUNCTION}(records, completions)"


class CustomScorer:
    """Calls the function once for all records; it returns one number for each completion."""

    def __init__(self, task: BenchmarkTask, dataset: Dataset) -> None:
        self._dataset = dataset
        self._path = _local_path(task)
        self._function = _loaded(self._path)

    def check(self, records: Sequence[Located]) -> None:
        """What records need only the function knows."""

    def __call__(self, answered: Sequence[AnsweredRecord]) -> list[Scored]:
        records = [{"prompt": each.record["prompt"], **each.record["columns"]} for each in answered]
        texts = [each.completion.text for each in answered]
        try:
            scores = list(self._function(records, texts))
        except Exception as error:
            place = self._failing(answered, records, texts)
            raise RewardFailed(f"{self._path.name}: {_SIGNATURE} failed{place}: {_shown(error)}") from error
        if len(scores) != len(texts):
            raise RewardFailed(
                f"{self._path.name}: {_SIGNATURE} returned {len(scores)} numbers for {len(texts)} completions; it must "
                "return one for each, in their order"
            )
        return [Scored({FUNCTION: self._number(*each)}) for each in zip(answered, scores, strict=True)]

    def _number(self, answered: AnsweredRecord, score: object) -> float:
        try:
            number = float(score)  # type: ignore[arg-type]  # what it is, float says
        except (TypeError, ValueError):
            number = math.nan
        if not math.isfinite(number):
            raise RewardFailed(
                f"{self._path.name}: {_SIGNATURE} returned {str(score)[:64]!r} for record {answered.row.index} "
                f"({answered.row.where}); it must return finite numbers"
            )
        return number

    def _failing(self, answered: Sequence[AnsweredRecord], records: list[dict[str, Any]], texts: list[str]) -> str:
        """The first record that fails alone, too."""
        for each, record, text in zip(answered, records, texts, strict=True):
            try:
                list(self._function([record], [text]))
            except Exception:  # noqa: BLE001  whatever user code raises
                return f" on record {each.row.index} ({each.row.where})"
        return ""


class RewardScorer:
    """Rewards of trainings, over all columns that any record has."""

    def __init__(self, task: BenchmarkTask, dataset: Dataset) -> None:
        self._dataset = dataset
        self._said = str(task.parameters[REWARD])
        self._path = str(_local_path(task)) if files(task.benchmark) else ""

    def check(self, records: Sequence[Located]) -> None:
        self._reward(records)
        check_compared(self._said, self._dataset, records)

    def __call__(self, answered: Sequence[AnsweredRecord]) -> list[Scored]:
        reward = self._reward([(each.row, each.record) for each in answered])
        found = reward(
            prompts=[each.record["prompt"] for each in answered],
            completions=[each.completion.text for each in answered],
            completion_ids=[each.completion.tokens for each in answered],
            columns=[each.record["columns"] for each in answered],
        )
        return [Scored({REWARD: score}) for score in found]

    def _reward(self, records: Sequence[Located]) -> Reward:
        columns = sorted({name for _, record in records for name in record["columns"]})
        return reward_of(self._said, columns, self._path)


def check_compared(said: str, dataset: Dataset, records: Sequence[Located]) -> None:
    """Raise DataInvalid for a record without the column that the reward compares with."""
    kind, column = reward_kind(said)
    for row, record in records if kind == EXACT else ():
        dataset.column(row, record, column)


def _local_path(task: BenchmarkTask) -> Path:
    """Where the file lies on this node; in runs without a supervisor the named path itself."""
    named = argument(task.benchmark.name) or str(task.parameters.get(REWARD, ""))
    return Path(task.spec.benchmark_files.get(named, named))


def _loaded(path: Path) -> Callable[[list[dict[str, Any]], list[str]], Any]:
    spec = importlib.util.spec_from_file_location("trainyard_metric", path)
    if not path.is_file() or spec is None or spec.loader is None:
        raise InvalidConfig(f"benchmark custom: there is no Python file {path.name}")
    module = importlib.util.module_from_spec(spec)
    let_users_import()
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise RewardFailed(f"{path.name} can't be loaded: {_shown(error)}") from error
    function: Any = getattr(module, FUNCTION, None)
    if not callable(function):
        raise InvalidConfig(f"{path.name} has no function {_SIGNATURE}")
    return function  # type: ignore[no-any-return]


def _shown(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
