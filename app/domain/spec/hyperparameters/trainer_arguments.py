"""Arguments of transformers' Trainer that ``framework.config`` of HF_TRAINER passes on, besides the hyperparameters.

They affect neither checkpoints nor reports nor resuming.
"""

from collections.abc import Mapping

from app.domain.errors import BadSpec
from app.domain.spec.hyperparameters.parameter import Hyperparameter, InvalidHyperparameter, Value
from app.domain.spec.hyperparameters.tables import TABLES
from app.domain.spec.model import TrainingConfig
from app.domain.suggestions import did_you_mean

HF_TRAINER = "HF_TRAINER"
_CONFIG = "training_config.framework.config"

ARGUMENTS = {
    item.name: item
    for item in (
        Hyperparameter(
            "average_tokens_across_devices", "bool", True, "The loss is the mean over the tokens of all ranks"
        ),
        Hyperparameter("dataloader_persistent_workers", "bool", False, "Loaders stay between epochs"),
        Hyperparameter("dataloader_prefetch_factor", "int", 2, "Batches that each loader has ready", 1, 1024),
        Hyperparameter("ddp_broadcast_buffers", "bool", False, "Ranks take over rank 0's buffers before each step"),
        Hyperparameter("ddp_bucket_cap_mb", "int", 25, "Size of the buckets in which gradients are sent", 1, 65_536),
        Hyperparameter("eval_accumulation_steps", "int", 1, "Evaluation steps before results leave the GPU", 1),
        Hyperparameter("torch_empty_cache_steps", "int", 1, "Steps after which unused GPU memory is freed", 1),
    )
}
_HYPERPARAMETERS = {
    item.name: item for (framework, _), items in TABLES.items() if framework == HF_TRAINER for item in items
}
_OF_LOADERS = ("dataloader_persistent_workers", "dataloader_prefetch_factor")


def trainer_arguments(options: Mapping[str, str]) -> dict[str, Value]:
    """The given arguments with typed values. Raises InvalidHyperparameter."""
    found = {}
    for name, text in options.items():
        if name not in ARGUMENTS:
            known, meant = ", ".join(ARGUMENTS), did_you_mean(name, [*ARGUMENTS, *_HYPERPARAMETERS])
            raise InvalidHyperparameter(
                name,
                f"{name} is not passed on to the Trainer{meant}; known: {known}, and every name of hyperparameters",
            )
        found[name] = ARGUMENTS[name].parse(text)
    return found


def check(options: Mapping[str, str], *, loaders: int) -> None:
    """Raises InvalidHyperparameter for unsupported arguments; `loaders` is data_config.num_workers."""
    given = trainer_arguments(options)
    for name in _OF_LOADERS:
        if given.get(name) and not loaders:
            raise InvalidHyperparameter(
                name, f"{name} is about loading processes, of which there are none; set data_config.num_workers"
            )


def with_hyperparameters(training: TrainingConfig) -> TrainingConfig:
    """Move hyperparameters from ``framework.config`` to ``hyperparameters``. Raises BadSpec if one is in both."""
    framework = training.framework
    table = {item.name for item in TABLES.get((framework.type, training.training_type), ())}
    moved = {name: text for name, text in framework.config.items() if name in table}
    if framework.type != HF_TRAINER or not moved:
        return training
    if twice := next((name for name in moved if name in training.hyperparameters), None):
        raise BadSpec(f"hyperparameters say {twice}, too; leave one of them out", field=f"{_CONFIG}.{twice}")
    kept = {name: text for name, text in framework.config.items() if name not in moved}
    return training.changed(
        hyperparameters={**training.hyperparameters, **moved}, framework=framework.changed(config=kept)
    )
