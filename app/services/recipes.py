"""The recipes that are installed: files of the folder `recipes`, each a job document under a comment that explains it.

Model, method and hardware are read from the document itself; the comment holds only what a document has no field for.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Any

FOLDER = "recipes"
SUFFIX = ".yaml"
# Of the cards that people buy, the memory that drivers report is up to a tenth below the round number.
SIZES_GB = (24, 48, 80)
METHODS = ("SFT", "LORA", "QLORA", "DPO", "GRPO", "CONTINUED_PRETRAIN")
FAMILIES = ("llama", "qwen", "mistral", "gemma", "phi")


@dataclass(frozen=True)
class Recipe:
    name: str
    family: str
    text: str = field(repr=False)

    @cached_property
    def document(self) -> dict[str, Any]:
        """The job document, with a placeholder for the data."""
        import yaml  # noqa: PLC0415 – slow to import, and completion needs names alone

        loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # ten times as fast where libyaml is
        loaded: dict[str, Any] = yaml.load(self.text, loader)  # noqa: S506 – both are safe loaders
        return loaded

    @cached_property
    def comment(self) -> list[str]:
        """The lines of the comment at the top; the first one says what the recipe is for."""
        lines = []
        for line in self.text.splitlines():
            if not line.startswith("#"):
                break
            lines.append(line.removeprefix("#").strip())
        return lines

    @property
    def summary(self) -> str:
        return self.comment[0]

    @property
    def data(self) -> str:
        """The records that it trains on."""
        return self._said("Data")

    @property
    def notes(self) -> list[str]:
        return [line.partition(":")[2].strip() for line in self.comment if line.startswith("Note:")]

    @property
    def sources(self) -> list[str]:
        """Where its values are from."""
        return self._said("Sources").removesuffix(".").split("; ")

    @property
    def model(self) -> str:
        return str(self._training.get("base_model", {}).get("model_id", "none"))  # a CUSTOM job needs none

    @property
    def method(self) -> str:
        kind = str(self._training.get("training_type") or self.framework)
        return str(self._training["hyperparameters"]["algorithm"]).upper() if kind == "RLHF" else kind

    @property
    def framework(self) -> str:
        return str(self._training["framework"]["type"])

    @property
    def gpu_count(self) -> int:
        return int(self.document["resource_config"]["gpu_count"])

    @property
    def gpu_memory_gb(self) -> int:
        """The memory of each GPU as cards are named."""
        least = self.document["resource_config"]["gpu_memory_min_mb"] / 1024
        return next(size for size in SIZES_GB if size >= least)

    @property
    def hardware(self) -> str:
        return f"{self.gpu_count} × {self.gpu_memory_gb} GB"

    @property
    def _training(self) -> Mapping[str, Any]:
        training: Mapping[str, Any] = self.document["training_config"]
        return training

    def _said(self, about: str) -> str:
        start = f"{about}:"
        return next((line.removeprefix(start).strip() for line in self.comment if line.startswith(start)), "")


def recipe_names() -> list[str]:
    """The names alone: nothing is read."""
    return [name for _, name, _ in _files()]


def recipes() -> list[Recipe]:
    """All recipes, by family and name."""
    return [Recipe(name, family, path.read_text(encoding="utf-8")) for family, name, path in _files()]


def recipe(name: str) -> Recipe | None:
    """The recipe of this name."""
    return next(
        (Recipe(found, family, path.read_text(encoding="utf-8")) for family, found, path in _files() if found == name),
        None,
    )


def _files() -> Iterator[tuple[str, str, Traversable]]:
    """(family, name, file) of each recipe."""
    for family in FAMILIES:
        found = [path for path in resources.files(FOLDER).joinpath(family).iterdir() if path.name.endswith(SUFFIX)]
        for path in sorted(found, key=lambda path: path.name):
            yield family, path.name.removesuffix(SUFFIX), path
