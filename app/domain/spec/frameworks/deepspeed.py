"""DeepSpeed options of ``training_config.framework.config``: ZeRO stage and offloading."""

from collections.abc import Mapping
from dataclasses import dataclass

DEEPSPEED = "DEEPSPEED"  # the framework
STAGE, OFFLOAD_OPTIMIZER, OFFLOAD_PARAM = "zero_stage", "offload_optimizer", "offload_param"
_CHOICES = {
    STAGE: ("2", "1", "3"),  # the default first
    OFFLOAD_OPTIMIZER: ("none", "cpu"),
    OFFLOAD_PARAM: ("none", "cpu"),
}


class InvalidZero(ValueError):
    """An invalid option of ``framework.config``; `name` is the option."""

    def __init__(self, name: str, message: str) -> None:
        super().__init__(message)
        self.name = name
        self.message = message


@dataclass(frozen=True, kw_only=True)
class Zero:
    """ZeRO shards optimizer states (stage 1), also gradients (2), also parameters (3).

    `offload_optimizer`, `offload_param`: whether these are offloaded to host memory.
    """

    stage: int
    offload_optimizer: bool
    offload_param: bool


def zero(options: Mapping[str, str]) -> Zero:
    """Every option with its value. Raises InvalidZero."""
    found = {name: choices[0] for name, choices in _CHOICES.items()}
    for name, text in options.items():
        if name not in _CHOICES:
            raise InvalidZero(name, f"{name} is unknown to DEEPSPEED; known: {', '.join(_CHOICES)}")
        if text.strip().lower() not in _CHOICES[name]:
            known = ", ".join(sorted(_CHOICES[name]))
            raise InvalidZero(name, f"{name} must be one of {known}, not {text[:32]!r}")
        found[name] = text.strip().lower()
    if found[OFFLOAD_PARAM] == "cpu" and found[STAGE] != "3":
        raise InvalidZero(
            OFFLOAD_PARAM,
            f"parameters are divided, and can be offloaded, in stage 3 alone; set {STAGE} to 3 or leave it out",
        )
    return Zero(
        stage=int(found[STAGE]),
        offload_optimizer=found[OFFLOAD_OPTIMIZER] == "cpu",
        offload_param=found[OFFLOAD_PARAM] == "cpu",
    )
