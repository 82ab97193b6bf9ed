"""The three groups that metrics are shown in, by their names: training, evaluation, and the system under both."""

from typing import Literal

Group = Literal["train", "eval", "system"]
GROUPS: tuple[Group, ...] = ("train", "eval", "system")
_EVALUATION = ("eval_", "eval/", "test_", "test/", "bench/", "validation_", "val_", "val/")
_SYSTEM = frozenset(
    {
        "cpu_percent",
        "fastest_rank_seconds",
        "generation_seconds",
        "gpu_memory_mb",
        "gpu_utilization",
        "memory_mb",
        "rank_memory_mb_max",
        "records_per_second",
        "samples_per_second",
        "slowest_rank",
        "slowest_rank_seconds",
        "step_seconds",
        "tokens_per_second",
        "weights_bytes",
        "weights_seconds",
    }
)
# What is looked at first, in this order; the others follow by name.
_FIRST = ("loss", "train_loss", "reward", "eval_loss", "learning_rate", "grad_norm", "tokens_per_second")


def group_of(name: str) -> Group:
    if name.startswith(_EVALUATION):
        return "eval"
    return "system" if name in _SYSTEM or name.startswith("system/") else "train"


def node_metric(part: int, name: str) -> str:
    """The name of a metric of the system on one of an attempt's nodes; on the first it is the plain one."""
    return f"system/node-{part}/{name}" if part else name


def tag_of(name: str) -> str:
    """The metric's tag in TensorBoard, which shows tags by what is before the slash: `train/loss`, `eval/loss`."""
    group = group_of(name)
    # `train_loss` is the mean of a whole run, and no `loss`.
    plain = name.removeprefix("eval_") if group == "eval" else name
    return f"{group}/{plain.removeprefix(f'{group}/')}"


def order_of(name: str) -> tuple[int, int, str]:
    """A sort key over all groups: the training loss, evaluation, what else is of training, and the system."""
    group = group_of(name)
    rest = {"train": 2, "eval": 1, "system": 3}[group]
    return (0 if group == "train" and name.lower().endswith("loss") else rest, *rank_of(name))


def rank_of(name: str) -> tuple[int, str]:
    """A sort key within a group: the metrics that people look at first come first."""
    return (_FIRST.index(name) if name in _FIRST else len(_FIRST), name)
