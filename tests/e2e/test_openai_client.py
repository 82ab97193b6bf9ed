"""Fine-tuning and batches by OpenAI's own client against a running system, as docs/how-to/openai.md shows it."""

import asyncio
import json
import shutil
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from tests.builders.batches import lines_of, request_line
from tests.lazy_imports import lazily_imported
from tests.systems.forked_agents import ForkedAgents
from tests.systems.system import TRAINYARD, System, wait_for
from tests.systems.with_gateway import gateway_of

if TYPE_CHECKING:
    import httpx2
    import openai
else:
    httpx2, openai = lazily_imported("httpx2"), lazily_imported("openai")

RECORDS = 12
BATCH_ENDED = {"completed", "failed", "expired", "cancelled"}
SECRET = "sk-no-such-key"


def chats(count: int) -> bytes:
    turns = [
        [{"role": "user", "content": f"def f{number}(x):"}, {"role": "assistant", "content": f"return {number}"}]
        for number in range(count)
    ]
    return "".join(json.dumps({"messages": each}) + "\n" for each in turns).encode()


def client_of(system: System, **options: object) -> "openai.OpenAI":
    """With a key of the project `default`."""
    _, made = system.call("POST", "/v1/keys", {"role": "user", "project": "default", "name": "openai"})
    address = f"http://127.0.0.1:{system.port}/v1"
    return openai.OpenAI(base_url=address, api_key=made["data"]["key"], **options)  # type: ignore[arg-type]


def losing_answers(method: str, path: str) -> "httpx2.Client":
    """A client of HTTP that loses the first answer to a request, which the server has carried out."""
    lost: list[str] = []

    class Losing(httpx2.HTTPTransport):
        def handle_request(self, request: "httpx2.Request") -> "httpx2.Response":
            answer = super().handle_request(request)
            if (request.method, request.url.path) == (method, path) and not lost:
                lost.append(answer.headers["x-request-id"])
                answer.close()
                raise httpx2.ReadError("the answer is lost", request=request)
            return answer

    return httpx2.Client(transport=Losing())


def ask_model(client: "openai.OpenAI", fine_tuned: str) -> None:
    """The adapter is answered by a service of its base, which the first request makes."""
    chat = client.with_options(timeout=150, max_retries=0).chat.completions
    messages: Any = [{"role": "user", "content": "def f1(x):"}]

    answer = chat.create(model=fine_tuned, messages=messages, max_tokens=4, seed=7)
    again = chat.create(model=fine_tuned, messages=messages, max_tokens=4, seed=7)
    stream = chat.create(model="tiny", messages=messages, max_tokens=4, temperature=0, stream=True)
    pieces = [chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices]
    vectors = client.with_options(timeout=150).embeddings.create(model="tiny", input=["one text", "another"])

    assert answer.usage is not None
    assert answer.usage.completion_tokens <= 4
    assert answer.choices[0].message.role == "assistant"
    assert (again.choices[0].message.content, again.system_fingerprint) == (
        answer.choices[0].message.content,
        answer.system_fingerprint,
    )
    assert "".join(pieces)
    assert [len(each.embedding) > 1 for each in vectors.data] == [True, True]
    assert asyncio.run(asked_asynchronously(client, messages)) == ("".join(pieces), RECORDS)


async def asked_asynchronously(client: "openai.OpenAI", messages: Any) -> tuple[str, int]:
    """The text of a stream, and the number of lines of the newest file for fine-tuning, by the asynchronous client."""
    async with openai.AsyncOpenAI(base_url=client.base_url, api_key=client.api_key, timeout=150) as asking:
        stream = await asking.chat.completions.create(
            model="tiny", messages=messages, max_tokens=4, temperature=0, stream=True
        )
        pieces = [chunk.choices[0].delta.content or "" async for chunk in stream if chunk.choices]
        files = [file.id async for file in asking.files.list(purpose="fine-tune", limit=1)]
        content = await asking.files.content(files[0])
    return "".join(pieces), len(content.text.splitlines())


@pytest.mark.long
@pytest.mark.timeout(400)
def test_client_of_openai_fine_tunes_a_model(
    shared_system: System, forked_agents: ForkedAgents, assets: dict[str, str]
) -> None:
    system = shared_system
    forked_agents.serve_system(system)
    add_model(system, assets, "tiny")
    with client_of(system) as client:
        jobs = client.fine_tuning.jobs
        data = client.files.create(file=("train.jsonl", chats(RECORDS)), purpose="fine-tune")
        assert (data.object, data.bytes, data.filename) == ("file", len(chats(RECORDS)), "train.jsonl")
        data = client.files.wait_for_processing(data.id, poll_interval=0.2, max_wait_seconds=60)
        assert (data.status, data.status_details) == ("processed", None)
        job = jobs.create(
            training_file=data.id,
            model="tiny",
            suffix="docs",
            seed=7,
            method={"type": "supervised", "supervised": {"hyperparameters": {"n_epochs": 1, "batch_size": 4}}},
            metadata={"team": "red"},
        )
        assert (job.id[:6], job.status in {"validating_files", "queued", "running"}, job.seed) == ("ftjob-", True, 7)
        with pytest.raises(openai.ConflictError) as needed:
            client.files.delete(data.id)
        assert needed.value.response.headers["x-should-retry"] == "false"

        def ended() -> "openai.types.fine_tuning.FineTuningJob | None":
            found = jobs.retrieve(job.id)
            return found if found.status in {"succeeded", "failed", "cancelled"} else None

        done = wait_for(ended, seconds=120, what="the job has ended")
        events = list(jobs.list_events(job.id))
        checkpoints = list(jobs.checkpoints.list(job.id))
        models = {each.id: each for each in client.models.list()}

        assert (done.status, done.error) == ("succeeded", None), system.story(job.id.replace("ftjob-", "job-"))
        assert done.fine_tuned_model is not None
        assert done.fine_tuned_model.startswith("ft:tiny:default:docs:")
        assert (done.hyperparameters.n_epochs, done.hyperparameters.batch_size) == (1, 4)
        assert done.finished_at is not None
        assert done.created_at <= done.finished_at
        assert (done.trained_tokens or 0) > 0
        assert {each.type for each in events} == {"message", "metrics"}
        assert [each.created_at for each in events] == sorted((each.created_at for each in events), reverse=True)
        assert [each.step_number for each in checkpoints] == [3]
        assert checkpoints[0].fine_tuned_model_checkpoint == f"{done.fine_tuned_model}:ckpt-step-3"
        assert {"tiny", done.fine_tuned_model} <= set(models)
        assert job.id in [each.id for each in jobs.list(metadata={"team": "red"})]
        assert client.files.content(data.id).read() == chats(RECORDS)
        assert data.id in [each.id for each in client.files.list(purpose="fine-tune")]
        assert client.files.content(done.result_files[0]).read().startswith(b"step,train_loss")
        with gateway_of(system):
            ask_model(client, done.fine_tuned_model)
        assert (client.files.delete(data.id).deleted, client.models.delete(done.fine_tuned_model).deleted) == (
            True,
            True,
        )


@pytest.mark.long
@pytest.mark.timeout(100)
def test_client_of_openai_repeats_a_request_without_a_second_effect(shared_system: System) -> None:
    with client_of(shared_system, http_client=losing_answers("POST", "/v1/files")) as client:
        before = {each.id for each in client.files.list(purpose="user_data")}

        made = client.files.create(file=("notes.txt", b"a note\n"), purpose="user_data")
        again = client.files.create(file=("notes.txt", b"a note\n"), purpose="user_data")

        found = {each.id for each in client.files.list(purpose="user_data")} - before
        assert found == {made.id, again.id}
        assert len(found) == 2
        for file_id in found:
            client.files.delete(file_id)


@pytest.mark.long
@pytest.mark.timeout(100)
def test_client_of_openai_reads_refusals(shared_system: System) -> None:
    with client_of(shared_system) as client:
        with pytest.raises(openai.NotFoundError) as unknown:
            client.fine_tuning.jobs.create(training_file="file-00000000-0000-7000-8000-000000000000", model="no-model")
        with pytest.raises(openai.InternalServerError) as missing:
            client.moderations.create(input="hello")
        with pytest.raises(openai.AuthenticationError):
            client.with_options(api_key=SECRET).models.list()
        broken = client.files.create(file=("broken.jsonl", b'{"messages": []}\nnot JSON\n'), purpose="fine-tune")
        broken = client.files.wait_for_processing(broken.id, poll_interval=0.2, max_wait_seconds=60)
        client.files.delete(broken.id)

    assert unknown.value.param in {"model", "training_file"}
    assert (missing.value.status_code, missing.value.code) == (501, "not_built")
    assert broken.status == "error"
    assert "line 2" in (broken.status_details or "")


def add_model(system: System, assets: dict[str, str], name: str) -> str:
    """The directory of a registered base model."""
    model = shutil.copytree(assets["model"], system.inputs / f"openai-{name}")
    subprocess.run(
        [TRAINYARD, "models", "add", name, str(model), "--local"], env=system.environment, check=True, timeout=60
    )
    return str(model)


def begin_batch(client: "openai.OpenAI", *requests: Any, **more: Any) -> "openai.types.Batch":
    """A batch of these requests, which all have the url of the first."""
    file = client.files.create(file=("requests.jsonl", lines_of(requests)), purpose="batch")
    return client.batches.create(input_file_id=file.id, endpoint=requests[0]["url"], completion_window="24h", **more)


def end_of(client: "openai.OpenAI", batch: "openai.types.Batch", seconds: float = 150) -> "openai.types.Batch":
    def ended() -> "openai.types.Batch | None":
        found = client.batches.retrieve(batch.id)
        return found if found.status in BATCH_ENDED else None

    return wait_for(ended, seconds=seconds, what=f"{batch.id} has ended")


def answers_in(client: "openai.OpenAI", file_id: str | None) -> list[dict[str, Any]]:
    return [json.loads(line) for line in client.files.content(file_id).text.splitlines()] if file_id else []


@pytest.mark.long
@pytest.mark.timeout(400)
def test_client_of_openai_has_batches_answered(
    shared_system: System, forked_agents: ForkedAgents, assets: dict[str, str]
) -> None:
    forked_agents.serve_system(shared_system)
    path = add_model(shared_system, assets, "batched")
    with client_of(shared_system) as client:
        asked = [request_line(f"chat-{n}", model=("batched", path)[n % 2], max_tokens=4, seed=n) for n in range(12)]
        too_long = request_line("too-long", model="batched", messages=[{"role": "user", "content": "word " * 20_000}])
        texts = [
            request_line(f"text-{n}", url="/v1/embeddings", model="batched", input=["one text", f"another {n}"])
            for n in range(5)
        ]

        batch = begin_batch(client, *asked[:6], too_long, *asked[6:], metadata={"team": "red"})
        vectors = begin_batch(client, *texts)
        batch, vectors = end_of(client, batch), end_of(client, vectors)
        answers, errors = answers_in(client, batch.output_file_id), answers_in(client, batch.error_file_id)
        embedded = answers_in(client, vectors.output_file_id)

        assert (batch.status, batch.errors, batch.metadata) == ("completed", None, {"team": "red"}), batch
        assert batch.request_counts is not None
        counts = (batch.request_counts.total, batch.request_counts.completed, batch.request_counts.failed)
        assert counts == (13, 12, 1), errors[:2]
        assert batch.usage is not None
        assert batch.usage.output_tokens > 0
        assert [each["custom_id"] for each in answers] == [each["custom_id"] for each in asked]
        for each in answers:
            body = openai.types.chat.ChatCompletion.model_validate(each["response"]["body"])
            assert (each["response"]["status_code"], each["error"]) == (200, None)
            assert body.choices[0].message.role == "assistant"
        assert len({each["id"] for each in answers}) == len(answers)
        assert [(each["custom_id"], each["response"]["status_code"]) for each in errors] == [("too-long", 400)]
        assert errors[0]["response"]["body"]["error"]["code"] == "context_length_exceeded"
        assert (vectors.status, vectors.error_file_id, vectors.model) == ("completed", None, "batched"), vectors
        assert [each["custom_id"] for each in embedded] == [each["custom_id"] for each in texts]
        assert all(len(each["response"]["body"]["data"]) == 2 for each in embedded)
        assert client.files.retrieve(batch.output_file_id or "").purpose == "batch_output"
        assert {batch.id, vectors.id} <= {each.id for each in client.batches.list()}


@pytest.mark.long
@pytest.mark.timeout(300)
def test_client_of_openai_reads_why_a_batch_failed_and_cancels_one(
    shared_system: System, forked_agents: ForkedAgents, assets: dict[str, str]
) -> None:
    forked_agents.serve_system(shared_system)
    add_model(shared_system, assets, "cancelled")
    with client_of(shared_system) as client:
        good = request_line("good", model="cancelled", max_tokens=4)
        bad = [
            good,
            request_line("hot", model="cancelled", temperature=3),
            request_line("unknown", model="no-such-model"),
        ]
        long = [request_line(f"long-{n}", model="cancelled", max_tokens=100, seed=n) for n in range(3000)]

        failed = end_of(client, begin_batch(client, *bad))
        running = begin_batch(client, *long)
        wait_for(
            lambda: client.batches.retrieve(running.id).status == "in_progress", seconds=60, what="the batch has begun"
        )
        with pytest.raises(openai.ConflictError):
            client.files.delete(running.input_file_id)
        cancelling = client.batches.cancel(running.id)
        cancelled = end_of(client, running)
        answered = answers_in(client, cancelled.output_file_id)
        deleted = client.files.delete(running.input_file_id)

        assert (failed.status, failed.output_file_id) == ("failed", None)
        assert failed.errors is not None
        assert [(each.line, each.param) for each in failed.errors.data or []] == [
            (2, "body.temperature"),
            (3, "body.model"),
        ]
        assert {each.code for each in failed.errors.data or []} == {"validation_error", "model_not_found"}
        assert (cancelling.status, cancelled.status) == ("cancelling", "cancelled")
        assert cancelled.request_counts is not None
        assert len(answered) == cancelled.request_counts.completed < 3000
        assert deleted.deleted
        with pytest.raises(openai.ConflictError) as over:
            client.batches.cancel(running.id)
        assert over.value.code == "invalid_state"
