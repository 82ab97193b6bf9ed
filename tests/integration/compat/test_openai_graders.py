"""Graders by OpenAI's own client: validated, run on samples, and given to fine-tuning jobs."""

import contextlib
import copy
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import openai
import pytest

from app.compat.openai.fine_tuning import grader_routes
from app.database.engine import Database
from app.domain.ids import new_id
from app.models import File, Inspection
from app.security.permissions import Role
from app.services.requests.wakeups import Dispatcher
from config.settings import load_settings
from tasks.background.preflight import PreflightRunner
from tasks.celery_app import Runtime
from tests.doubles.scripted_server import Answer, Handler, running
from tests.integration.compat.openai_client import client_of
from tests.systems.apps import Api
from tests.systems.gateways import GatewaySite

# As OpenAI's guide of graders and its reference print them, without what is about other models.
STRING_CHECK: Any = {
    "type": "string_check",
    "name": "Example string check grader",
    "input": "{{sample.output_text}}",
    "reference": "{{item.label}}",
    "operation": "eq",
}
TEXT_SIMILARITY: Any = {
    "type": "text_similarity",
    "name": "Example text similarity grader",
    "input": "{{sample.output_text}}",
    "reference": "{{item.reference}}",
    "evaluation_metric": "fuzzy_match",
}
PYTHON: Any = {
    "type": "python",
    "name": "Example python grader",
    "image_tag": "2025-05-08",
    "source": """
from rapidfuzz import fuzz, utils

def grade(sample, item) -> float:
    output_text = sample["output_text"]
    reference_answer = item["reference_answer"]
    return fuzz.WRatio(output_text, reference_answer, processor=utils.default_process) / 100.0
""",
}
SCORE_MODEL: Any = {
    "type": "score_model",
    "name": "Example score model grader",
    "input": [
        {
            "role": "user",
            "content": "Score how close the reference answer is to the model answer. Score 1.0 if they are the same "
            "and 0.0 if they are different. Return just a floating point score\n\nReference answer: "
            "{{item.reference_answer}}\n\nModel answer: {{sample.output_text}}",
        }
    ],
    "model": "support",
    "sampling_params": {"temperature": 1, "top_p": 1, "seed": 42},
}
LABEL_MODEL: Any = {
    "type": "label_model",
    "name": "First label grader",
    "model": "support",
    "input": [{"role": "system", "content": [{"type": "input_text", "text": "Classify: {{sample.output_text}}"}]}],
    "labels": ["good", "bad"],
    "passing_labels": ["good"],
}
MULTI: Any = {
    "type": "multi",
    "name": "example multi grader",
    "graders": {
        "name": {**TEXT_SIMILARITY, "input": "{{sample.output_json.name}}", "reference": "{{item.name}}"},
        "email": {**STRING_CHECK, "input": "{{sample.output_json.email}}", "reference": "{{item.email}}"},
    },
    "calculate_output": "(name + email) / 2",
}
EXAMPLES = (STRING_CHECK, TEXT_SIMILARITY, PYTHON, SCORE_MODEL, LABEL_MODEL, MULTI)


@pytest.fixture
def client(api: Api, monkeypatch: pytest.MonkeyPatch) -> openai.OpenAI:
    return client_of(api, monkeypatch, max_retries=0)[0]


@contextmanager
def coordinator(db: Database, folder: Path) -> Iterator[None]:
    """Runs graders; it is woken all the time, elsewhere by changes in the database."""
    settings = load_settings({"TRAINYARD_DATA_DIR": str(folder / "data"), "TRAINYARD_PREFLIGHT_ENABLED": "false"})
    runner = PreflightRunner(Runtime(settings, db, Dispatcher(settings)), "coordinator")
    ended = threading.Event()

    def wake() -> None:
        while not ended.wait(0.1):
            runner.wake()

    waking = threading.Thread(target=wake)
    runner.start()
    waking.start()
    try:
        yield
    finally:
        ended.set()
        waking.join()
        runner.stop()
        runner.join()


@pytest.mark.parametrize("grader", EXAMPLES, ids=lambda grader: grader["type"])
def test_examples_of_the_guide_are_valid(client: openai.OpenAI, grader: Any) -> None:
    answer = client.fine_tuning.alpha.graders.with_raw_response.validate(grader=grader)

    found = answer.parse().grader
    assert found is not None
    assert found.type == grader["type"]
    assert json.loads(answer.content) == {"grader": grader}


@pytest.mark.parametrize(
    ("grader", "changes", "param"),
    [
        (STRING_CHECK, {"type": "none"}, "grader.type"),
        (STRING_CHECK, {"operation": "is"}, "grader.operation"),
        (STRING_CHECK, {"reference": "{{item}}"}, "grader.reference"),
        (TEXT_SIMILARITY, {"evaluation_metric": "meteor"}, "grader.evaluation_metric"),
        (TEXT_SIMILARITY, {"evaluation_metric": "cosine"}, "grader.evaluation_metric"),
        (PYTHON, {"source": "def grade(sample item):"}, "grader.source"),
        (PYTHON, {"source": "x = 1"}, "grader.source"),
        (SCORE_MODEL, {"range": [1, 0]}, "grader.range"),
        (LABEL_MODEL, {"passing_labels": ["fine"]}, "grader.passing_labels"),
        (MULTI, {"calculate_output": "name + phone"}, "grader.calculate_output"),
        (MULTI, {"graders": {"name": MULTI}}, "grader.graders.name.type"),
    ],
)
def test_grader_that_is_none_is_refused_with_its_field(
    client: openai.OpenAI, grader: Any, changes: dict[str, Any], param: str
) -> None:
    broken = {**copy.deepcopy(grader), **changes}
    calls: Any = client.fine_tuning.alpha.graders
    for refused in (lambda: calls.validate(grader=broken), lambda: calls.run(grader=broken, model_sample="a")):
        with pytest.raises((openai.BadRequestError, openai.InternalServerError)) as raised:
            refused()
        assert raised.value.param == param
        assert raised.value.response.headers.get("x-should-retry", "false") == "false"


def test_grader_is_run_on_a_sample(client: openai.OpenAI) -> None:
    graders = client.fine_tuning.alpha.graders

    right = graders.run(grader=STRING_CHECK, model_sample="Paris", item={"label": "Paris"})
    wrong = graders.run(grader=STRING_CHECK, model_sample="Rome", item={"label": "Paris"})
    alike = graders.run(grader=TEXT_SIMILARITY, model_sample="fuzzy", item={"reference": "fuzzy!"})

    assert (right.reward, wrong.reward, alike.reward) == (1.0, 0.0, 1.0)
    assert (right.metadata.name, right.metadata.type) == (STRING_CHECK["name"], "string_check")
    assert not any(value for value in right.metadata.errors.to_dict().values())
    assert right.metadata.token_usage is None
    assert right.sub_rewards == {}


def test_multi_grader_says_what_its_parts_gave(client: openai.OpenAI) -> None:
    graders, item = client.fine_tuning.alpha.graders, {"name": "Ann", "email": "a@b.c"}

    found = graders.run(grader=MULTI, model_sample='{"name": "Ann", "email": "x"}', item=item)
    lacking = graders.run(grader=MULTI, model_sample="no JSON", item=item)

    assert found.reward == 0.5
    assert found.sub_rewards == {"name": 1.0, "email": 0.0}
    assert (lacking.reward, lacking.metadata.errors.sample_parse_error) == (0.0, True)
    assert lacking.sub_rewards == {"name": 0.0, "email": 0.0}


@pytest.mark.long
def test_python_grader_is_run_by_a_coordinator(client: openai.OpenAI, api: Api, tmp_path: Path) -> None:
    graders, item = client.fine_tuning.alpha.graders, {"reference_answer": "fuzzy wuzzy had no hair"}
    with coordinator(api.db, tmp_path):
        found = graders.run(grader=PYTHON, model_sample="fuzzy wuzzy was a bear", item=item)
        failed = graders.run(grader=PYTHON, model_sample="fuzzy wuzzy was a bear", item={})

    assert 0 < found.reward < 1
    assert found.metadata.execution_time > 0
    errors = failed.metadata.errors
    assert (failed.reward, errors.python_grader_runtime_error) == (0.0, True)
    assert errors.python_grader_runtime_error_details == "line 6: KeyError: 'reference_answer'"


def test_python_grader_without_a_coordinator_is_an_error_of_the_server(
    client: openai.OpenAI, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grader_routes, "MOST_PYTHON_SECONDS", 0.5)

    found = client.fine_tuning.alpha.graders.run(grader=PYTHON, model_sample="a", item={})

    errors = found.metadata.errors
    assert (errors.python_grader_server_error, errors.python_grader_server_error_type) == (True, "unavailable")
    assert not errors.python_grader_runtime_error
    assert found.to_dict()["trainyard"] == {
        "errors": [
            {
                "grader": PYTHON["name"],
                "kind": "python_grader_server_error",
                "message": "no coordinator has answered within 0 s",
            }
        ]
    }
    with api.db.read() as session:
        assert session.query(Inspection).count() == 0


def test_templates_of_a_large_record_are_refused(client: openai.OpenAI) -> None:
    grader: Any = {**TEXT_SIMILARITY, "reference": "{{item.reference}}" * 100}
    with pytest.raises(openai.BadRequestError) as raised:
        client.fine_tuning.alpha.graders.run(grader=grader, model_sample="a", item={"reference": "b" * 10_000})

    assert raised.value.param == "item"


@pytest.fixture
def site(database: Database, tmp_path: Path) -> Iterator[GatewaySite]:
    """A gateway with a service whose model repeats what follows `say`."""
    (tmp_path / "gateway").mkdir()
    found = GatewaySite(database, tmp_path / "gateway")
    _, place = found.engine("support")
    found.replica(found.service("support"), place)
    yield found.serve()
    found.close()


@pytest.fixture
def asking(
    site: GatewaySite, database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[openai.OpenAI]:
    """A client of an API that hands requests on to the gateway."""
    (tmp_path / "api").mkdir()
    api = Api(database, tmp_path / "api", TRAINYARD_GATEWAY_URL=f"http://127.0.0.1:{site.port}")
    yield client_of(api, monkeypatch, api_key=api.make_key(Role.USER), max_retries=0)[0]
    api.close()


def saying(grader: Any, text: str, **changes: Any) -> Any:
    return {**grader, "input": [{"role": "user", "content": f"say {text}"}], **changes}


def test_graders_ask_models_with_the_key_of_the_caller(asking: openai.OpenAI) -> None:
    graders = asking.fine_tuning.alpha.graders

    scored = graders.run(grader=saying(SCORE_MODEL, '{"result":{{item.score}}}'), model_sample="a", item={"score": 0.5})
    labelled: Any = graders.run(grader=saying(LABEL_MODEL, '{"result":"good"}'), model_sample="a")

    assert (scored.reward, labelled.reward) == (0.5, 1.0)
    assert scored.metadata.sampled_model_name == "support"
    used: Any = scored.api_model_grader_token_usage_per_model["support"]
    assert scored.metadata.token_usage == used["total_tokens"] > 0


def test_answers_of_models_that_are_no_grades_are_errors(asking: openai.OpenAI) -> None:
    graders = asking.fine_tuning.alpha.graders

    chatting = graders.run(grader=saying(SCORE_MODEL, "hello"), model_sample="a")
    beyond = graders.run(grader=saying(SCORE_MODEL, '{"result":7}'), model_sample="a")
    unknown = graders.run(grader=saying(SCORE_MODEL, "1", model="no-such-model"), model_sample="a")

    for found in (chatting, beyond):
        assert (found.reward, found.metadata.errors.api_model_grader_parse_error) == (0.0, True)
    errors = unknown.metadata.errors
    assert (errors.other_error, errors.api_model_grader_server_error) == (True, False)
    (said,) = unknown.model_extra["trainyard"]["errors"]  # type: ignore[index]
    assert "no model no-such-model; " in said["message"]


def test_models_of_graders_need_a_gateway(client: openai.OpenAI) -> None:
    found = client.fine_tuning.alpha.graders.run(grader=SCORE_MODEL, model_sample="a", item={"reference_answer": "b"})

    details = str(found.metadata.errors.api_model_grader_server_error_details)
    assert details.startswith("support can't be asked: no gateway answers requests to models here")


def dripping(handler: Handler) -> None:
    """An answer of which a byte comes now and then."""
    handler.send_response(200)
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    with contextlib.suppress(OSError):  # once who asked has gone
        for _ in range(200):
            handler.wfile.write(b" ")
            time.sleep(0.1)


def silent(handler: Handler) -> None:
    """No answer until who asked has gone."""
    handler.connection.settimeout(20)
    handler.rfile.read(1)


@pytest.mark.parametrize("gateway", [dripping, silent])
def test_run_ends_in_time_however_slowly_models_answer(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gateway: Answer
) -> None:
    monkeypatch.setattr(grader_routes, "MOST_SECONDS", 1.0)
    parts = {name: saying(SCORE_MODEL, "1", name=name) for name in ("a", "b", "c")}
    grader: Any = {**MULTI, "graders": parts, "calculate_output": "a + b + c"}
    with running() as server:
        server.script(gateway)
        api = Api(database, tmp_path, TRAINYARD_GATEWAY_URL=server.url)
        client, _ = client_of(api, monkeypatch, max_retries=0)

        found = client.fine_tuning.alpha.graders.run(grader=grader, model_sample="a")

        api.close()
    assert found.metadata.execution_time < 5
    messages = [each["message"] for each in found.to_dict()["trainyard"]["errors"]]  # type: ignore[index]
    assert [message.startswith("support can't be asked: ") for message in messages] == [True, False, False]
    assert messages[1:] == ["support is not asked: the run has taken the 1 s that it may"] * 2


def uploaded(api: Api) -> str:
    """The id of a file with prompts."""
    values = {"filename": "a.jsonl", "purpose": "fine-tune", "size_bytes": 1, "sha256": "0" * 64, "created_by": ""}
    with api.db.write() as session:
        file = File(id=new_id("file"), project="default", status="processed", records=100, shape="messages", **values)
        session.add(file)
        return file.id


@pytest.mark.parametrize("grader", EXAMPLES, ids=lambda grader: grader["type"])
def test_graders_are_those_of_the_job(sqlite_api: Api, monkeypatch: pytest.MonkeyPatch, grader: Any) -> None:
    client, _ = client_of(sqlite_api, monkeypatch, max_retries=0)

    job = client.fine_tuning.jobs.create(
        model="/srv/models/tiny",
        training_file=uploaded(sqlite_api),
        method={"type": "reinforcement", "reinforcement": {"grader": grader}},
    )

    answer = client.fine_tuning.jobs.with_raw_response.retrieve(job.id)
    assert json.loads(answer.content)["method"]["reinforcement"]["grader"] == grader
    training = sqlite_api.get(f"/v1/jobs/job-{job.id.removeprefix('ftjob-')}")["training_config"]
    is_reward = grader["type"] == "string_check"
    assert training.get("grader") == (None if is_reward else grader)
    assert training["hyperparameters"].get("reward") == ("exact:label" if is_reward else None)


def test_grader_is_said_once(sqlite_api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    client, _ = client_of(sqlite_api, monkeypatch, max_retries=0)
    with pytest.raises(openai.BadRequestError) as raised:
        client.fine_tuning.jobs.create(
            model="/srv/models/tiny",
            training_file=uploaded(sqlite_api),
            method={"type": "reinforcement", "reinforcement": {"grader": PYTHON}},
            extra_body={"trainyard": {"training_config": {"hyperparameters": {"reward": "exact"}}}},
        )

    assert raised.value.param == "trainyard.training_config.hyperparameters.reward"
