"""Backend and strategy of a job: its ranks use them, or validation refuses them or warns."""

from typing import Any

import pytest

from app.domain.errors import NotSupportedYet
from app.domain.spec.model import JobDocument
from app.domain.spec.rules.distributed import STRATEGIES, backend_fits, without_effect
from tests.builders.submitted import changed, custom, refusal, spec_of

FIELD = "training_config.framework.distributed"


def saying(framework: str = "HF_TRAINER", **said: Any) -> dict[str, Any]:
    return changed(("training_config.framework.type", framework), (FIELD, said))


@pytest.mark.parametrize(
    ("backend", "device_kind", "warned"),
    [("", "cpu", False), ("", "cuda", False), ("gloo", "cpu", False), ("nccl", "cuda", False), ("nccl", "cpu", True)],
)
def test_backend_that_the_devices_do_not_use_is_warned_of(backend: str, device_kind: str, *, warned: bool) -> None:
    document = spec_of(saying(backend=backend)).document

    backend_fits(document, device_kind)
    found = without_effect(document, device_kind)

    assert found == (((f"{FIELD}.backend", "nccl is for GPUs; the ranks of CPU slots use gloo"),) if warned else ())


def test_gloo_on_gpus_is_refused_but_for_scripts() -> None:
    with pytest.raises(NotSupportedYet, match="gloo is for CPU slots") as raised:
        backend_fits(JobDocument.from_json(saying(backend="gloo")), "cuda")

    assert raised.value.field == f"{FIELD}.backend"
    script = JobDocument.from_json(custom((FIELD, {"backend": "gloo"})))
    backend_fits(script, "cuda")
    assert without_effect(JobDocument.from_json(custom((FIELD, {"backend": "nccl"}))), "cpu") == ()


@pytest.mark.parametrize(("strategy", "framework"), STRATEGIES.items())
def test_strategy_of_the_framework_is_accepted(strategy: str, framework: str) -> None:
    assert spec_of(saying(framework, strategy=strategy.upper())).document.training_config.framework.type == framework


@pytest.mark.parametrize(
    ("framework", "strategy", "said"),
    [
        ("HF_TRAINER", "fsdp", "say framework.type FSDP"),
        ("HF_TRAINER", "deepspeed", "say framework.type DEEPSPEED"),
        ("FSDP", "ddp", "say framework.type HF_TRAINER"),
        ("DEEPSPEED", "megatron", "say framework.type MEGATRON"),
        ("FSDP", "horovod", "ddp (HF_TRAINER), fsdp (FSDP)"),
    ],
)
def test_strategy_of_another_framework_is_refused_with_the_one_that_does_it(
    framework: str, strategy: str, said: str
) -> None:
    error = refusal(saying(framework, strategy=strategy))

    assert isinstance(error, NotSupportedYet)
    assert error.field == f"{FIELD}.strategy"
    assert said in error.message


def test_script_may_be_given_any_strategy() -> None:
    assert spec_of(custom((FIELD, {"strategy": "pipeline"}))).document.training_config.framework.type == "CUSTOM"
