"""What Megatron's ranks hold: weights both ways to the bit, records dealt out once, models it can't compute refused."""

from typing import Any

import pytest
import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, LlamaConfig, MistralConfig, Qwen2Config, Qwen3Config

from app.domain.spec.frameworks.megatron import Parallelism
from tests.trainers.forked import rank_environment, start_rank
from workers.trainers.data.encoded import NOT_LEARNED
from workers.trainers.failures import InvalidConfig
from workers.trainers.hf_trainer.loop.batch_plan import BatchPlan
from workers.trainers.megatron.batches import Padding, RecordDistributor
from workers.trainers.megatron.compatibility import check
from workers.trainers.megatron.weights import Shape, to_huggingface, to_megatron

SIZES: dict[str, Any] = {
    "vocab_size": 37,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "max_position_embeddings": 64,
}
MODELS = {
    "llama": LlamaConfig(**SIZES, tie_word_embeddings=True),
    "mistral": MistralConfig(**SIZES, head_dim=8, tie_word_embeddings=False),
    "qwen2": Qwen2Config(**SIZES, tie_word_embeddings=False),
}
LLAMA3: dict[str, Any] = {
    "rope_type": "llama3",
    "rope_theta": 500000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}


@pytest.mark.parametrize("tensor", [1, 2, 4])
@pytest.mark.parametrize("pipeline", [1, 2])
@pytest.mark.parametrize("name", MODELS)
def test_weights_that_were_divided_are_the_same_when_joined(name, pipeline, tensor):
    config = MODELS[name]
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter)  # biases and norms, too
    shape = Shape.of(config, config.vocab_size)
    layers = shape.layers // pipeline
    stages = [range(start, start + layers) for start in range(0, shape.layers, layers)]

    parts = [
        [to_megatron(model.state_dict(), shape, rank, tensor, stage) for rank in range(tensor)] for stage in stages
    ]
    joined: dict[str, torch.Tensor] = {}
    for stage, shards in zip(stages, parts, strict=True):
        joined |= to_huggingface(shards, shape, stage)

    expected = dict(model.named_parameters())
    assert joined.keys() == expected.keys()
    assert all(torch.equal(joined[name], expected[name]) for name in expected)
    head = getattr(config, "head_dim", None) or 32 // 8
    query = parts[0][0]["decoder.layers.0.self_attention.linear_qkv.weight"]
    assert query.shape == ((8 + 2 * 4) * head // tensor, 32)


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (Qwen3Config(**SIZES), "type qwen3, only llama, mistral, qwen2"),
        (LlamaConfig(**SIZES, attention_bias=True), "attention_bias is set"),
        (LlamaConfig(**SIZES, mlp_bias=True), "mlp_bias is set"),
        (LlamaConfig(**SIZES, hidden_act="gelu"), "hidden_act is gelu"),
        (MistralConfig(**SIZES, sliding_window=16), "sliding_window 16 is shorter than data_config.max_seq_length 32"),
        (LlamaConfig(**SIZES, rope_parameters={**LLAMA3, "high_freq_factor": 2.0}), "not those of Llama 3.1"),
        (
            LlamaConfig(**SIZES, rope_parameters={"rope_type": "linear", "rope_theta": 1e4, "factor": 2.0}),
            "rope_type linear",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else value.model_type,
)
def test_a_model_that_megatron_computes_otherwise_is_refused(config, reason):
    with pytest.raises(InvalidConfig, match=reason):
        check(config, Parallelism(tensor=1, pipeline=1, data=1), 32)


@pytest.mark.parametrize("config", [*MODELS.values(), LlamaConfig(**SIZES, rope_parameters=LLAMA3)])
def test_models_that_both_compute_alike_pass(config):
    check(config, Parallelism(tensor=4, pipeline=2, data=1), 32)


@pytest.mark.parametrize(
    ("tensor", "pipeline", "what"),
    [
        (8, 1, "tensor_parallel is 8.*num_key_value_heads, which is 4"),
        (1, 3, "pipeline_parallel is 3.*num_hidden_layers"),
    ],
)
def test_a_model_that_cannot_be_divided_so_is_refused(tensor, pipeline, what):
    with pytest.raises(InvalidConfig, match=what):
        check(MODELS["llama"], Parallelism(tensor=tensor, pipeline=pipeline, data=1), 32)


def records(count):
    lengths = [3 + index % 4 for index in range(count)]
    rows = [list(range(100 * index, 100 * index + length)) for index, length in enumerate(lengths)]
    return Dataset.from_dict({"input_ids": rows, "labels": rows})


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_each_record_counts_once_however_many_groups_share_them(groups):
    plan = BatchPlan(batch_size=4 // groups, accumulation=2, devices=groups)
    data = records(21)

    dealt = [list(RecordDistributor(plan, group, Padding(0)).shares(data)) for group in range(groups)]

    assert {len(shares) for shares in dealt} == {3}
    for step in range(3):
        firsts = [
            int(row[0]) // 100
            for shares in dealt
            for batch in shares[step].batches
            for row, mask in zip(batch["input_ids"], batch["attention_mask"], strict=True)
            if mask.any()
        ]
        assert sorted(firsts) == list(range(8 * step, min(8 * step + 8, 21)))
    # Ranks wait for each other: each makes the same number of passes.
    assert {tuple(len(share.batches) for share in shares) for shares in dealt} == {(2, 2, 2)}


def test_what_fills_up_is_not_learned():
    plan = BatchPlan(batch_size=2, accumulation=1, devices=1)

    (share,) = RecordDistributor(plan, 0, Padding(7, least=8)).shares(records(1))

    (batch,) = share.batches
    assert (share.length, share.tokens) == (8, 3)
    assert batch["input_ids"][0].tolist() == [0, 1, 2, 7, 7, 7, 7, 7]
    assert batch["labels"].tolist() == [[0, 1, 2, *[NOT_LEARNED] * 5], [NOT_LEARNED] * 8]


def test_an_epoch_goes_on_where_it_was_left():
    plan = BatchPlan(batch_size=2, accumulation=2, devices=1)
    whole = list(RecordDistributor(plan, 0, Padding(0)).shares(records(14)))

    rest = list(RecordDistributor(plan, 0, Padding(0)).shares(records(14), after=2))

    assert len(rest) == len(whole) - 2
    for left, right in zip(rest, whole[2:], strict=True):
        pairs = zip(left.batches, right.batches, strict=True)
        assert all(torch.equal(one["input_ids"], other["input_ids"]) for one, other in pairs)


@pytest.mark.long
def test_a_node_without_megatron_says_what_to_install(tmp_path):
    code = (
        "import sys; sys.modules['megatron'] = None\n"
        "from workers.trainers import registry\n"
        "try: registry.load('MEGATRON', 'SFT')\n"
        "except registry.MissingExtra as error: print(error)"
    )
    log, environment = tmp_path / "log", rank_environment(0, 1, 0)

    # Cold: the fork server may have imported Megatron for an earlier test.
    arguments = ["tests.scripts.executes_argument", code]
    process = start_rank(arguments, environment=environment, cwd=tmp_path, log=log, cold=True)

    assert process.wait(60) == 0
    assert log.read_text().endswith("\nMEGATRON is not installed on this node: pip install 'trainyard[megatron]'\n")
