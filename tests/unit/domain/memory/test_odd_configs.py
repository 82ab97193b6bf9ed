"""Odd configurations, by mistake or by intent: they give no number, take no time, and raise nothing."""

import math
import random
import time
from typing import Any

import pytest

from app.domain.lifecycle.retry_policy import MOST_HALVINGS, smallest_batch
from app.domain.memory.architecture import UnknownArchitecture, architecture_of
from app.domain.memory.estimate import estimate
from app.domain.memory.families import FAMILIES
from app.domain.memory.known_models import known_config
from app.domain.spec.hyperparameters.parsing import TABLES
from tests.unit.domain.memory.test_estimate import document, found

_SMALL = {
    "hidden_size": 64,
    "num_hidden_layers": 6,
    "num_attention_heads": 4,
    "intermediate_size": 128,
    "vocab_size": 1000,
    "max_position_embeddings": 128,
}
_MIXTURE = {**_SMALL, "model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 2}
_NAMES = (
    *_SMALL,
    *("num_local_experts", "num_experts", "num_experts_per_tok", "moe_intermediate_size", "decoder_sparse_step"),
    *("mlp_only_layers", "num_key_value_heads", "head_dim", "attention_dropout", "tie_word_embeddings", "text_config"),
    *("vision_config", "is_encoder_decoder", "n_positions", "attention_bias", "mlp_bias", "alibi", "n_inner", "n_embd"),
    *("quantization_config", "layer_types_moe"),
)
_VALUES: tuple[Any, ...] = (
    *(0, -1, 1, 3, 64, 2**20, 2**31, 2**39, 2**70, 10**400, True, False, None, "x", "", "64", 1.5, math.nan, math.inf),
    *([], [1], [0, 1], [[1]], [{}], {}, {"model_type": "llama"}),
)
_HYPERPARAMETERS: tuple[dict[str, str], ...] = (
    {},
    {"gradient_checkpointing": "true"},
    {"optim": "adafactor"},
    {"packing": "true"},
    {"use_lora": "true"},
    {"lora_target_modules": "nope"},
)


@pytest.mark.parametrize("layers", [10_001, 2**22, 2**39, 2**70])
def test_more_layers_than_any_model_has_are_a_mistake_and_are_not_walked(layers: int):
    began = time.process_time()

    with pytest.raises(UnknownArchitecture, match="num_hidden_layers"):
        architecture_of({**_MIXTURE, "num_hidden_layers": layers})

    assert time.process_time() - began < 0.2


@pytest.mark.parametrize(
    ("step", "dense", "count"),
    [(1, [], 6), (2, [], 3), (2, [1, 2], 2), (1, [0, 0, 5, 6, -1], 4), (7, [], 0), (3, None, 2)],
)
def test_layers_with_experts_are_counted_as_transformers_builds_them(step: int, dense: Any, count: int):
    experts = architecture_of({**_MIXTURE, "decoder_sparse_step": step, "mlp_only_layers": dense}).experts

    assert experts is not None
    assert experts.layers == count == sum(1 for at in range(6) if at not in (dense or []) and (at + 1) % step == 0)


@pytest.mark.parametrize("dense", [[[1]], [{}], ["1"], {"1": 1}, "1", [0] * 10_001])
def test_dense_layers_that_are_no_numbers_leave_the_model_unknown(dense: Any):
    assert "mlp_only_layers" in found(document(), config={**_MIXTURE, "mlp_only_layers": dense}).reason


def test_sizes_that_no_model_and_no_device_has_are_unknown():
    huge = {**_SMALL, "model_type": "llama", "hidden_size": 2**30, "intermediate_size": 2**30}
    batch = document(data={"batch_size": 65536, "max_seq_length": 2**24})

    assert "parameters" in found(document(), config=huge).reason
    assert "than any device could have" in found(batch).reason


@pytest.mark.parametrize(
    "stored",
    [
        {"quantization_config": {"quant_method": "gptq", "bits": 4}},
        {"quantization_config": {"quant_method": "awq"}},
        {"quantization_config": {"_load_in_4bit": True, "quant_method": "bitsandbytes"}},
        {"quantization_config": {"quant_method": "fp8"}},
        {"compression_config": {"format": "pack-quantized"}},
        {"quantization": {"group_size": 64, "bits": 4}},
    ],
)
@pytest.mark.parametrize("kind", ["LORA", "QLORA"])
def test_weights_that_are_quantized_already_are_not_counted_as_if_they_were_not(stored: dict[str, Any], kind: str):
    config = known_config("meta-llama/Llama-3.1-70B") or {}

    assert found(document(kind), config=config).is_known
    assert "quantized already" in found(document(kind), config={**config, **stored}).reason
    nested = {"model_type": "some", "text_config": {**config, **stored}}
    assert "quantized already" in found(document(kind), config=nested).reason


def test_smallest_batch_is_what_recovery_halves_to():
    assert [smallest_batch(size) for size in (1, 3, 6, 8, 12, 16, 64, 65536)] == [1, 3, 3, 1, 3, 1, 4, 4096]
    assert smallest_batch(2**MOST_HALVINGS) == 1


@pytest.mark.long
def test_no_configuration_raises_or_gives_numbers_that_cannot_be():
    choose = random.Random(30)
    known = 0
    for _ in range(4000):
        config = {**_SMALL, "model_type": choose.choice([*FAMILIES, "unheard-of"])}
        config |= {name: choose.choice(_VALUES) for name in choose.sample(_NAMES, choose.randint(0, 3))}
        framework, kind = choose.choice(list(TABLES))
        data = {"batch_size": choose.choice([1, 3, 64, 65536]), "max_seq_length": choose.choice([1, 128, 2**24])}
        values = choose.choice(_HYPERPARAMETERS)
        job = document(kind, framework=framework, hyperparameters=values, data=data)

        got = estimate(job, config, device_count=choose.choice([1, 2, 7]), device_kind=choose.choice(["cpu", "cuda"]))

        known += got.is_known
        assert not got.is_known or 0 < got.least_bytes <= got.total_bytes < 2**61, (config, framework, kind)
        assert all(size > 0 for size in got.parts.values()), (config, framework, kind)
    assert known > 400
