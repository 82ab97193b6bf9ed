"""A job document in the making: what both imports put together, and what the trainer's own table says of it."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from app.cli.client.imports.keys import ConfigKeys, LeftOut
from app.domain.spec.hyperparameters.parsing import TABLES

_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9._-]+")


@dataclass(frozen=True)
class Imported:
    """The job document, and the keys that it does not carry as they are."""

    document: dict[str, Any]
    left_out: list[LeftOut]


@dataclass
class Draft:
    keys: ConfigKeys
    name: str
    training_type: str = "SFT"
    framework: str = "HF_TRAINER"
    gpus: int = 1
    pretrains: bool = False  # on text, whatever the training type
    base_model: dict[str, Any] = field(default_factory=dict)
    framework_config: dict[str, str] = field(default_factory=dict)
    hyperparameters: dict[str, str] = field(default_factory=dict)
    origins: dict[str, str] = field(default_factory=dict)  # of hyperparameters: the key that they are from
    evaluation: dict[str, Any] = field(default_factory=dict)
    data: dict[str, Any] = field(default_factory=dict)
    checkpoint: dict[str, Any] = field(default_factory=dict)
    output: dict[str, Any] = field(default_factory=dict)
    tracking: list[dict[str, str]] = field(default_factory=list)

    @property
    def has_adapter(self) -> bool:
        return self.training_type in ("LORA", "QLORA") or self.hyperparameters.get("use_lora") == "true"

    @property
    def evaluates(self) -> bool:
        """Whether something is held out."""
        held_out = any(source.get("split", "").startswith("validation") for source in self.data["sources"])
        return held_out or bool(self.data.get("validation_split"))

    def set(self, name: str, value: object, *, origin: str = "") -> None:
        """A hyperparameter, as text."""
        self.hyperparameters[name] = as_text(value)
        self.origins[name] = origin or name

    def carry(self, table: Mapping[str, str]) -> None:
        """Hyperparameters that only have another name: key → ours."""
        for key, ours in table.items():
            if (value := self.keys.take(key)) is not None:
                self.set(ours, value, origin=key)

    def note(self, key: str, value: object, reason: str) -> None:
        self.keys.left.append(LeftOut(key, value, reason))

    def finished(self) -> Imported:
        """The document. Hyperparameters that its trainer does not have are listed instead."""
        self._leave_unavailable()
        training: dict[str, Any] = {
            "training_type": self.training_type,
            "base_model": self.base_model,
            "framework": {
                "type": self.framework,
                **({"config": self.framework_config} if self.framework_config else {}),
            },
            "hyperparameters": self.hyperparameters,
        }
        if self.evaluation:
            training["evaluation"] = self.evaluation
        output = {**({"checkpoint": self.checkpoint} if self.checkpoint else {}), **self.output}
        document = {
            "name": _NOT_IN_NAMES.sub("-", self.name).strip("-.")[:128] or "imported",
            "training_config": training,
            "data_config": self.data,
            "resource_config": {"device_type": "cuda", "gpu_count": self.gpus},
            **({"output_config": output} if output else {}),
            **({"tracking": self.tracking} if self.tracking else {}),
        }
        return Imported(document, self.keys.left)

    def _leave_unavailable(self) -> None:
        table = {each.name: each for each in TABLES.get((self.framework, self.training_type), ())}
        for name in [name for name in self.hyperparameters if name not in table]:
            value = self.hyperparameters.pop(name)
            if value not in ("false", "0", "0.0"):
                reason = f"{self.training_type} with {self.framework} has no hyperparameter {name}"
                self.note(self.origins[name], value, reason)
        for name in list(self.hyperparameters):
            company = table[name].only_with
            if company is None:
                continue
            other, allowed = company
            chosen = self.hyperparameters.get(other, as_text(table[other].default))
            if chosen not in {as_text(each) for each in allowed}:
                reason = f"has no effect with {other} {chosen}"
                self.note(self.origins[name], self.hyperparameters.pop(name), reason)


def as_text(value: object) -> str:
    """A value as the environment of a process would have it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return ",".join(map(as_text, value))
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    return f"{value:.10g}" if isinstance(value, float) else str(value)
