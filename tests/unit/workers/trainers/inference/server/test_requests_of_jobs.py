"""Jobs whose records are requests: answered as a replica answers them, in equal bytes whatever interrupts them."""

import json
import shutil
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModel, AutoModelForCausalLM

from tests.unit.workers.trainers.inference.runs import RecordingSession, contents, lines_of, make_spec, run, write_lines
from tests.unit.workers.trainers.inference.server.socket_client import CHAT, COMPLETIONS, EMBEDDINGS, Replica
from workers.rank.run_context import Result, RunContext, RunSpec
from workers.trainers.failures import DataInvalid, InvalidConfig
from workers.trainers.inference.batch import BatchTrainer

pytestmark = pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning")  # peft's
MESSAGES = [{"role": "user", "content": "Return the name"}]
Rows = list[dict[str, Any]]


def request(custom_id: str, url: str, **body: Any) -> dict[str, Any]:
    return {"custom_id": custom_id, "method": "POST", "url": url, "body": {"model": "tiny", **body}}


def requests(url: str, bodies: Iterable[Mapping[str, Any]]) -> Rows:
    return [request(f"r{number}", url, **body) for number, body in enumerate(bodies)]


def section(endpoint: str, **values: Any) -> dict[str, Any]:
    task = {"type": "requests", "endpoint": endpoint, **values}
    return {"task": task, "output": {"shard_records": 3}, "on_error": {"max_share": 1.0}}


def spec_of(directory: Path, model: Path, rows: Rows, name: str = "run", **values: Any) -> RunSpec:
    data = write_lines(directory / "requests.jsonl", rows)
    asked = values.pop("inference", None) or section(rows[0]["url"], **values.pop("task", {}))
    return make_spec(directory, data, asked, run=name, framework="TRANSFORMERS", model_path=str(model), **values)


def answered(directory: Path, model: Path, rows: Rows, **values: Any) -> tuple[Rows, Result]:
    spec = spec_of(directory, model, rows, **values)
    result = run(spec)
    return lines_of(spec.run_dir / "output"), result


CHATS: Rows = [
    {"messages": MESSAGES, "max_tokens": 8, "temperature": 0},
    {"messages": MESSAGES, "max_completion_tokens": 6, "temperature": 1.3, "seed": 5, "n": 3},
    {"messages": MESSAGES, "max_tokens": 8, "temperature": 0, "logprobs": True, "top_logprobs": 2},
    {"messages": [{"role": "system", "content": "No text"}, *MESSAGES], "max_tokens": 24, "seed": 1, "stop": ["e"]},
    {"messages": MESSAGES, "max_tokens": 9, "seed": 2, "frequency_penalty": 1, "logit_bias": {"5": 3}},
]
TEXTS: Rows = [
    {"prompt": "def get", "max_tokens": 8, "temperature": 0, "logprobs": 2},
    {"prompt": ["No text", "Return"], "n": 2, "max_tokens": 5, "seed": 9, "temperature": 0.8},
    {"prompt": [5, 6, 7], "max_tokens": 4, "temperature": 0, "echo": True},
    {"prompt": "", "max_tokens": 4, "temperature": 0},
]


@pytest.mark.parametrize(("path", "bodies"), [(CHAT, CHATS), (COMPLETIONS, TEXTS)], ids=["chat", "completions"])
def test_answers_are_those_of_a_replica(tmp_path: Path, llama: Path, replica: Replica, path: str, bodies: Rows) -> None:
    asked = requests(path, bodies)

    rows, result = answered(tmp_path, llama, asked)

    for row, each in zip(rows, asked, strict=True):
        expected = replica.ask(path, each["body"]).json
        found = row["response"]["body"]
        assert row["response"]["status_code"] == 200
        assert _rounded(found["choices"]) == _rounded(expected["choices"])
        same = ("object", "model", "usage", "system_fingerprint")
        assert {name: found[name] for name in same} == {name: expected[name] for name in same}
        assert found.keys() == expected.keys()
    usages = [row["response"]["body"]["usage"] for row in rows]
    assert result.final_metrics == {
        "records": len(rows),
        "failed_records": 0,
        "prompt_tokens": sum(each["prompt_tokens"] for each in usages),
        "completion_tokens": sum(each["completion_tokens"] for each in usages),
    }


def test_embeddings_are_those_of_a_replica(tmp_path: Path, save_model: Callable[..., Path], embedder: Replica) -> None:
    model = save_model("bert", kind="bert", of=AutoModel)
    bodies: Rows = [{"input": "Return the name"}, {"input": ["No text", "a file"], "dimensions": 8}, {"input": [5, 6]}]
    asked = requests(EMBEDDINGS, [*bodies, {"input": "No text", "encoding_format": "base64"}])

    rows, _ = answered(tmp_path, model, asked)

    for row, each in zip(rows, asked, strict=True):
        expected, found = embedder.ask(EMBEDDINGS, each["body"]).json, row["response"]["body"]
        assert (found["object"], found["usage"]) == ("list", expected["usage"])
        for one, other in zip(found["data"], expected["data"], strict=True):
            is_text = isinstance(other["embedding"], str)
            assert type(one["embedding"]) is type(other["embedding"])
            assert is_text or one["embedding"] == pytest.approx(other["embedding"], abs=1e-5)


def test_rows_name_their_lines_and_nothing_of_them_is_drawn(tmp_path: Path, llama: Path) -> None:
    unnamed = {"messages": MESSAGES, "max_tokens": 8, "temperature": 1.5}
    asked = requests(CHAT, [unnamed] * 5)
    asked[1]["body"]["model"] = asked[3]["body"]["model"] = "other"

    of_tiny, _ = answered(tmp_path, llama, asked, task={"seed": 4, "only_model": "tiny", "created": 17})
    of_other, _ = answered(tmp_path, llama, asked, task={"seed": 4, "only_model": "other"}, name="other")
    again, _ = answered(tmp_path, llama, asked, task={"seed": 4, "only_model": "tiny", "created": 17}, name="again")
    reseeded, _ = answered(tmp_path, llama, asked, task={"seed": 5, "only_model": "tiny"}, name="reseeded")

    assert list(of_tiny[0]) == ["index", "line", "custom_id", "response", "error"]
    assert [(row["index"], row["line"], row["custom_id"], row["error"]) for row in of_tiny] == [
        (0, 1, "r0", None),
        (1, 3, "r2", None),
        (2, 5, "r4", None),
    ]
    assert [row["line"] for row in of_other] == [2, 4]
    assert again == of_tiny
    bodies = [row["response"]["body"] for row in of_tiny]
    assert {body["created"] for body in bodies} == {17}
    assert len({row["response"]["request_id"] for row in (*of_tiny, *of_other)}) == 5
    assert len({body["id"] for body in bodies}) == 3
    texts = [
        [row["response"]["body"]["choices"][0]["message"]["content"] for row in rows] for rows in (of_tiny, reseeded)
    ]
    assert len(set(texts[0])) == 3, "each record has a seed of its own"
    assert texts[0] != texts[1]


BAD: list[tuple[Any, ...]] = [
    ({"messages": "hello"}, 400, "messages", None),
    ({"messages": MESSAGES, "temperature": "hot"}, 400, "temperature", None),
    ({"messages": MESSAGES, "presence_penalty": [1]}, 400, "presence_penalty", None),
    ({"messages": MESSAGES, "max_tokens": 1000}, 400, "max_tokens", None),
    ({"messages": [{"role": "user", "content": "a key " * 200}]}, 400, None, "context_length_exceeded"),
    ({"messages": MESSAGES, "stream": True}, 400, "stream", None),
    ({"messages": MESSAGES, "logit_bias": {"100000": 1}}, 400, "logit_bias", None),
    ({"messages": MESSAGES, "tools": [{"type": "function"}]}, 400, None, None),
    (
        {"messages": MESSAGES, "response_format": {"type": "json_schema", "json_schema": {"schema": {"type": 5}}}},
        400,
        ...,
    ),
]


def test_a_refused_request_has_its_error_and_harms_no_other(tmp_path: Path, llama: Path) -> None:
    asked = requests(CHAT, [body for body, *_ in BAD] + [{"messages": MESSAGES, "max_tokens": 4}])

    rows, result = answered(tmp_path, llama, asked)

    for row, (_, status, *expected) in zip(rows, BAD, strict=False):
        error = row["response"]["body"]["error"]
        assert (row["response"]["status_code"], row["error"]) == (status, None)
        assert error["type"] == "invalid_request_error"
        assert expected == [...] or [error["param"], error["code"]] == expected, error
    assert rows[-1]["response"]["status_code"] == 200
    assert result.final_metrics["failed_records"] == len(BAD)


def test_a_record_that_is_no_request_has_no_response(tmp_path: Path, llama: Path) -> None:
    good = request("r0", CHAT, messages=MESSAGES, max_tokens=2)
    bad = [{**good, "custom_id": 5}, {**good, "url": EMBEDDINGS}, {**good, "body": None}, {**good, "method": "GET"}]

    rows, result = answered(tmp_path, llama, [good, *bad])

    assert [row["response"] is None for row in rows] == [False, True, True, True, True]
    assert [row["error"]["code"] for row in rows[1:]] == ["RECORD_INVALID"] * 4
    assert rows[2]["error"]["where"] == "requests.jsonl line 3"
    assert EMBEDDINGS in rows[2]["error"]["message"]
    assert result.final_metrics["failed_records"] == 4


def test_limits_and_defaults_of_a_service_hold(tmp_path: Path, llama: Path) -> None:
    serving = {"name": "support", "max_output_tokens": 6, "max_context": 40, "defaults": {"temperature": 0}}
    bodies: Rows = [{"seed": 1}, {"seed": 2}, {"max_tokens": 7}, {"messages": [{"role": "user", "content": "n" * 60}]}]
    asked = requests(CHAT, [{"messages": MESSAGES, **body} for body in bodies])

    rows, _ = answered(tmp_path, llama, asked, inference={**section(CHAT), "serving": serving})

    answers = [row["response"] for row in rows]
    assert [each["status_code"] for each in answers] == [200, 200, 400, 400]
    texts = [each["body"]["choices"][0]["message"]["content"] for each in answers[:2]]
    assert texts[0] == texts[1]
    assert all(each["body"]["usage"]["completion_tokens"] <= 6 for each in answers[:2])
    assert answers[3]["body"]["error"]["code"] == "context_length_exceeded"


def test_too_many_refused_requests_end_the_job(tmp_path: Path, llama: Path) -> None:
    asked = requests(CHAT, [{"messages": MESSAGES, "max_tokens": 2}, {"messages": MESSAGES, "top_p": 2}])
    inference = {**section(CHAT), "on_error": {"max_share": 0.1}}

    with pytest.raises(DataInvalid, match=r"requests\.jsonl line 2: INVALID_REQUEST_ERROR top_p must be"):
        answered(tmp_path, llama, asked, inference=inference)


def test_a_model_that_no_request_names_ends_the_job(tmp_path: Path, llama: Path) -> None:
    with pytest.raises(DataInvalid, match="no request is for the model absent"):
        answered(tmp_path, llama, requests(CHAT, CHATS), task={"only_model": "absent"})


def test_an_engine_that_serves_no_requests_is_refused(tmp_path: Path, llama: Path) -> None:
    data = write_lines(tmp_path / "requests.jsonl", requests(CHAT, CHATS))

    with pytest.raises(InvalidConfig, match="answers no requests"):
        run(make_spec(tmp_path, data, section(CHAT), model_path=str(llama)))


@pytest.mark.long
@pytest.mark.parametrize("stop_after", [0, 1, 2])
def test_an_interrupted_job_leaves_the_bytes_of_an_undisturbed_one(
    tmp_path: Path, llama: Path, stop_after: int
) -> None:
    asked = requests(CHAT, [{**body, "seed": None} for body in CHATS] + [{"messages": MESSAGES}] * 2)
    undisturbed = spec_of(tmp_path, llama, asked, "undisturbed")
    run(undisturbed)
    first = spec_of(tmp_path, llama, asked, "first")
    session = RecordingSession(first, stop_after=stop_after)
    stopped = run(first, session)
    second = spec_of(tmp_path, llama, asked, "second", finished_shards=tuple(range(stop_after)))
    output = second.run_dir / "output"
    output.mkdir(parents=True)
    for part in session.parts:
        for path in part.iterdir():
            if path.name != "manifest.json":
                shutil.copy(path, output / path.name)

    finished = run(second)

    assert (stopped.stopped, finished.stopped) == ("pause", None)
    assert contents(output) == contents(undisturbed.run_dir / "output")


def test_ranks_share_the_requests_and_make_the_same_bytes(tmp_path: Path, llama: Path) -> None:
    asked = requests(COMPLETIONS, [{**body, "seed": None} for body in (*TEXTS, *TEXTS)])
    alone = spec_of(tmp_path, llama, asked, "alone")
    run(alone)
    spec = spec_of(tmp_path, llama, asked, "shared", world_size=2)
    claim = spec.run_dir / "work" / "claims" / "0"
    claim.parent.mkdir(parents=True)
    claim.touch()
    BatchTrainer(RunContext(spec, RecordingSession(spec, rank=1))).run()
    claim.unlink()

    run(spec)

    assert contents(spec.run_dir / "output") == contents(alone.run_dir / "output")


def test_an_adapter_answers_as_the_jobs_model(tmp_path: Path, llama: Path) -> None:
    torch.manual_seed(1)
    config = LoraConfig(r=4, target_modules=["q_proj", "v_proj"], init_lora_weights=False, task_type="CAUSAL_LM")
    adapted: Any = get_peft_model(AutoModelForCausalLM.from_pretrained(llama), config)
    for name, parameter in adapted.named_parameters():
        parameter.data *= 3 if "lora_" in name else 1
    adapted.save_pretrained(str(tmp_path / "adapter"))
    merged = adapted.merge_and_unload()
    merged.save_pretrained(str(tmp_path / "merged"))
    for path in llama.glob("tokenizer*"):
        shutil.copy(path, tmp_path / "merged" / path.name)
    asked = requests(COMPLETIONS, [{"prompt": "def get_name", "max_tokens": 8, "temperature": 0}])
    of_adapter = {**section(COMPLETIONS), "model": {"job_id": "job-1", "adapter": True}}

    base, _ = answered(tmp_path, llama, asked)
    whole, _ = answered(tmp_path, tmp_path / "merged", asked, name="merged")
    rows, _ = answered(
        tmp_path, llama, asked, name="adapter", inference=of_adapter, weights_path=str(tmp_path / "adapter")
    )

    texts = [found[0]["response"]["body"]["choices"][0]["text"] for found in (base, whole, rows)]
    assert texts[2] == texts[1] != texts[0]


def test_calls_of_tools_have_the_same_names_again(tmp_path: Path, llama: Path) -> None:
    pytest.importorskip("llguidance")
    parameters = {"type": "object", "properties": {"place": {"enum": ["Bern"]}}, "required": ["place"]}
    tools = [{"type": "function", "function": {"name": "weather", "parameters": parameters}}]
    body = {"messages": MESSAGES, "tools": tools, "tool_choice": "required", "temperature": 0, "n": 2}

    first, second = (answered(tmp_path, llama, requests(CHAT, [body] * 2), name=name)[0] for name in ("one", "two"))

    calls = [
        call
        for row in first
        for choice in row["response"]["body"]["choices"]
        for call in choice["message"].get("tool_calls", ())
    ]
    assert first == second
    assert json.loads(calls[0]["function"]["arguments"]) == {"place": "Bern"}
    assert len({call["id"] for call in calls}) == len(calls) == 4


def _rounded(found: Any) -> Any:
    """Without the last bits, which those who share a batch decide."""
    if isinstance(found, float):
        return round(found, 4)
    if isinstance(found, dict):
        return {name: _rounded(each) for name, each in found.items()}
    return [_rounded(each) for each in found] if isinstance(found, list) else found
