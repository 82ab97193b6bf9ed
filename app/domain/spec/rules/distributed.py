"""Rules of ``framework.distributed``, and its fields without effect on some devices."""

from app.domain.errors import NotSupportedYet
from app.domain.spec.document import is_custom, trainer
from app.domain.spec.frameworks.deepspeed import DEEPSPEED
from app.domain.spec.frameworks.fsdp import FSDP
from app.domain.spec.frameworks.megatron import MEGATRON
from app.domain.spec.model import JobDocument

NCCL, GLOO = "nccl", "gloo"
BACKENDS = (NCCL, GLOO)
# Each strategy is implemented by one framework.
STRATEGIES = {"ddp": "HF_TRAINER", "fsdp": FSDP, "deepspeed": DEEPSPEED, "zero": DEEPSPEED, "megatron": MEGATRON}
_DISTRIBUTED = "training_config.framework.distributed"


def backend_is_known(document: JobDocument) -> None:
    backend = _option(document, "backend")
    if backend and backend not in BACKENDS:
        raise NotSupportedYet(
            f"backend {backend!r} is not supported here; leave it out: GPUs use nccl and CPU slots gloo",
            field=f"{_DISTRIBUTED}.backend",
        )


def strategy_is_the_frameworks(document: JobDocument) -> None:
    strategy, (framework, _) = _option(document, "strategy"), trainer(document)
    if not strategy or is_custom(document):
        return
    does = STRATEGIES.get(strategy.lower())
    if does is None:
        known = ", ".join(f"{name} ({which})" for name, which in STRATEGIES.items())
        way_out = f"the framework decides it; leave it out, or use that of the framework: {known}"
        raise NotSupportedYet(f"there is no strategy {strategy!r}; {way_out}", field=f"{_DISTRIBUTED}.strategy")
    if does != framework:
        raise NotSupportedYet(
            f"{strategy} is what framework {does} does, and the framework is {framework}; say "
            f"framework.type {does}, or leave the strategy out",
            field=f"{_DISTRIBUTED}.strategy",
        )


def backend_fits(document: JobDocument, device_kind: str) -> None:
    """Raise NotSupportedYet for a built-in trainer with backend gloo on GPUs."""
    if _option(document, "backend") == GLOO and device_kind == "cuda" and not is_custom(document):
        raise NotSupportedYet(
            f"{GLOO} is for CPU slots, and this job gets GPUs, whose ranks use {NCCL}; leave it out, or ask for "
            "resource_config.device_type cpu",
            field=f"{_DISTRIBUTED}.backend",
        )


def without_effect(document: JobDocument, device_kind: str) -> tuple[tuple[str, str], ...]:
    """(field, reason) of fields without effect on such devices."""
    if _option(document, "backend") == NCCL and device_kind == "cpu" and not is_custom(document):
        return ((f"{_DISTRIBUTED}.backend", f"{NCCL} is for GPUs; the ranks of CPU slots use {GLOO}"),)
    return ()


def _option(document: JobDocument, name: str) -> str:
    return getattr(document.training_config.framework.distributed, name) or ""


RULES = (backend_is_known, strategy_is_the_frameworks)
