"""Jobs without a command: the runtime's built-in trainer trains `inputModel` on `datasets`. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from app.domain.errors import BadSpec

# The method of OME's PyTorch runtimes; a runtime's `trainer` overrides it.
_DEFAULTS = {"framework": "HF_TRAINER", "trainingType": "SFT"}
_SIZES = {"maxSeqLength": "max_seq_length", "batchSize": "batch_size"}


def is_for_built_in(trainer: Mapping[str, Any]) -> bool:
    """Whether the trainer names no program: neither command nor args, or only options for an image's entry point."""
    command = [*(trainer.get("command") or []), *(trainer.get("args") or [])]
    return not command or (not trainer.get("command") and command[0].startswith("-"))


def training_of(
    spec: Mapping[str, Any], trainer: Mapping[str, Any], runtime: Mapping[str, Any], per_node: str
) -> dict[str, Any]:
    """`training_config` of a native document, without the model. Raises BadSpec."""
    _refuse_incomplete(spec)
    if "mpi" in (runtime.get("mlPolicy") or {}):
        raise BadSpec("is needed: a runtime for MPI starts a program", field="spec.trainer.command")
    if trainer.get("codeUri"):
        raise BadSpec("needs a command that runs code from it", field="spec.trainer.codeUri")
    method = {**_DEFAULTS, **(runtime.get("trainer") or {})}
    options = _options(trainer.get("args") or [])
    distributed = {"config": {"num_proc_per_node": per_node}} if per_node.isdecimal() else {}
    return {
        "training_type": method["trainingType"],
        "framework": {"type": method["framework"], **({"distributed": distributed} if distributed else {})},
        "hyperparameters": {**(method.get("hyperparameters") or {}), **options},
    }


def data_of(runtime: Mapping[str, Any]) -> dict[str, Any]:
    """The runtime's part of `data_config`."""
    method = runtime.get("trainer") or {}
    return {native: method[name] for name, native in _SIZES.items() if method.get(name)}


def _refuse_incomplete(spec: Mapping[str, Any]) -> None:
    """Raises BadSpec for a job without a model or data."""
    needed = {
        "spec.modelConfig.inputModel": (spec.get("modelConfig") or {}).get("inputModel"),
        "spec.datasets.storageUri": (spec.get("datasets") or {}).get("storageUri"),
    }
    for field, value in needed.items():
        if not value:
            raise BadSpec(
                "is needed: neither the job nor its runtime has a command, so the built-in trainer runs", field=field
            )


def _options(args: Sequence[str]) -> dict[str, str]:
    """`--learning_rate 1e-4`, `--learning-rate=1e-4`; one without a value is true. Raises BadSpec."""
    found, rest = {}, list(args)
    while rest:
        word = rest.pop(0)
        name, equals, value = word.removeprefix("--").partition("=")
        if not word.startswith("--") or not name:
            raise BadSpec(
                f"{word[:64]!r} is not an option of a built-in trainer, such as --learning_rate=1e-4; set "
                "command to run a program",
                field="spec.trainer.args",
            )
        if not equals:
            value = rest.pop(0) if rest and not rest[0].startswith("--") else "true"
        found[name.replace("-", "_")] = value
    return found
