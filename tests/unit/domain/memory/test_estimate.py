"""The memory estimate of documents: numbers that are known, what is divided, and what stays unknown."""

from typing import Any

import pytest

from app.domain.memory.architecture import architecture_of
from app.domain.memory.estimate import CUDA_CONTEXT, MemoryEstimate, estimate
from app.domain.memory.known_models import known_config, known_models
from app.domain.spec.model import JobDocument

_GB = 2**30
# As Hugging Face's hub shows them.
PUBLISHED = {
    "meta-llama/Llama-3.1-8B": 8_030_261_248,
    "meta-llama/Llama-3.1-70B-Instruct": 70_553_706_496,
    "meta-llama/Llama-3.2-1B": 1_235_814_400,
    "Qwen/Qwen2.5-7B-Instruct": 7_615_616_512,
    "Qwen/Qwen2.5-0.5B": 494_032_768,
    "Qwen/Qwen3-8B": 8_190_735_360,
    "Qwen/Qwen3-30B-A3B": 30_532_122_624,
    "mistralai/Mistral-7B-Instruct-v0.3": 7_248_023_552,
    "mistralai/Mixtral-8x7B-v0.1": 46_702_792_704,
    "google/gemma-2-2b-it": 2_614_341_888,
    "google/gemma-2-9b": 9_241_705_984,
    "google/gemma-3-1b-pt": 999_885_952,
    "microsoft/Phi-3-mini-4k-instruct": 3_821_079_552,
    "microsoft/phi-4": 14_659_507_200,
}
LLAMA_8B = known_config("meta-llama/Llama-3.1-8B") or {}


def document(
    training_type: str = "SFT", *, framework: str = "HF_TRAINER", device_type: str = "cuda", **changes: Any
) -> JobDocument:
    training = {
        "training_type": training_type,
        "framework": {"type": framework, "config": changes.get("config", {})},
        "base_model": {"model_id": "some/model", "dtype": changes.get("dtype", "bfloat16"), **changes.get("base", {})},
        "hyperparameters": changes.get("hyperparameters", {}),
    }
    data = {"batch_size": 1, "max_seq_length": 2048, "sources": [], "preprocess": {"padding": "max_length"}}
    return JobDocument.from_json(
        {
            "name": "job",
            "training_config": training,
            "data_config": {**data, **changes.get("data", {})},
            "resource_config": {"device_type": device_type},
        }
    )


def found(job: JobDocument, devices: int = 1, config: Any = LLAMA_8B) -> MemoryEstimate:
    return estimate(job, config, device_count=devices)


@pytest.mark.parametrize(("name", "count"), PUBLISHED.items())
def test_well_known_models_have_their_published_parameters(name: str, count: int):
    config = known_config(name)

    assert config is not None
    assert architecture_of(config).parameters == count


def test_every_known_model_is_counted():
    assert len(known_models()) >= 40
    assert all(architecture_of(known_config(name) or {}).family.is_known for name in known_models())
    assert known_config("someone/unheard-of") is None


def test_full_training_in_bfloat16_has_eight_bytes_for_each_parameter():
    parts = found(document(hyperparameters={"gradient_checkpointing": "true"})).parts

    assert parts["weights"] == 2 * PUBLISHED["meta-llama/Llama-3.1-8B"]
    assert parts["gradients"] == parts["weights"]
    assert parts["optimizer"] == 2 * parts["weights"]
    assert parts["overhead"] == CUDA_CONTEXT


def test_default_dtype_trains_float32_weights():
    assert found(document(dtype="auto")).parts["weights"] == 4 * PUBLISHED["meta-llama/Llama-3.1-8B"]


def test_adapters_train_less_than_all_and_four_bits_need_less_than_sixteen():
    values = {"gradient_checkpointing": "true"}
    full, lora, qlora = (found(document(kind, hyperparameters=values)) for kind in ("SFT", "LORA", "QLORA"))

    assert full.total_bytes > 3 * lora.total_bytes
    assert lora.total_bytes > 1.5 * qlora.total_bytes
    assert lora.trained_parameters == 41_943_040  # peft's count for rank 16 on all linear modules
    assert 5 * _GB < qlora.parts["weights"] < 6 * _GB  # published: 5.6 GB for unsloth's and bitsandbytes' 4-bit files


def test_more_of_a_batch_needs_more_and_checkpointing_less():
    sizes = [found(document(data={"batch_size": size})).total_bytes for size in (1, 2, 4, 8)]
    checkpointed = found(document(data={"batch_size": 8}, hyperparameters={"gradient_checkpointing": "true"}))

    assert sizes == sorted(set(sizes))
    assert checkpointed.total_bytes < sizes[-1]


def test_eager_attention_grows_with_the_square_of_the_length():
    def grown(attention: str) -> int:
        base = {"model_kwargs": {"attn_implementation": attention}}
        lengths = [found(document(base=base, data={"max_seq_length": length})) for length in (2048, 4096)]
        return lengths[1].parts["activations"] - lengths[0].parts["activations"]

    assert grown("eager") > 3 * grown("sdpa")


@pytest.mark.parametrize(
    ("framework", "config", "divided", "whole"),
    [
        ("FSDP", {}, ("weights", "gradients", "optimizer"), ()),
        ("DEEPSPEED", {"zero_stage": "1"}, ("optimizer",), ("weights", "gradients")),
        ("DEEPSPEED", {"zero_stage": "2"}, ("gradients", "optimizer"), ("weights",)),
        ("DEEPSPEED", {"zero_stage": "3"}, ("weights", "gradients", "optimizer"), ()),
        ("MEGATRON", {"tensor_parallel": "2", "pipeline_parallel": "4"}, ("weights", "gradients", "optimizer"), ()),
        ("MEGATRON", {}, (), ("weights", "gradients", "optimizer")),
    ],
)
def test_frameworks_divide_what_they_say(
    framework: str, config: dict[str, str], divided: tuple[str, ...], whole: tuple[str, ...]
):
    values = {"gradient_checkpointing": "true"}
    job = document(framework=framework, config=config, hyperparameters=values)
    alone = document(framework="DEEPSPEED" if framework == "DEEPSPEED" else framework, hyperparameters=values)

    parts, before = found(job, 8).parts, found(alone).parts

    for name in divided:
        assert parts[name] == pytest.approx(before[name] / 8, rel=0.08), name
    for name in whole:
        assert parts[name] == pytest.approx(before[name], rel=0.08), name


def test_offloaded_parts_are_not_on_the_device():
    config = {"zero_stage": "3", "offload_optimizer": "cpu", "offload_param": "cpu"}
    parts = found(document(framework="DEEPSPEED", config=config), 4).parts

    assert not {"weights", "optimizer", "gradients"} & set(parts)
    assert "optimizer" not in found(document(framework="FSDP", config={"cpu_offload": "true"}), 4).parts


def test_several_devices_with_whole_copies_have_buckets_for_gradients():
    assert found(document(), 2).parts["communication"] == found(document(), 2).parts["weights"]
    assert "communication" not in found(document()).parts


def test_dpo_has_a_reference_unless_an_adapter_is_trained():
    full, adapter = found(document("DPO")), found(document("DPO", hyperparameters={"use_lora": "true"}))

    assert full.parts["reference"] == full.parts["weights"]
    assert "reference" not in adapter.parts


def test_completions_need_a_cache():
    values = {"algorithm": "grpo", "use_lora": "true", "max_completion_length": "1024", "num_generations": "8"}
    data = {"batch_size": 1, "gradient_accumulation_steps": 64}

    assert found(document("RLHF", hyperparameters=values, data=data)).parts["generation"] > 8 * _GB


def test_short_records_need_less_but_never_less_than_the_states():
    job = document(data={"batch_size": 16, "preprocess": {"padding": "longest"}})

    known = found(job)

    assert known.least_bytes < known.total_bytes
    assert known.least_bytes > 8 * PUBLISHED["meta-llama/Llama-3.1-8B"]
    assert known.notes == ("counted with records of 2048 tokens, the longest that the document allows",)
    padded = found(document(data={"batch_size": 15}))
    assert padded.least_bytes == padded.total_bytes


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({}, "names no model_type"),
        ({"model_type": 7}, "names no model_type"),
        ({"model_type": "llama"}, "no usable hidden_size"),
        ({**LLAMA_8B, "hidden_size": -1}, "no usable hidden_size"),
        ({**LLAMA_8B, "hidden_size": True}, "no usable hidden_size"),
        ({**LLAMA_8B, "vocab_size": "many"}, "no usable vocab_size"),
        ({**LLAMA_8B, "vocab_size": 10**30}, "no usable vocab_size"),
        ({**LLAMA_8B, "model_type": "gemma3", "vision_config": {"hidden_size": 1}}, "vision_config"),
        ({**LLAMA_8B, "model_type": "t5", "is_encoder_decoder": True}, "encoder-decoder"),
        ({**LLAMA_8B, "model_type": "deepseek_v3", "kv_lora_rank": 512}, "kv_lora_rank"),
        ({**LLAMA_8B, "model_type": "someones_moe", "num_experts": 8}, "is not known"),
        ({**LLAMA_8B, "model_type": "mamba", "state_size": 16}, "state_size"),
    ],
)
def test_unknown_models_have_a_reason_and_no_number(config: dict[str, Any], reason: str):
    unknown = found(document(), config=config)

    assert reason in unknown.reason
    assert (unknown.is_known, unknown.total_bytes, unknown.parts) == (False, 0, {})


def test_models_that_look_like_llama_are_counted_with_a_note():
    known = found(document(), config={**LLAMA_8B, "model_type": "newcomer"})

    assert known.parameters == PUBLISHED["meta-llama/Llama-3.1-8B"]
    assert known.notes[0] == "models of type newcomer are counted as if they were built like Llama's"


@pytest.mark.parametrize(
    ("job", "reason"),
    [
        (document("CUSTOM", framework="CUSTOM"), "a script of one's own"),
        (document(framework="ELSEWHERE"), "not valid"),
        (document(hyperparameters={"learning_rate": "much"}), "not valid"),
        (document(framework="DEEPSPEED", config={"zero_stage": "9"}), "zero_stage"),
        (document(framework="MEGATRON", config={"tensor_parallel": "3"}), "must divide"),
    ],
)
def test_unknown_trainings_have_a_reason(job: JobDocument, reason: str):
    assert reason in found(job, 8).reason


def test_experts_in_four_bits_are_not_guessed():
    config = known_config("Qwen/Qwen3-30B-A3B")

    assert "bitsandbytes" in found(document("QLORA"), config=config).reason
    assert found(document("LORA"), config=config).is_known
