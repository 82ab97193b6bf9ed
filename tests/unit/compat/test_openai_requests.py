"""What OpenAI's own client sends is what was recorded, so that a newer client which asks otherwise is noticed.

Read the release notes of the client when this fails, change the dialect where it has to, and copy the new recording,
whose place the failure names, over `openai_requests.json`.
"""

import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from tests.doubles.recorded_requests import Seen, recording
from tests.doubles.scripted_server import Handler, running

RECORDED = Path(__file__).with_name("openai_requests.json")
LINE = ("train.jsonl", b'{"prompt": "a", "completion": "b"}\n')
CHAT: dict[str, Any] = {"model": "tiny", "messages": [{"role": "user", "content": "hello"}]}
TOOL: Any = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}


def calls(client: Any) -> Iterator[tuple[str, Callable[[], object]]]:
    """Each kind of request once, with all of its usual parameters."""
    yield from _calls_about_files(client)
    yield from _calls_about_fine_tuning(client.fine_tuning)
    yield from _calls_about_answers(client)
    yield "models.list", client.models.list
    yield "models.retrieve", lambda: client.models.retrieve("ft:tiny:default:docs:3f9c2a1b")
    yield "models.delete", lambda: client.models.delete("ft:tiny:default:docs:3f9c2a1b")
    yield (
        "a retry",
        lambda: client.with_options(max_retries=1).fine_tuning.jobs.create(training_file="file-1", model="retried"),
    )


def _calls_about_files(client: Any) -> Iterator[tuple[str, Callable[[], object]]]:
    expires = {"anchor": "created_at", "seconds": 3600}
    files, uploads = client.files, client.uploads
    yield "files.create", lambda: files.create(file=LINE, purpose="fine-tune", expires_after=expires)
    yield "files.list", lambda: files.list(purpose="batch", limit=5, after="file-1", order="asc")
    yield "files.retrieve", lambda: files.retrieve("file-1")
    yield "files.content", lambda: files.content("file-1")
    yield "files.delete", lambda: files.delete("file-1")
    yield (
        "uploads.create",
        lambda: uploads.create(
            bytes=35, filename="train.jsonl", mime_type="text/jsonl", purpose="fine-tune", expires_after=expires
        ),
    )
    yield "uploads.parts.create", lambda: uploads.parts.create("upload-1", data=b"{}\n")
    yield "uploads.complete", lambda: uploads.complete("upload-1", part_ids=["part-1", "part-2"], md5="0" * 32)
    yield "uploads.cancel", lambda: uploads.cancel("upload-1")


def _calls_about_fine_tuning(fine_tuning: Any) -> Iterator[tuple[str, Callable[[], object]]]:
    jobs, graders = fine_tuning.jobs, fine_tuning.alpha.graders
    grader = {"type": "string_check", "name": "same", "operation": "eq", "input": "{{a}}", "reference": "{{b}}"}
    supervised = {"type": "supervised", "supervised": {"hyperparameters": {"n_epochs": "auto", "batch_size": 4}}}
    yield (
        "jobs.create",
        lambda: jobs.create(
            training_file="file-1",
            validation_file="file-2",
            model="tiny",
            suffix="docs",
            seed=7,
            method=supervised,
            metadata={"team": "red"},
            integrations=[{"type": "wandb", "wandb": {"project": "docs", "tags": ["a"]}}],
            extra_body={"trainyard": {"resource_config": {"gpu_count": 2}}},
        ),
    )
    yield (
        "jobs.create, deprecated form",
        lambda: jobs.create(
            training_file="file-1", model="tiny", hyperparameters={"n_epochs": 2, "learning_rate_multiplier": 0.5}
        ),
    )
    yield "jobs.list", lambda: jobs.list(limit=3, after="ftjob-1", metadata={"team": "red"})
    for name in ("retrieve", "cancel", "pause", "resume"):
        yield f"jobs.{name}", partial(getattr(jobs, name), "ftjob-1")
    yield "jobs.list_events", lambda: jobs.list_events("ftjob-1", limit=5, after="ftevent-1")
    yield "jobs.checkpoints.list", lambda: jobs.checkpoints.list("ftjob-1", limit=5, after="ckpt-1")
    yield "graders.validate", lambda: graders.validate(grader=grader)
    yield "graders.run", lambda: graders.run(grader=grader, model_sample="a", item={"b": "c"})
    yield "graders.run", lambda: graders.run(grader=grader, model_sample="a", item={"b": "a"})


def _calls_about_answers(client: Any) -> Iterator[tuple[str, Callable[[], object]]]:
    batches = client.batches
    yield "chat.completions.create", lambda: client.chat.completions.create(**CHAT, temperature=0.5, seed=1)
    yield (
        "chat.completions.create, streamed",
        lambda: list(
            client.chat.completions.create(
                **CHAT, stream=True, stream_options={"include_usage": True}, n=2, stop=["a"], logit_bias={"5": -1}
            )
        ),
    )
    yield (
        "chat.completions.create, with tools",
        lambda: client.chat.completions.create(
            **CHAT, tools=[TOOL], tool_choice="auto", parallel_tool_calls=False, logprobs=True, top_logprobs=2
        ),
    )
    yield (
        "chat.completions.create, in a form",
        lambda: client.chat.completions.create(
            **CHAT, response_format={"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "object"}}}
        ),
    )
    yield (
        "completions.create, of tokens",
        lambda: client.completions.create(model="tiny", prompt=[[1, 2], [3]], logprobs=1, echo=False, best_of=1),
    )
    yield (
        "embeddings.create, as numbers",
        lambda: client.embeddings.create(model="tiny", input=[[1, 2]], encoding_format="float", dimensions=1),
    )
    yield "completions.create", lambda: client.completions.create(model="tiny", prompt="hello", max_tokens=4)
    yield "embeddings.create", lambda: client.embeddings.create(model="tiny", input=["a", "b"])
    yield "moderations.create", lambda: client.moderations.create(input="a")
    yield "responses.create", lambda: client.responses.create(model="tiny", input="a")
    yield (
        "batches.create",
        lambda: batches.create(
            input_file_id="file-1", endpoint="/v1/chat/completions", completion_window="24h", metadata={"team": "red"}
        ),
    )
    yield (
        "batches.create, with files that expire",
        lambda: batches.create(
            input_file_id="file-1",
            endpoint="/v1/embeddings",
            completion_window="24h",
            output_expires_after={"anchor": "created_at", "seconds": 3600},
            extra_body={"trainyard": {"resource_config": {"gpu_count": 2}}},
        ),
    )
    yield "batches.list", lambda: batches.list(limit=5)
    yield "batches.retrieve", lambda: batches.retrieve("batch-1")
    yield "batches.cancel", lambda: batches.cancel("batch-1")


def test_client_sends_what_was_recorded(tmp_path: Path) -> None:
    found = recorded()
    new = tmp_path / RECORDED.name
    new.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")

    assert found == json.loads(RECORDED.read_text(encoding="utf-8")), f"the new recording is {new}"


def recorded() -> dict[str, Any]:
    from openai import OpenAI  # noqa: PLC0415 – a second of imports, in each process that collects tests

    requests: dict[str, Seen] = {}
    with (
        running() as server,
        OpenAI(base_url=f"{server.url}/v1", api_key="key", organization="us", project="red", max_retries=0) as client,
    ):
        server.script(_empty)
        for kind, call in calls(client):
            server.seen.clear()
            server.script(*([_busy] if kind == "a retry" else []), _empty)
            call()
            requests[kind] = server.seen[-1]
    return recording(requests)


def _empty(handler: Handler) -> None:
    """An answer that every kind of object can be read from."""
    handler.reply(
        200, b'{"id": "x", "object": "list", "data": [{"embedding": [0.5]}], "has_more": false, "output": []}'
    )


def _busy(handler: Handler) -> None:
    handler.reply(503, b"{}", **{"retry-after-ms": "1"})
