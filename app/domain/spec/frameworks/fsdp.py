"""FSDP options of ``training_config.framework.config``."""

from collections.abc import Mapping

FSDP = "FSDP"
RESHARD_AFTER_FORWARD, CPU_OFFLOAD = "reshard_after_forward", "cpu_offload"
DEFAULTS = {RESHARD_AFTER_FORWARD: True, CPU_OFFLOAD: False}
_WORDS = {"true": True, "false": False}


class InvalidSharding(ValueError):
    """An invalid option of ``framework.config``; `name` is the option."""

    def __init__(self, name: str, message: str) -> None:
        super().__init__(message)
        self.name = name
        self.message = message


def sharding(options: Mapping[str, str]) -> dict[str, bool]:
    """Every option with its value. Raises InvalidSharding."""
    found = dict(DEFAULTS)
    for name, text in options.items():
        if name not in DEFAULTS:
            raise InvalidSharding(name, f"{name} is unknown to FSDP; known: {', '.join(DEFAULTS)}")
        if text.strip().lower() not in _WORDS:
            raise InvalidSharding(name, f"{name} must be true or false, not {text[:32]!r}")
        found[name] = _WORDS[text.strip().lower()]
    return found
