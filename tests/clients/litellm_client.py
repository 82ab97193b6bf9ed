"""LiteLLM: files, a fine-tuning, answers, a stream, vectors, a batch. Arguments are a file of chats and the model."""

import json
import sys
import time
from pathlib import Path
from typing import Any

import litellm

FILE, MODEL = Path(sys.argv[1]), sys.argv[2]
OPENAI: Any = {"custom_llm_provider": "openai"}
MESSAGES = [{"role": "user", "content": "def f1(x):"}]


def fine_tuned() -> str:
    data = litellm.create_file(file=FILE.open("rb"), purpose="fine-tune", **OPENAI)
    assert data.id in {each.id for each in litellm.file_list(**OPENAI)}
    assert litellm.file_content(file_id=data.id, **OPENAI).content == FILE.read_bytes()
    job = litellm.create_fine_tuning_job(
        model=MODEL,
        training_file=data.id,
        suffix="litellm",
        seed=7,
        hyperparameters={"n_epochs": 1, "batch_size": 4},
        **OPENAI,
    )
    while job.status not in {"succeeded", "failed", "cancelled"}:
        time.sleep(0.3)
        job = litellm.retrieve_fine_tuning_job(fine_tuning_job_id=job.id, **OPENAI)
    assert job.status == "succeeded", job.error
    assert job.id in {each.id for each in litellm.list_fine_tuning_jobs(**OPENAI)}
    assert litellm.file_delete(file_id=data.id, **OPENAI).deleted
    return str(job.fine_tuned_model)


def answers(model: str) -> None:
    asked: Any = {"model": f"openai/{model}", "messages": MESSAGES, "max_tokens": 8, "temperature": 0, "timeout": 150}

    answer = litellm.completion(**asked)
    pieces = list(litellm.completion(**asked, stream=True))
    vectors = litellm.embedding(model=f"openai/{MODEL}", input=["one text", "another"], timeout=150)

    assert answer.usage.completion_tokens <= 8
    assert "".join(piece.choices[0].delta.content or "" for piece in pieces) == answer.choices[0].message.content
    assert [len(each["embedding"]) > 1 for each in vectors.data] == [True, True]


def batch() -> None:
    body = {"model": MODEL, "messages": MESSAGES, "max_tokens": 4}
    line = {"custom_id": "first", "method": "POST", "url": "/v1/chat/completions", "body": body}
    file = litellm.create_file(file=("requests.jsonl", json.dumps(line).encode()), purpose="batch", **OPENAI)
    found = litellm.create_batch(
        input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h", **OPENAI
    )
    while found.status in {"validating", "in_progress", "finalizing"}:
        time.sleep(0.3)
        found = litellm.retrieve_batch(batch_id=found.id, **OPENAI)
    assert found.status == "completed", found.errors
    [answer] = litellm.file_content(file_id=found.output_file_id, **OPENAI).content.splitlines()
    assert json.loads(answer)["response"]["body"]["usage"]["completion_tokens"] <= 4
    assert found.id in {each.id for each in litellm.list_batches(**OPENAI)}


def refusals() -> None:
    try:
        litellm.completion(model="openai/no-model", messages=MESSAGES)
    except litellm.NotFoundError:
        return
    raise AssertionError("a model that does not exist has answered")


model = fine_tuned()
batch()  # before replicas, which take devices
answers(model)
refusals()
sys.stdout.write("done\n")
