"""Rules of the documents of services that their schema cannot express; replicas have those of jobs besides."""

import re

from app.domain.errors import BadSpec, NotSupportedYet
from app.domain.serving.document import AUTO, NONE, TRANSFORMERS, VLLM, ServiceDocument
from app.domain.spec.inference import EMBED, GENERATE, InferenceTask
from app.domain.spec.rules.inference import check_sampling

# What requests may name by its id; one of these names would take over what the id means.
_ID = re.compile(r"(job|ftjob|service|file|ckpt)-[0-9a-f-]{36}")


def check(document: ServiceDocument) -> None:
    """Raise BadSpec for a document that contradicts itself, NotSupportedYet for an engine that no node offers."""
    _name_is_no_id(document)
    _replicas_have_a_range(document)
    _answers_fit_the_context(document)
    _defaults_are_of_answers(document)
    _adapters_are_served(document)
    if document.engine == VLLM:
        raise NotSupportedYet(f"no node offers {VLLM} yet; use {TRANSFORMERS}, or {AUTO}", field="engine")


def _name_is_no_id(document: ServiceDocument) -> None:
    if _ID.fullmatch(document.name) is not None:
        raise BadSpec(
            f"the name {document.name} has the form of an id, and requests that name the id would get this service; "
            "take a name that is not one of job-, ftjob-, service-, file- or ckpt- with a UUID",
            field="name",
        )


def _replicas_have_a_range(document: ServiceDocument) -> None:
    wanted = document.replicas
    if wanted.min > wanted.max:
        raise BadSpec(
            f"at least {wanted.min} replicas (min) and at most {wanted.max} (max) contradict each other; raise max or "
            "lower min",
            field="replicas.min",
        )


def _answers_fit_the_context(document: ServiceDocument) -> None:
    """By default answers have less than `max_output_tokens` where the context holds less."""
    limits = document.limits
    if limits.max_context is None or "max_output_tokens" not in limits.given:
        return
    if limits.max_output_tokens >= limits.max_context:
        raise BadSpec(
            f"an answer of {limits.max_output_tokens} tokens leaves no room for a prompt in a context of "
            f"{limits.max_context} (max_context); lower max_output_tokens",
            field="limits.max_output_tokens",
        )


def _defaults_are_of_answers(document: ServiceDocument) -> None:
    if document.task != GENERATE and document.defaults:
        name = next(iter(document.defaults))
        made = "vectors" if document.task == EMBED else "scores"
        raise BadSpec(f"{name} is for answers, and this service makes {made}; leave it out", field=f"defaults.{name}")
    check_sampling(InferenceTask.from_json(dict(document.defaults)), "defaults")


def _adapters_are_served(document: ServiceDocument) -> None:
    adapters = document.adapters
    given = next((name for name in ("max_loaded", "max_rank") if name in adapters.given), None)
    if adapters.source == NONE and given is not None:
        raise BadSpec(
            f"this service has no adapters (adapters.from is {NONE}), so that {given} has no meaning; leave it out",
            field=f"adapters.{given}",
        )
