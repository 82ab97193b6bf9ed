"""`trainyard serve`, `services`, `chat` and `usage`, against a small real HTTP server."""

import json
import threading
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from app.cli.client import watch as watching
from app.cli.client.serving import chat as chatting
from app.cli.main import main
from tests.builders.service_answers import CREATED, SERVICE_ID, page, replica, service
from tests.doubles.scripted_server import Answer, ScriptedServer, failure, success


@pytest.fixture
def server(server: ScriptedServer, monkeypatch: pytest.MonkeyPatch) -> ScriptedServer:
    monkeypatch.setattr(watching, "POLL_SECONDS", 0.01)
    return server


def run(*arguments: str, **options: Any) -> Result:
    return CliRunner().invoke(main, list(arguments), **options)


def sent(server: ScriptedServer, number: int = 0) -> tuple[str, str, Any]:
    method, path, _, body = server.seen[number]
    return method, path, json.loads(body) if body else None


def chunks(*texts: str, end: str = "data: [DONE]\n\n") -> Answer:
    frames = [f"data: {json.dumps({'choices': [{'delta': {'content': text}}]})}\n\n" for text in texts]
    body = ": loading 62 %\n\n" + "".join(frames) + end
    return lambda handler: handler.reply(200, body.encode(), "text/event-stream")


# ---- serve


def test_serve_waits_until_it_answers_and_prints_a_request(server: ScriptedServer) -> None:
    starting = {"answering": 0, "pending_reason": "waits for 1 h100; free: 0"}
    server.script(success(CREATED, 201), success(service(**starting)), success(service(**starting)), success(service()))

    answer = run("serve", "some/model", "--name", "support", "--resource", "gpu_count=2")

    document = {"name": "support", "model": {"model_uri": "some/model"}, "resource_config": {"gpu_count": 2}}
    assert sent(server) == ("POST", "/v1/services", {**document, "replicas": {"min": 1, "max": 1}})
    assert answer.exit_code == 0, answer.output
    assert f"support {SERVICE_ID}\n" in answer.stdout
    assert f"{server.url}/v1/chat/completions" in answer.stdout
    assert "trainyard chat support" in answer.stdout
    assert answer.stderr.count("waits for 1 h100; free: 0") == 1
    assert "Warning: x: no effect" in answer.stderr


def test_serve_gives_up_after_failures_and_says_why(server: ScriptedServer) -> None:
    failing = service(answering=0, failures=3, pending_reason="OUT_OF_MEMORY: the model needs 80 GB")
    server.script(success(CREATED, 201), success(failing))

    answer = run("serve", "some/model", "--name", "support")

    assert answer.exit_code == 3
    assert "does not answer after 3 failures: OUT_OF_MEMORY: the model needs 80 GB" in answer.stderr


def test_serve_of_a_file_with_options(server: ScriptedServer, tmp_path: Path) -> None:
    document = {"name": "one", "model": {"job_id": "job-1"}, "replicas": {"min": 0, "max": 4, "idle_seconds": 60}}
    (tmp_path / "service.json").write_text(json.dumps(document))
    server.script(success(CREATED, 201), success(service(answering=0)))

    answer = run("serve", "--file", str(tmp_path / "service.json"), "--name", "two", "--max", "9", "--json")

    assert sent(server)[2] == {**document, "name": "two", "replicas": {"min": 0, "max": 9, "idle_seconds": 60}}
    # With min 0 there is nothing to wait for: the first request starts a replica.
    assert json.loads(answer.stdout)["service_id"] == SERVICE_ID
    assert (answer.exit_code, len(server.seen)) == (0, 2)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--name", "x"], "name a MODEL"),
        (["some/model"], "name the service with --name"),
        (["some/model", "--name", "Not A Name"], "is not a name of a service"),
    ],
)
def test_serve_refuses_what_names_nothing(server: ScriptedServer, arguments: list[str], problem: str) -> None:
    answer = run("serve", *arguments)

    assert answer.exit_code == 2
    assert problem in answer.stderr
    assert server.seen == []


def test_a_refusal_names_the_field(server: ScriptedServer) -> None:
    server.script(failure(409, {"code": "CONFLICT", "message": "the name is taken", "details": [{"field": "name"}]}))

    answer = run("serve", "some/model", "--name", "support", "--json")

    assert answer.exit_code == 1
    assert json.loads(answer.stderr)["error"] == {
        "status": 409,
        "code": "CONFLICT",
        "message": "the name is taken",
        "details": [{"field": "name"}],
    }


# ---- services


def test_services_are_listed_with_their_load(server: ScriptedServer) -> None:
    server.script(success(page("services", service())))

    answer = run("services", "list", "--status", "active")

    assert server.seen[0][1] == "/v1/services?status=ACTIVE&page_size=100"
    shown = " ".join(answer.stdout.split())
    assert "support job-1@ckpt-1 generate ACTIVE 1 of 0–4, 1 starting 7 0 1,240 180 ms 5" in shown


def test_no_services_says_how_to_start_one(server: ScriptedServer) -> None:
    server.script(success(page("services")))

    assert "trainyard serve" in run("services", "list").stdout


def test_show_lists_live_replicas(server: ScriptedServer) -> None:
    ended = replica(number=2, job_id="job-6", finished_at="2026-05-17T10:00:00.000Z", status="COMPLETED", answers=False)
    server.script(success(service()), success(page("replicas", replica(is_draining=True), ended)))

    answer = run("services", "show", "support")

    assert [seen[1] for seen in server.seen] == [
        "/v1/services/support",
        f"/v1/services/{SERVICE_ID}/replicas?page_size=100",
    ]
    assert "draining" in answer.stdout
    assert "job-6" not in answer.stdout


def test_scale_changes_only_what_is_named(server: ScriptedServer) -> None:
    server.script(success(service()))

    answer = run("services", "scale", "support", "--max", "8")

    assert sent(server) == ("PATCH", "/v1/services/support", {"replicas": {"max": 8}})
    assert answer.stdout == "support 1 of 0–4, 1 starting\n"
    assert run("services", "scale", "support").exit_code == 2


@pytest.mark.parametrize("verb", ["pause", "resume"])
def test_verbs_print_the_new_state(server: ScriptedServer, verb: str) -> None:
    server.script(success(service(status="PAUSED")))

    assert run("services", verb, "support").stdout == "support PAUSED\n"
    assert sent(server) == ("POST", f"/v1/services/support/{verb}", {})


def test_delete_and_events(server: ScriptedServer) -> None:
    event = {"id": "evt-1", "at": "2026-05-17T09:30:00.000Z", "type": "service.scaled", "actor": "services"}
    server.script(
        lambda handler: handler.reply(204, b""), success(page("events", {**event, "message": "0 to 1", "data": {}}))
    )

    assert run("services", "delete", "support").stdout == "support is ending\n"
    assert "service.scaled  services  0 to 1" in run("services", "events", "support").stdout
    assert [seen[:2] for seen in server.seen] == [
        ("DELETE", "/v1/services/support"),
        ("GET", "/v1/services/support/events?page_size=100"),
    ]


def test_logs_print_lines(server: ScriptedServer) -> None:
    server.script(success({"lines": [{"line": "loaded"}, {"line": "answers"}]}))

    answer = run("services", "logs", "support", "--replica", "2", "--tail", "5")

    assert (answer.stdout, server.seen[0][1]) == ("loaded\nanswers\n", "/v1/services/support/logs?tail=5&replica=2")


# ---- chat


def test_chat_prints_the_answer_and_keeps_the_conversation(server: ScriptedServer) -> None:
    server.script(chunks("Hel", "lo"), chunks("Bye"))

    answer = run(
        *("chat", "support", "--adapter", "job-2", "-m", "Hi", "-m", "So long"),
        *("--system", "Be brief.", "--seed", "7"),
    )

    assert answer.stdout == "Hello\nBye\n"
    path, body = sent(server, 1)[1:]
    assert path == "/v1/chat/completions"
    assert body == {
        "model": "support/job-2",
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Hi"},
            {"role": "assistant", "content": "Hello"},
            {"role": "user", "content": "So long"},
        ],
        "seed": 7,
        "stream": True,
    }


def test_chat_reads_standard_input_as_one_message(server: ScriptedServer) -> None:
    server.script(chunks("Two lines."))

    answer = run("chat", "support", input="one\ntwo\n")

    assert (answer.stdout, sent(server)[2]["messages"]) == ("Two lines.\n", [{"role": "user", "content": "one\ntwo"}])


@pytest.mark.parametrize(
    ("end", "problem"),
    [
        ('data: {"error": {"message": "the replica was lost", "code": "replica_lost"}}\n\n', "the replica was lost"),
        ("", "ended without its end marker"),
    ],
)
def test_an_answer_that_breaks_off_is_an_error(server: ScriptedServer, end: str, problem: str) -> None:
    server.script(chunks("Hel", end=end))

    answer = run("chat", "support", "-m", "Hi")

    assert answer.exit_code == 1
    assert answer.stdout.startswith("Hel")
    assert problem in answer.stderr


def test_a_refused_chat_says_why(server: ScriptedServer) -> None:
    problem = {"message": "the model 'x' does not exist", "type": "invalid_request_error", "code": "model_not_found"}
    server.script(lambda handler: handler.reply(404, json.dumps({"error": problem}).encode()))

    answer = run("chat", "x", "-m", "Hi")

    assert (answer.exit_code, answer.stderr) == (1, "Error: model_not_found: the model 'x' does not exist\n")


def test_chat_shows_why_there_is_no_answer_yet(server: ScriptedServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chatting, "PATIENCE_SECONDS", 0.1)
    asked = threading.Event()

    def late(handler: Any) -> None:
        asked.wait(10)
        chunks("Hello")(handler)

    def why(handler: Any) -> None:
        success(service(answering=0, pending_reason="waits for 1 h100; free: 0"))(handler)
        threading.Timer(0.05, asked.set).start()

    server.script(late, why, *[success(service(answering=0, pending_reason="waits for 1 h100; free: 0"))] * 20)

    answer = run("chat", "support", "-m", "Hi")

    assert answer.stdout == "Hello\n"
    assert answer.stderr == "waiting for support: waits for 1 h100; free: 0\n"


# ---- usage


def test_usage_is_grouped(server: ScriptedServer) -> None:
    used = {"day": "2026-05-17", "key_id": None, "model": "support", "project": "default"}
    counts = {"requests": 1200, "failures": 1, "prompt_tokens": 50_000, "completion_tokens": 7}
    server.script(success(page("usage", {**used, **counts})))

    answer = run("usage", "--by", "day", "--by", "model", "--since", "2026-05-01")

    assert server.seen[0][1] == "/v1/usage?group=day%2Cmodel&since=2026-05-01&page_size=100"
    assert "2026-05-17  support  1,200     1         50,000         7" in answer.stdout


def test_usage_of_days_in_the_wrong_order_is_refused(server: ScriptedServer) -> None:
    answer = run("usage", "--since", "2026-05-17", "--until", "2026-05-01")

    assert answer.exit_code == 2
    assert "--until 2026-05-01 is before --since 2026-05-17" in answer.stderr
    assert not server.seen
