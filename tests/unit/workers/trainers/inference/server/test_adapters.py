"""Adapters of the project's jobs, asked for by a header."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM

from tests.unit.workers.trainers.inference.server.socket_client import COMPLETIONS, Replica
from workers.trainers.inference.serving.openai.handlers import ADAPTER

pytestmark = pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning")
BODY = {"model": "tiny", "prompt": "Return the name", "max_tokens": 8, "temperature": 0}


@pytest.fixture
def adapter(llama: Path, tmp_path: Path) -> Path:
    torch.manual_seed(1)
    config = LoraConfig(r=4, target_modules=["q_proj", "v_proj"], init_lora_weights=False, task_type="CAUSAL_LM")
    adapted = get_peft_model(AutoModelForCausalLM.from_pretrained(llama), config)
    for name, parameter in adapted.named_parameters():
        if "lora_" in name:
            parameter.data *= 3
    adapted.save_pretrained(str(tmp_path / "adapter"))
    return tmp_path / "adapter"


@pytest.fixture
def replica(run_replica: Callable[..., Replica], llama: Path, adapter: Path) -> Replica:
    return run_replica(llama, max_loaded=2, adapter_directories={"job-1": adapter})


def test_adapter_answers_where_it_is_asked_for(replica: Replica) -> None:
    base = replica.ask(COMPLETIONS, BODY).json
    adapted = replica.ask(COMPLETIONS, BODY, **{ADAPTER: "job-1"}).json

    assert adapted["choices"] != base["choices"]
    assert adapted["system_fingerprint"] != base["system_fingerprint"]
    assert replica.ask(COMPLETIONS, BODY).json["choices"] == base["choices"]
    assert replica.ask(COMPLETIONS, BODY, **{ADAPTER: "job-1/ckpt-2"}).json["choices"] == adapted["choices"]
    assert replica.session.fetched == [("job-1", None), ("job-1", "ckpt-2")]


def test_adapter_that_is_not_there_is_a_conflict(replica: Replica) -> None:
    answer = replica.ask(COMPLETIONS, BODY, **{ADAPTER: "job-2"})

    assert (answer.status, answer.error["param"], answer.error["code"]) == (409, "model", "adapter_not_loaded")
    assert "job-2 has no adapter" in answer.error["message"]


@pytest.mark.parametrize("name", ["../job-1", "job-1/a/b", "job 1", ""])
def test_bad_name_of_an_adapter(replica: Replica, name: str) -> None:
    assert replica.ask(COMPLETIONS, BODY, **{ADAPTER: name}).status == 400
