"""Messages of native rules in the vocabulary of clients that do not know the native names."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import app.domain
from app.compat.cyxwiz.to_native import NAMING as CYXWIZ
from app.compat.modelarts.to_native import NAMING as MODELARTS
from app.compat.naming import Naming
from app.compat.ome.to_native import NAMING as OME
from app.compat.runai.to_native import naming_of
from app.domain.errors import BadSpec, QuotaExceeded
from app.http.errors import BadShape
from tests.builders.native_names import native_names_in

RUNAI = naming_of({})
VOCABULARIES = {"cyxwiz": CYXWIZ, "modelarts": MODELARTS, "ome": OME, "runai": RUNAI}
_REFUSALS = ("BadSpec", "NotSupportedYet", "CannotFit")


def _texts() -> Iterator[str]:
    """What rules of the native document say, as their source has it; X stands for values."""
    for path in sorted(Path(app.domain.__file__).parent.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _REFUSALS:
                yield from _said(node.args[0])


def _said(node: ast.expr) -> Iterator[str]:
    if isinstance(node, ast.Constant):
        yield str(node.value)
    elif isinstance(node, ast.JoinedStr):
        yield "".join(str(part.value) if isinstance(part, ast.Constant) else "X" for part in node.values)


@pytest.fixture(scope="module")
def texts() -> list[str]:
    return sorted({*_texts()})


@pytest.mark.parametrize("vocabulary", VOCABULARIES)
def test_no_text_of_a_rule_has_a_native_name(vocabulary: str, texts: list[str]) -> None:
    translated = {text: VOCABULARIES[vocabulary].text(text) for text in texts}

    named = {text: (into, names) for text, into in translated.items() if (names := native_names_in(into, vocabulary))}
    assert named == {}
    assert [text for text, into in translated.items() if not into.strip(" ;")] == []


def test_texts_of_many_rules_are_read(texts: list[str]) -> None:
    assert sum(native_names_in(text, "runai") != set() for text in texts) > 20


@pytest.mark.parametrize(
    ("naming", "field", "text", "translated"),
    [
        (
            RUNAI,
            "resource_config.gpu_fraction",
            "gpu_fraction goes in steps of 0.01; write 0.3 for 0.295",
            "goes in steps of 0.01; write 0.3 for 0.295",
        ),
        (
            RUNAI,
            "resource_config.gpu_fraction",
            "gpu_fraction and mig_profile each say what part of a GPU it is",
            "spec.compute.gpuPortionRequest and spec.compute.migProfile each say what part of a GPU it is",
        ),
        (
            RUNAI,
            "resource_config.required_node_labels",
            "no node is labelled a; node_affinity says what is preferred",
            "no node is labelled a",
        ),
        (RUNAI, "", "is not labelled a (required_node_labels); is full", "is not labelled a (spec.nodePools); is full"),
        (RUNAI, "", "is dgx (forbidden_node_labels)", "is dgx"),
        (
            RUNAI,
            "",
            "no GPU is registered; ask for device_type cpu or auto to train on CPU slots",
            "no GPU is registered; ask for spec.compute.gpuDevicesRequest 0 to train on CPU slots",
        ),
        (
            MODELARTS,
            "training_config.hyperparameters.num_generations",
            "num_generations 3 does not divide the 8",
            "num_generations 3 does not divide the 8",
        ),
        (RUNAI, "", "run 'batch_size' of /srv/batch_size", "run 'batch_size' of /srv/batch_size"),
        (
            MODELARTS,
            "training_config.environment.TOKEN",
            "say it in training_config.environment.TOKEN",
            "say it in algorithm.environments",
        ),
        (
            MODELARTS,
            "",
            "the largest node_count that would fit is 2",
            "the largest spec.resource.node_count that would fit is 2",
        ),
        (
            OME,
            "",
            "gpu_count must be at least 1; ask for device_type cuda",
            "nvidia.com/gpu must be at least 1; ask for nvidia.com/gpu",
        ),
        (
            CYXWIZ,
            "",
            "flash_attention_2 needs GPUs; ask for device_type cuda",
            "flash_attention_2 needs GPUs; ask for required_device CUDA",
        ),
        (
            CYXWIZ,
            "",
            "set data_config.streaming to false, or max_runtime_seconds and num_train_epochs",
            "set model_config.data_config.streaming to false, or timeout_seconds and epochs",
        ),
        (
            CYXWIZ,
            "",
            "push_to_hub needs hub_repo_id",
            "model_config.output_config.push_to_hub needs model_config.output_config.hub_repo_id",
        ),
    ],
)
def test_names_in_texts_are_the_clients_own(naming: Naming, field: str, text: str, translated: str) -> None:
    assert naming.text(text, of=field) == translated


def test_errors_about_the_native_document_use_the_clients_words() -> None:
    with pytest.raises(BadSpec) as spec, RUNAI.errors():
        raise BadSpec("cpu_cores is too much; lower cpu_cores", field="resource_config.cpu_cores")
    with pytest.raises(BadShape) as shape, RUNAI.errors():
        raise BadShape([("resource_config.cpu_cores", "must be less than max_retries")])
    with pytest.raises(QuotaExceeded) as quota, RUNAI.errors():
        raise QuotaExceeded("too many; lower cpu_cores")

    assert (spec.value.field, spec.value.message) == (
        "spec.compute.cpuCoreRequest",
        "is too much; lower spec.compute.cpuCoreRequest",
    )
    assert shape.value.details == [("spec.compute.cpuCoreRequest", "must be less than spec.backoffLimit")]
    assert quota.value.message == "too many; lower spec.compute.cpuCoreRequest"


def test_warning_about_a_native_field_uses_the_clients_words() -> None:
    line = "training_config.framework.distributed.backend: nccl is for GPUs; set device_type cpu"

    assert MODELARTS.line(line) == (
        "algorithm.training_config.framework.distributed.backend: nccl is for GPUs; set a flavor of CPU slots "
        "(spec.resource.flavor_id)"
    )
