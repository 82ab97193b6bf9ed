"""Training records from JSON Lines files: read, checked line by line, and split for validation."""

import json
import random
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from datasets import Dataset, disable_progress_bars
from datasets.exceptions import DatasetGenerationError

from workers.trainers.failures import DataInvalid, DataNotFound, InvalidConfig

Record = dict[str, Any]

# The three shapes of a record, by what it holds.
_SHAPES = (("messages",), ("prompt", "completion"), ("text",))
_VALIDATION_SPLITS = frozenset({"validation", "valid", "val", "eval", "test", "dev"})


@dataclass(frozen=True)
class Splits:
    """What to learn from and what to measure on."""

    train: Dataset
    validation: Dataset | None

    @property
    def conversational(self) -> bool:
        return "messages" in self.train.column_names


def load(paths: Iterable[str], data_config: Mapping[str, Any], cache_dir: Path) -> Splits:
    """The records of all sources. Validation data: sources whose split says so, else `validation_split`.

    Raises DataNotFound, DataInvalid, InvalidConfig.
    """
    disable_progress_bars()
    train_paths, validation_paths = _by_split(tuple(paths), data_config)
    train = _dataset(train_paths, cache_dir)
    if validation_paths:
        return Splits(train, _dataset(validation_paths, cache_dir))
    share = data_config.get("validation_split") or 0.0
    if not share:
        return Splits(train, None)
    seed = data_config.get("seed")
    return _split(train, share, 42 if seed is None else seed)


def read(path: str) -> Iterator[tuple[str, Record]]:
    """Each record of a file with its shape's name, checked. Raises DataNotFound and DataInvalid."""
    try:
        with Path(path).open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, start=1):
                if line.strip():
                    yield _checked(line, f"{Path(path).name} line {number}")
    except FileNotFoundError as error:
        raise DataNotFound(f"{path} is not there") from error
    except UnicodeDecodeError as error:
        raise DataInvalid(f"{Path(path).name} is not UTF-8: {error}") from error


def _by_split(paths: tuple[str, ...], data_config: Mapping[str, Any]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Paths stand in the order of the sources, one each."""
    sources = data_config.get("sources") or []
    names = [str((source or {}).get("split") or "train").lower() for source in sources]
    if len(names) != len(paths):
        names = ["train"] * len(paths)
    pairs = tuple(zip(paths, names, strict=True))
    train = tuple(path for path, name in pairs if name not in _VALIDATION_SPLITS)
    if not train:
        raise InvalidConfig("data_config.sources has no source to train on: every split is for validation")
    return train, tuple(path for path, name in pairs if name in _VALIDATION_SPLITS)


def _dataset(paths: tuple[str, ...], cache_dir: Path) -> Dataset:
    # On disk, so that its size is no matter of memory and later ranks find what the first one made.
    try:
        return Dataset.from_generator(_records, gen_kwargs={"paths": list(paths)}, cache_dir=str(cache_dir))
    except DatasetGenerationError as error:
        # datasets wraps whatever its generator raises.
        raise error.__cause__ or error from None


def _records(paths: list[str]) -> Iterator[Record]:
    shape = None
    for path in paths:
        for found, record in read(path):
            shape = shape or found
            if found != shape:
                raise DataInvalid(f"{Path(path).name} has records of {found}, earlier ones are of {shape}: use one")
            yield record
    if shape is None:
        raise DataInvalid("no records in " + ", ".join(Path(path).name for path in paths))


def _split(dataset: Dataset, share: float, seed: int) -> Splits:
    count = max(1, round(len(dataset) * share))
    if count >= len(dataset):
        raise InvalidConfig(f"validation_split {share} leaves nothing to train on: there are {len(dataset)} records")
    chosen = set(random.Random(seed).sample(range(len(dataset)), count))  # noqa: S311
    train = [index for index in range(len(dataset)) if index not in chosen]
    return Splits(dataset.select(train), dataset.select(sorted(chosen)))


def _checked(line: str, where: str) -> tuple[str, Record]:
    try:
        record = json.loads(line)
    except ValueError as error:
        raise DataInvalid(f"{where} is not JSON: {error}") from error
    if not isinstance(record, dict):
        raise DataInvalid(f"{where} is not a JSON object")
    for shape in _SHAPES:
        if all(name in record for name in shape):
            kept = {name: record[name] for name in shape}
            _check_values(kept, where)
            return " and ".join(shape), kept
    raise DataInvalid(f"{where} has neither messages, nor prompt and completion, nor text; it has {sorted(record)}")


def _check_values(record: Record, where: str) -> None:
    if "messages" in record:
        _check_messages(record["messages"], where)
        return
    for name, value in record.items():
        if not isinstance(value, str) or not value:
            raise DataInvalid(f"{where}: {name} must be a text that is not empty")


def _check_messages(messages: Any, where: str) -> None:
    if not isinstance(messages, list) or not messages:
        raise DataInvalid(f"{where}: messages must be a list that is not empty")
    for message in messages:
        complete = isinstance(message, dict) and all(isinstance(message.get(key), str) for key in ("role", "content"))
        if not complete:
            raise DataInvalid(f"{where}: each message needs a role and a content, both texts")
    if not any(message["role"] == "assistant" for message in messages):
        raise DataInvalid(f"{where}: messages have no turn of the assistant to learn")
