"""Documented fields and values of a job document that this version does not act on yet, so that none is ignored."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from app.domain.errors import NotSupportedYet


@dataclass(frozen=True)
class Gap:
    """A field that must stay at its default; ``*`` in the path stands for every element of a list."""

    path: str
    allowed: tuple[Any, ...]
    way_out: str


_LEAVE = "leave it out"
GAPS: tuple[Gap, ...] = (
    Gap("training_config.base_model.source", (), "leave it out: the model is found by model_id alone"),
    Gap("training_config.base_model.trust_remote_code", (False,), "use a model whose code transformers ships"),
    Gap("training_config.base_model.model_kwargs", (), _LEAVE),
    Gap("training_config.framework.config", (), "leave it out: use hyperparameters"),
    Gap("training_config.framework.distributed.strategy", ("ddp",), "leave it out or say ddp: every rank has all"),
    Gap("training_config.framework.distributed.config", (), _LEAVE),
    Gap("data_config.sources.*.type", (), "leave it out: the path says what it is"),
    Gap("data_config.sources.*.split", ("train", "validation"), "say train or validation"),
    Gap("data_config.sources.*.columns", (), "leave it out and keep only the wanted columns in the file"),
    Gap("data_config.sources.*.filters", (), "leave it out and filter the file beforehand"),
    Gap("data_config.sources.*.sampling", (), "leave it out and sample the file beforehand"),
    Gap("data_config.preprocess.*", (), "leave it out: records are messages, prompt and completion, or text"),
    Gap("resource_config.node_count", (1,), "run on one node, with more devices per node"),
    Gap("resource_config.node_affinity", (), "leave it out, or name scheduling_config.required_capabilities"),
    Gap("resource_config.node_anti_affinity", (), _LEAVE),
    Gap("output_config.output_path", (), "leave it out and fetch the artifacts of the job"),
    Gap("output_config.checkpoint.save_on_each_node", (False,), _LEAVE),
    Gap("output_config.checkpoint.resume_from_best", (False,), "name the checkpoint in resume_from_checkpoint"),
    Gap("output_config.push_to_hub", (False,), "leave it out and upload the artifacts of the job"),
    Gap("output_config.hub_repo_id", (), _LEAVE),
    Gap("output_config.merge_lora", (False,), _LEAVE),
    Gap("output_config.export_format", ("safetensors",), "leave it out or say safetensors"),
    Gap("scheduling_config.preemptible", (False,), _LEAVE),
    Gap("scheduling_config.on_preemption", ("terminate",), "leave it out or say terminate"),
    Gap("scheduling_config.min_runtime_seconds", (0,), "leave it out or say 0"),
)


def refuse_gaps(document: Mapping[str, Any]) -> None:
    """Raise NotSupportedYet for the first field of the document that would not be acted on."""
    for gap in GAPS:
        for path, value in _values(document, gap.path.split(".")):
            if value not in (None, "", [], {}) and not _is_one_of(value, gap.allowed):
                raise NotSupportedYet(
                    f"{path} is documented but not supported by this version; {gap.way_out}", field=path
                )


def _is_one_of(value: Any, allowed: tuple[Any, ...]) -> bool:
    # 0 == False in Python; a job document means them differently.
    return any(type(value) is type(each) and value == each for each in allowed)


def _values(node: Any, steps: list[str], path: str = "") -> Iterator[tuple[str, Any]]:
    if not steps:
        yield path, node
        return
    for name, child in _children(node, steps[0]):
        yield from _values(child, steps[1:], f"{path}.{name}".lstrip("."))


def _children(node: Any, step: str) -> list[tuple[str, Any]]:
    if isinstance(node, Mapping):
        return [(k, v) for k, v in node.items() if step in ("*", k)]
    if isinstance(node, list) and step == "*":
        return [(str(i), v) for i, v in enumerate(node)]
    return []
