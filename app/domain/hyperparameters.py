"""The hyperparameters each built-in trainer knows: names, kinds, ranges and defaults, as data.

The keys of ``TABLES`` are also the one truth about which (framework, training type) pairs exist.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Value = int | float | bool | str
Kind = Literal["int", "float", "bool", "choice"]

# A script of the user's own reads its hyperparameters itself, whatever the training type is called.
CUSTOM = "CUSTOM"

LARGEST_WHOLE = 2**31 - 1  # steps are stored in 32 bits

_TRUE = frozenset({"true", "1", "yes", "on"})
_FALSE = frozenset({"false", "0", "no", "off"})


@dataclass(frozen=True)
class Hyperparameter:
    """One value a person may set; ``minimum`` and ``maximum`` belong to the range."""

    name: str
    kind: Kind
    default: Value
    meaning: str
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[str, ...] = ()

    def parse(self, text: str) -> Value:
        """The typed value of ``text``. Raises InvalidHyperparameter."""
        value = self._read(text.strip())
        if value is None:
            raise InvalidHyperparameter(self.name, f"{self.name}: {_shortened(text)!r} is not {self.expected}")
        return value

    @property
    def expected(self) -> str:
        """What a value must be, in words."""
        if self.kind == "choice":
            return "one of " + ", ".join(self.choices)
        if self.kind == "bool":
            return "true or false"
        noun = "a whole number" if self.kind == "int" else "a number"
        bounds = ((">=", self.minimum), ("<=", self._highest))
        # Not :g for whole numbers, which would round the large ones.
        limits = " and ".join(
            f"{sign} {bound:g}" if isinstance(bound, float) else f"{sign} {bound}"
            for sign, bound in bounds
            if bound is not None
        )
        return f"{noun} {limits}".rstrip()

    def _read(self, text: str) -> Value | None:
        if self.kind == "choice":
            return text if text in self.choices else None
        if self.kind == "bool":
            lowered = text.lower()
            return lowered in _TRUE if lowered in _TRUE | _FALSE else None
        try:
            number = int(text) if self.kind == "int" else float(text)
        except ValueError:
            return None
        return number if self._in_range(number) else None

    def _in_range(self, number: float) -> bool:
        # Not math.isfinite for whole numbers: it raises for those that no float can hold.
        if isinstance(number, float) and not math.isfinite(number):
            return False
        low, high = self.minimum, self._highest
        return (low is None or number >= low) and (high is None or number <= high)

    @property
    def _highest(self) -> float | None:
        return LARGEST_WHOLE if self.maximum is None and self.kind == "int" else self.maximum


def _shortened(text: str) -> str:
    return text if len(text) <= 64 else f"{text[:64]}…"


class InvalidHyperparameter(ValueError):
    """A hyperparameter that is not known, or a value it cannot have; ``name`` is its key."""

    def __init__(self, name: str, message: str) -> None:
        super().__init__(message)
        self.name = name
        self.message = message


_OPTIMIZATION = (
    Hyperparameter("learning_rate", "float", 2e-5, "Peak learning rate", 0.0, 10.0),
    Hyperparameter("num_train_epochs", "float", 3.0, "Passes over the training data", 0.001, 100_000),
    Hyperparameter("max_steps", "int", -1, "Optimizer steps; overrides num_train_epochs; -1 = not set", -1),
    Hyperparameter("warmup_steps", "int", 0, "Steps in which the learning rate rises from 0", 0),
    Hyperparameter("warmup_ratio", "float", 0.0, "The same as a share of all steps, if warmup_steps is 0", 0.0, 0.99),
    Hyperparameter(
        "lr_scheduler_type",
        "choice",
        "linear",
        "How the learning rate goes on after the warm-up",
        choices=(
            "linear",
            "cosine",
            "cosine_with_restarts",
            "polynomial",
            "constant",
            "constant_with_warmup",
            "inverse_sqrt",
        ),
    ),
    Hyperparameter(
        "optim",
        "choice",
        "adamw_torch_fused",
        "Optimizer",
        choices=("adamw_torch_fused", "adamw_torch", "adafactor", "sgd"),
    ),
    Hyperparameter("weight_decay", "float", 0.0, "Weight decay; biases and norms have none", 0.0, 10.0),
    Hyperparameter("adam_beta1", "float", 0.9, "Decay of AdamW's mean of gradients", 0.0, 0.999999),
    Hyperparameter("adam_beta2", "float", 0.999, "Decay of AdamW's mean of squared gradients", 0.0, 0.999999),
    Hyperparameter("adam_epsilon", "float", 1e-8, "AdamW's term against division by zero", 0.0, 1.0),
    Hyperparameter("max_grad_norm", "float", 1.0, "Gradients are clipped to this norm; 0 = never", 0.0),
    Hyperparameter("neftune_noise_alpha", "float", 0.0, "Noise on embeddings (NEFTune); 0 = none", 0.0, 1000.0),
    Hyperparameter("gradient_checkpointing", "bool", False, "Recompute activations: less memory, slower"),
    Hyperparameter("eval_batch_size", "int", 0, "Records per device when evaluating; 0 = as batch_size", 0, 65_536),
    Hyperparameter("logging_steps", "int", 1, "A point of every metric each this many steps", 1),
)

_SUPERVISED = (
    Hyperparameter("packing", "bool", False, "Put several short records into one sequence"),
    Hyperparameter(
        "assistant_only_loss", "bool", True, "messages: learn assistant turns only, if the chat template marks them"
    ),
    Hyperparameter("completion_only_loss", "bool", True, "prompt and completion: learn the completion only"),
)

TABLES: dict[tuple[str, str], tuple[Hyperparameter, ...]] = {
    ("HF_TRAINER", "SFT"): _OPTIMIZATION + _SUPERVISED,
}


def supported(framework: str, training_type: str) -> bool:
    """Whether there is a trainer for this pair; a custom script takes every training type."""
    return framework == CUSTOM or (framework, training_type) in TABLES


def parse(framework: str, training_type: str, raw: Mapping[str, str]) -> dict[str, Value]:
    """Every hyperparameter of the trainer with its typed value, defaults filled in.

    A CUSTOM script gets what was submitted, unchanged. Raises InvalidHyperparameter, and KeyError
    for a pair that ``supported`` denies.
    """
    if framework == CUSTOM:
        return dict(raw)
    table = {item.name: item for item in TABLES[framework, training_type]}
    for name in raw:
        if name not in table:
            known = ", ".join(sorted(table))
            raise InvalidHyperparameter(name, f"{name} is unknown to {framework} {training_type}; known: {known}")
    return {name: item.parse(raw[name]) if name in raw else item.default for name, item in table.items()}
