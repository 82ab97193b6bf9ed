"""Which weights an engine loads: a model, another job's weights, or an adapter on its base model."""

import shutil
from pathlib import Path

import pytest
import torch
from peft import LoraConfig, PeftModel, TaskType, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification

from tests.builders.engine_specs import engine_spec, loaded_engine
from workers.trainers.failures import InvalidConfig, ModelNotFound
from workers.trainers.inference.engine.interface import Continuation, Pooling, Prompt, SamplingParams

# peft reads a property whose name transformers has changed.
pytestmark = pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning")
ADAPTER = {"model": {"job_id": "job-1", "adapter": True}}


@pytest.fixture(scope="module")
def adapter(llama, tokenizer, tmp_path_factory) -> Path:
    directory: Path = tmp_path_factory.mktemp("adapter")
    save_adapter(AutoModelForCausalLM.from_pretrained(llama), TaskType.CAUSAL_LM, directory)
    tokenizer.save_pretrained(directory)
    return directory


def save_adapter(base, task: TaskType, directory: Path) -> None:
    torch.manual_seed(5)
    model = get_peft_model(base, LoraConfig(task_type=task, r=4, target_modules=["q_proj", "v_proj"]))
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            parameter.data.normal_(std=0.5)
    model.save_pretrained(str(directory))


def test_an_adapter_is_applied_to_its_base_model(engine, llama, adapter, prompts):
    found = loaded_engine(engine_spec(llama, weights_path=str(adapter), inference=ADAPTER))
    plain = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(llama), str(adapter)).eval()

    (answer,) = found.generate([Prompt(tokens=prompts[0])], SamplingParams(max_new_tokens=6))

    expected = plain.generate(input_ids=torch.tensor([prompts[0]]), max_new_tokens=6, do_sample=False)
    assert list(answer.tokens) == expected[0, len(prompts[0]) :].tolist()
    question = [Continuation(context=prompts[0], tokens=prompts[1])]
    assert found.likelihoods(question) != engine.likelihoods(question)


@pytest.mark.filterwarnings("ignore:Found missing adapter keys:UserWarning")  # peft warns, and leaves random weights
def test_an_adapter_that_lacks_a_weight_is_refused(llama, adapter, tmp_path):
    shutil.copytree(adapter, tmp_path, dirs_exist_ok=True)
    weights = load_file(adapter / "adapter_model.safetensors")
    name, *others = sorted(weights)
    save_file({other: weights[other] for other in others}, tmp_path / "adapter_model.safetensors")

    with pytest.raises(ModelNotFound, match=f"the adapter is incomplete: {name} is missing"):
        loaded_engine(engine_spec(llama, weights_path=str(tmp_path), inference=ADAPTER))


def test_an_adapter_makes_vectors(llama, adapter, prompts):
    found = loaded_engine(
        engine_spec(llama, "embed", weights_path=str(adapter), inference={**ADAPTER, "task": {"type": "embed"}})
    )
    plain = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(llama), str(adapter)).eval()

    (vector,) = found.embeddings([prompts[0]], Pooling(kind="last"))

    states = plain(torch.tensor([prompts[0]]), output_hidden_states=True).hidden_states[-1]
    assert vector.tolist() == pytest.approx(states[0, -1].tolist(), abs=1e-4)


def test_an_adapter_of_a_reward_model_brings_its_head(llama, prompts, tmp_path):
    base = AutoModelForSequenceClassification.from_pretrained(llama, num_labels=1)
    save_adapter(base, TaskType.SEQ_CLS, tmp_path)
    spec = engine_spec(llama, weights_path=str(tmp_path), inference={**ADAPTER, "task": {"type": "score"}})

    first, again = loaded_engine(spec).scores([prompts[0]]), loaded_engine(spec).scores([prompts[0]])

    assert first == again
    assert first[0].value is not None


def test_weights_of_another_job_replace_the_base_model(llama, save_model, tmp_path):
    other = save_model("other", num_hidden_layers=1)

    found = loaded_engine(engine_spec(tmp_path / "absent", weights_path=str(other)))

    assert found.model.config.num_hidden_layers == 1


def test_a_model_loads_in_the_dtype_that_the_job_asks_for(llama):
    spec = engine_spec(llama, training_config={"base_model": {"dtype": "bfloat16"}})

    assert loaded_engine(spec).model.dtype == torch.bfloat16
    assert loaded_engine(engine_spec(llama)).model.dtype == torch.float32


@pytest.mark.parametrize(
    ("values", "error", "named"),
    [
        ({"framework": "ABACUS"}, InvalidConfig, "no engine 'ABACUS'; known: "),
        ({"framework": "VLLM", "node": "gpu-7"}, InvalidConfig, "this node .gpu-7. has no vllm; use TRANSFORMERS"),
        ({"model_path": "/absent"}, ModelNotFound, "holds no model"),
        ({"inference": ADAPTER, "weights_path": "/absent"}, ModelNotFound, "holds no adapter"),
        ({"inference": {"model": {"quantization": "bnb-4bit"}}}, InvalidConfig, "bnb-4bit needs a GPU"),
        ({"inference": {"model": {"quantization": "int3"}}}, InvalidConfig, "'int3' is not one of none, bnb-4bit"),
        ({"training_config": {"base_model": {"model_kwargs": {"wings": 2}}}}, InvalidConfig, "wings is unknown"),
    ],
)
def test_what_can_not_be_loaded_is_refused(llama, values, error, named):
    with pytest.raises(error, match=named):
        loaded_engine(engine_spec(llama, **values))


def test_a_model_refuses_the_task_of_another_one(llama, prompts):
    engine = loaded_engine(engine_spec(llama, "embed"))
    with pytest.raises(InvalidConfig, match="needs a model that generates text"):
        engine.generate([Prompt(tokens=prompts[0])], SamplingParams(max_new_tokens=2))
