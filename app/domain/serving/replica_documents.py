"""The documents of a service's replicas, which are jobs: what they share, and what differs by replica."""

from collections.abc import Mapping
from typing import Any

from app.domain.serving.document import AUTO, NONE, VLLM, ServiceDocument
from app.domain.spec.inference import GENERATE, REPLICA, TYPES, Inference, InferenceTask, ModelReference, Serving
from app.domain.spec.inference import TRANSFORMERS as TRANSFORMERS_ENGINE
from app.domain.spec.inference import VLLM as VLLM_ENGINE
from app.domain.spec.model import BaseModel, Framework, JobDocument, TrainingConfig

SERVICE_LABEL, REPLICA_LABEL = "trainyard/service", "trainyard/replica"
_ENGINES = {AUTO: TRANSFORMERS_ENGINE, VLLM: VLLM_ENGINE}


def base_document(
    document: ServiceDocument, base: BaseModel, reference: ModelReference, *, service_id: str
) -> JobDocument:
    """What all replicas of a revision share."""
    training = TrainingConfig().changed(
        training_type=TYPES[REPLICA],
        framework=Framework().changed(type=_ENGINES.get(document.engine, TRANSFORMERS_ENGINE)),
        base_model=base,
        environment=dict(document.environment),
        max_retries=0,  # the service itself replaces what has failed
    )
    inference = Inference().changed(
        model=reference,
        task=InferenceTask().changed(type=document.task),
        serving=_serving(document, reference, service_id),
    )
    return JobDocument().changed(
        name=document.name,
        kind=REPLICA,
        training_config=training,
        resource_config=document.resource_config,
        scheduling_config=document.scheduling_config.changed(on_preemption="requeue"),
        inference=inference,
    )


def _serving(document: ServiceDocument, reference: ModelReference, service_id: str) -> Serving:
    """A model that is itself an adapter is not the base of others."""
    has_adapters = document.adapters.source != NONE and document.task == GENERATE and not reference.adapter
    return Serving().changed(
        service_id=service_id,
        name=document.name,
        max_context=document.limits.max_context,
        max_output_tokens=document.limits.max_output_tokens,
        max_waiting=document.limits.max_waiting,
        max_loaded=document.adapters.max_loaded if has_adapters else 0,
        max_rank=document.adapters.max_rank,
        defaults=dict(document.defaults),
    )


def replica_document(
    base: Mapping[str, Any], *, service_id: str, name: str, number: int, preemptible: bool
) -> JobDocument:
    """The document of one replica. ``preemptible``: also where the service's own does not say so."""
    shared = JobDocument.from_json(base)
    scheduling = shared.scheduling_config
    return shared.changed(
        name=f"{name}-{number}",
        labels={SERVICE_LABEL: service_id, REPLICA_LABEL: str(number)},
        scheduling_config=scheduling.changed(preemptible=True) if preemptible else scheduling,
    )
