"""How Megatron divides a model among ranks, and which configurations are refused."""

import pytest

from app.domain.errors import BadSpec, InvalidRequest, NotSupportedYet
from app.domain.spec.frameworks.megatron import InvalidParallelism, Parallelism, parallelism
from tests.builders.submitted import changed, spec_of

MEGATRON = ("training_config.framework.type", "MEGATRON")
CONFIG = "training_config.framework.config"


def test_every_device_has_the_whole_model_unless_it_is_divided():
    assert parallelism({}, 4) == Parallelism(tensor=1, pipeline=1, data=4)


def test_what_is_left_of_the_devices_shares_the_records():
    options = {"tensor_parallel": "2", "pipeline_parallel": " 3 "}

    assert parallelism(options, 12) == Parallelism(tensor=2, pipeline=3, data=2)


@pytest.mark.parametrize("text", ["0", "-1", "2.0", "two", "", "²", "99999", "1025"])
def test_a_part_is_a_whole_number(text):
    with pytest.raises(InvalidParallelism, match="whole number from 1 to 1024") as raised:
        parallelism({"pipeline_parallel": text}, 8)

    assert raised.value.name == "pipeline_parallel"


def test_unknown_options_list_the_known_ones():
    with pytest.raises(InvalidParallelism, match="known: tensor_parallel, pipeline_parallel"):
        parallelism({"sequence_parallel": "true"}, 2)


def test_devices_that_are_no_multiple_are_refused_with_what_would_fit():
    with pytest.raises(InvalidParallelism, match="a multiple of 6 devices"):
        parallelism({"tensor_parallel": "2", "pipeline_parallel": "3"}, 8)


def test_a_document_says_how_its_model_is_divided():
    document = changed(MEGATRON, (CONFIG, {"tensor_parallel": "2"}), ("resource_config.gpu_count", 4))

    assert spec_of(document).document.training_config.framework.config == {"tensor_parallel": "2"}


@pytest.mark.parametrize(
    ("change", "error", "field"),
    [
        ((CONFIG, {"tensor_parallel": "3"}), BadSpec, f"{CONFIG}.tensor_parallel"),
        ((CONFIG, {"pipeline_parallel": "3"}), BadSpec, f"{CONFIG}.pipeline_parallel"),
        ((CONFIG, {"other": "1"}), BadSpec, f"{CONFIG}.other"),
        (("training_config.hyperparameters", {"packing": "true"}), BadSpec, "training_config.hyperparameters.packing"),
        (
            ("training_config.hyperparameters", {"lr_scheduler_type": "reduce_lr_on_plateau"}),
            BadSpec,
            "training_config.hyperparameters.lr_scheduler_type",
        ),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else None,
)
def test_what_megatron_does_not_do_is_refused_at_once(change, error, field):
    with pytest.raises(InvalidRequest) as raised:
        spec_of(changed(MEGATRON, change))

    assert (type(raised.value), raised.value.field) == (error, field)


def test_float16_is_refused_at_once():
    dtype = "training_config.base_model.dtype"

    with pytest.raises(NotSupportedYet, match="float32 or bfloat16") as raised:
        spec_of(changed(MEGATRON, (dtype, "float16"), ("resource_config.device_type", "cuda")))

    assert raised.value.field == dtype


def test_streamed_records_are_refused_at_once():
    streamed = (("data_config.streaming", True), ("training_config.hyperparameters", {"max_steps": "5"}))

    with pytest.raises(NotSupportedYet) as raised:
        spec_of(changed(MEGATRON, *streamed))

    assert raised.value.field == "data_config.streaming"
