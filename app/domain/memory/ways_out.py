"""Changes of a document that make a training fit: each is estimated, and only those that fit are shown."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from app.domain.memory.estimate import estimate
from app.domain.spec.hyperparameters.parsing import TABLES, USE_LORA
from app.domain.spec.model import JobDocument

_MOST_DEVICES = 8
_ADAPTERS = ("LORA", "QLORA")
_SUPERVISED = ("SFT", "FULL_FINETUNE", *_ADAPTERS)


@dataclass(frozen=True, kw_only=True)
class WayOut:
    """``change`` in words; ``fields`` as for `--set`."""

    change: str
    fields: Mapping[str, Any]
    bytes: int


def ways_out(
    document: JobDocument, config: Mapping[str, Any], *, device_count: int, device_kind: str, available: int
) -> list[WayOut]:
    """Those that fit in ``available`` bytes on each device, the smallest change first."""
    found: dict[str, WayOut] = {}
    for kind, change, changed, devices, fields in _changes(document, device_count):
        if kind in found:
            continue  # a smaller change of the same kind is enough
        needed = estimate(changed, config, device_count=devices, device_kind=device_kind)
        if needed.is_known and needed.total_bytes <= available:
            found[kind] = WayOut(change=change, fields=fields, bytes=needed.total_bytes)
    if _BATCH in found or _RECOMPUTE in found:
        found.pop(_BOTH, None)
    return list(found.values())


_BATCH, _RECOMPUTE, _BOTH, _SHARDED = "batch", "checkpointing", "batch and checkpointing", "sharded"
_CHECKPOINTING = {"training_config.hyperparameters.gradient_checkpointing": "true"}
_RECOMPUTED = "with gradient checkpointing"
# Its kind, the words for it, the document with it, the number of devices, and the fields that it sets.
_Change = tuple[str, str, JobDocument, int, Mapping[str, Any]]


def _changes(document: JobDocument, devices: int) -> Iterator[_Change]:
    """Of each kind the smallest change first."""
    batch = document.data_config.batch_size
    for size in _smaller(batch):
        changed = _with_batch(document, size)
        yield _BATCH, f"batch_size {size}", changed, devices, _batch_fields(changed)
    checkpointed = _with_hyperparameter(document, "gradient_checkpointing", "true")
    yield _RECOMPUTE, "gradient checkpointing", checkpointed, devices, _CHECKPOINTING
    for size in _smaller(batch):
        changed = _with_batch(checkpointed, size)
        yield (
            *(_BOTH, f"batch_size {size} {_RECOMPUTED}", changed, devices),
            {**_batch_fields(changed), **_CHECKPOINTING},
        )
    yield from _adapters(document, devices, "", {})
    yield from _adapters(checkpointed, devices, f" {_RECOMPUTED}", _CHECKPOINTING)
    yield from _divided(checkpointed, devices)


def _smaller(batch: int) -> Iterator[int]:
    """Powers of two below the batch, the largest first."""
    return (2**power for power in range((batch - 1).bit_length() - 1, -1, -1))


def _with_batch(document: JobDocument, size: int) -> JobDocument:
    """With as many records in a step as before, as far as whole numbers allow."""
    data = document.data_config
    steps = max(1, data.batch_size * data.gradient_accumulation_steps // size)
    return document.changed(data_config=data.changed(batch_size=size, gradient_accumulation_steps=steps))


def _batch_fields(document: JobDocument) -> dict[str, Any]:
    data = document.data_config
    return {
        "data_config.batch_size": data.batch_size,
        "data_config.gradient_accumulation_steps": data.gradient_accumulation_steps,
    }


def _with_hyperparameter(document: JobDocument, name: str, value: str) -> JobDocument:
    training = document.training_config
    values = {**training.hyperparameters, name: value}
    return document.changed(training_config=training.changed(hyperparameters=values))


def _adapters(document: JobDocument, devices: int, said: str, fields: Mapping[str, Any]) -> Iterator[_Change]:
    """An adapter in place of all weights, then one on 4-bit weights."""
    training = document.training_config
    framework, now = training.framework.type, training.training_type
    if now not in _SUPERVISED:
        if (framework, now) in TABLES and any(item.name == USE_LORA for item in TABLES[framework, now]):
            changed = _with_hyperparameter(document, USE_LORA, "true")
            more = {f"training_config.hyperparameters.{USE_LORA}": "true"}
            yield USE_LORA, f"{USE_LORA}{said}", changed, devices, {**fields, **more}
        return
    for kind in _ADAPTERS[_ADAPTERS.index(now) + 1 if now in _ADAPTERS else 0 :]:
        if (framework, kind) in TABLES:
            changed = document.changed(training_config=training.changed(training_type=kind))
            yield kind, f"{kind}{said}", changed, devices, {**fields, "training_config.training_type": kind}


def _divided(document: JobDocument, devices: int) -> Iterator[_Change]:
    """FSDP, which divides everything, on as many devices or more; each with the same batch."""
    training = document.training_config
    kind, before = training.training_type, training.framework.type
    if before not in ("HF_TRAINER", "FSDP") or ("FSDP", kind) not in TABLES:
        return
    framework = training.framework.changed(type="FSDP", config={})
    changed = document.changed(training_config=training.changed(framework=framework))
    count = devices if before == "HF_TRAINER" and devices > 1 else devices * 2
    while count <= _MOST_DEVICES:
        of_node = {"resource_config.gpu_count": count // document.resource_config.node_count}
        fields = {"training_config.framework.type": "FSDP", **of_node, **_CHECKPOINTING}
        yield _SHARDED, f"FSDP on {count} devices {_RECOMPUTED}", changed, count, fields
        count *= 2
