"""The memory estimate of a training job: bytes on each device, by part."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from app.domain.lifecycle.retry_policy import smallest_batch
from app.domain.memory.architecture import Architecture, UnknownArchitecture, architecture_of
from app.domain.memory.division import Division, divided, in_compute_format
from app.domain.memory.moments import Parts, moments, without_records
from app.domain.memory.states import States, states_of
from app.domain.memory.work import NotEstimated, Work, work_of
from app.domain.spec.model import JobDocument

# Of a process that uses a GPU: the CUDA context, kernels of torch, and cuBLAS's workspaces.
CUDA_CONTEXT = 640 * 2**20
CPU, CUDA = "cpu", "cuda"
_MOST_BYTES = 2**60  # larger numbers of a document are mistakes, and no number of many clients


@dataclass(frozen=True, kw_only=True)
class MemoryEstimate:
    """Bytes on each device at the peak of a step, in total and by part.

    ``least_bytes``: what it needs however short the records are, and after all halvings of the batch. ``reason`` says
    why nothing is known; then all numbers are 0. ``notes`` say what is not counted.
    """

    total_bytes: int = 0
    least_bytes: int = 0
    parts: Mapping[str, int] = field(default_factory=dict)
    parameters: int = 0
    trained_parameters: int = 0
    reason: str = ""
    notes: tuple[str, ...] = ()

    @property
    def is_known(self) -> bool:
        return not self.reason


def estimate(
    document: JobDocument, config: Mapping[str, Any], *, device_count: int, device_kind: str = ""
) -> MemoryEstimate:
    """The estimate for each of ``device_count`` devices; ``config`` is the content of the model's config.json.

    ``device_kind``: cuda or cpu; by default that of the document, where auto is cuda.
    """
    kind = device_kind or (CPU if document.resource_config.device_type == CPU else CUDA)
    try:
        model = architecture_of({**config, **document.training_config.base_model.model_kwargs})
        work = work_of(document, on_cpu=kind == CPU)
        _refuse_unknown(model, work)
        states, division = _states(document, model, work, device_count)
        parts = _largest(model, states, division)
        least = _least(document, model, work, device_count)
        if sum(parts.values()) > _MOST_BYTES:
            raise NotEstimated("its batch, length and model give more bytes than any device could have")
    except (UnknownArchitecture, NotEstimated) as error:
        return MemoryEstimate(reason=str(error))
    overhead = CUDA_CONTEXT if kind == CUDA else 0
    parts = parts | {"overhead": overhead}
    total = sum(parts.values())
    return MemoryEstimate(
        total_bytes=total,
        least_bytes=min(total, least + overhead),
        parts={name: size for name, size in parts.items() if size},
        parameters=model.parameters,
        trained_parameters=states.trained,
        notes=tuple(_notes(model, work)),
    )


def _states(document: JobDocument, model: Architecture, work: Work, devices: int) -> tuple[States, Division]:
    states = states_of(model, _stored(work, devices))
    return states, divided(work, document, devices, model, states)


def _largest(model: Architecture, states: States, division: Division) -> Parts:
    return max(moments(model, states, division), key=lambda each: sum(each.values()))


def _least(document: JobDocument, model: Architecture, work: Work, devices: int) -> int:
    """With records of one token; where all have the full length, with the batch that is left after all halvings."""
    if not work.is_of_that_length:
        return sum(without_records(model, *_states(document, model, work, devices)).values())
    data = document.data_config
    size = smallest_batch(data.batch_size)
    steps = data.gradient_accumulation_steps * (data.batch_size // size)
    halved = document.changed(data_config=data.changed(batch_size=size, gradient_accumulation_steps=steps))
    smaller = work_of(halved, on_cpu=work.numerics.on_cpu)
    return sum(_largest(model, *_states(halved, model, smaller, devices)).values())


def _stored(work: Work, devices: int) -> Work:
    """FSDP stores the job's own format; the others that compute in fewer bytes store those."""
    return work if work.framework == "FSDP" or devices == 0 else in_compute_format(work)


def _refuse_unknown(model: Architecture, work: Work) -> None:
    if work.quantized and model.experts is not None:
        raise NotEstimated("how bitsandbytes stores the experts of a mixture depends on versions")


def _notes(model: Architecture, work: Work) -> Iterator[str]:
    if not model.family.is_known:
        yield f"models of type {model.model_type} are counted as if they were built like Llama's"
    if work.has_reward_model:
        yield "the reward model is not counted"
    if not work.is_of_that_length:
        yield f"counted with records of {work.length} tokens, the longest that the document allows"
