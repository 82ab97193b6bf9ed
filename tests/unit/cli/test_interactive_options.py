"""What commands that reach jobs read from their options, and what they make of it."""

import json
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from app.cli.client.interactive.forward_command import Forward, ForwardType, RemotePort, target_of
from app.cli.client.interactive.notebook import JUPYTERLAB, document_of
from app.cli.client.interactive.ssh_proxy import reached
from app.cli.client.interactive.terminal import Disconnected, Escapes
from app.cli.main import main
from tests.doubles.scripted_server import ScriptedServer, failure, success
from trainyard.client import Client

JOB = "job-01a228a5-b1d1-7e4c-b4a6-8044a80e7458"
DOCUMENT = {"name": "a", "interactive_config": {"ports": [{"name": "web", "port": 80}, {"name": "db", "port": 5432}]}}


@pytest.mark.parametrize(
    ("typed", "sent"),
    [
        ([b"a~.b"], b"a~.b"),
        ([b"~~."], b"~."),
        ([b"~", b"x"], b"~x"),
        ([b"\r", b"~", b"~"], b"\r~"),
        ([b"\r~\r"], b"\r~\r"),
        ([b"x\n~~\n~~"], b"x\n~\n~"),
    ],
)
def test_only_a_tilde_at_the_beginning_of_a_line_is_special(typed: list[bytes], sent: bytes) -> None:
    escapes = Escapes()

    assert b"".join(escapes.pass_on(data) for data in typed) == sent


@pytest.mark.parametrize("typed", [[b"~."], [b"~", b"."], [b"ls\r~."], [b"ls\n", b"~", b"."], [b"\r~\r~."]])
def test_tilde_and_dot_leave(typed: list[bytes]) -> None:
    escapes = Escapes()

    for data in typed[:-1]:
        escapes.pass_on(data)
    with pytest.raises(Disconnected, match="you left"):
        escapes.pass_on(typed[-1])


@pytest.mark.parametrize(
    ("text", "forward"),
    [
        ("8080:8888", Forward(8080, "8888")),
        ("8888", Forward(None, "8888")),
        (":8888", Forward(0, "8888")),
        ("0:8888", Forward(0, "8888")),
        ("8080:web", Forward(8080, "web")),
        ("web-ui", Forward(None, "web-ui")),
    ],
)
def test_ports_are_read(text: str, forward: Forward) -> None:
    assert ForwardType().convert(text, None, None) == forward


@pytest.mark.parametrize("text", ["", ":", "8080:", "8080:0", "0", "65536", "70000:80", "1:2:3", "a:80", "Web", "٨٠"])
def test_what_is_no_port_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter):
        ForwardType().convert(text, None, None)


@pytest.mark.parametrize(
    ("given", "asked", "place"),
    [
        ({"role": None, "index": 0}, {"rank": 0}, {"rank": 0}),
        ({}, {"rank": 3}, {"rank": 3}),
        ({"role": "web", "index": 2}, {"rank": 0}, {"rank": 0, "role": "web", "index": 2}),
        ({"role": "web", "index": 2}, {"rank": 5}, {"rank": 5}),
        ({"role": "web", "index": 2}, {"rank": 0, "role": "b", "index": 0}, {"rank": 0, "role": "b", "index": 0}),
    ],
)
def test_a_named_port_is_that_of_its_role_unless_a_place_is_given(
    given: dict[str, Any], asked: dict[str, Any], place: dict[str, Any]
) -> None:
    port: Any = {"name": "web", "port": 80, **given}

    assert target_of(port, asked) == RemotePort(80, place)


RL = success({"job_id": JOB, "status": "TRAINING", "tasks": [{"role": "trainer"}, {"role": "rank"}]})
ONE_ROLE = success({"job_id": JOB, "status": "TRAINING"})
LISTED = success({"jobs": [{"job_id": JOB, "status": "TRAINING"}], "total_count": 1})
NOTHING = success({"jobs": [], "total_count": 0})


@pytest.mark.parametrize(
    ("host", "asked", "answers", "place"),
    [
        (JOB, {"rank": 3}, [], {"rank": 3}),
        (f"trainer-1.{JOB}", {"rank": 2}, [RL], {"rank": 2, "role": "trainer", "index": 1}),
        (f"rank-1.{JOB}", {"rank": 0}, [RL], {"rank": 0, "role": "rank", "index": 1}),
        (f"rank-8.{JOB}", {"rank": 0}, [ONE_ROLE], {"rank": 8}),
        ("trainer-0.v1.5", {"rank": 0}, [NOTHING, LISTED, RL], {"rank": 0, "role": "trainer", "index": 0}),
        ("llama-3.1", {"rank": 0}, [LISTED], {"rank": 0}),
    ],
)
def test_a_host_of_ssh_names_a_job_and_a_place_in_it(
    server: ScriptedServer, host: str, asked: dict[str, Any], answers: list[Any], place: dict[str, Any]
) -> None:
    server.script(*answers)

    assert reached(Client(server.url, "key"), host, asked) == (JOB, place)


@pytest.mark.parametrize(
    ("host", "asked"),
    [
        (f"rank-8.{JOB}", {"rank": 1}),
        (f"rank-8.{JOB}", {"rank": 0, "role": "trainer", "index": 0}),
        (f"trainer-0.{JOB}", {"rank": 0, "role": "trainer", "index": 1}),
    ],
)
def test_two_places_are_refused(server: ScriptedServer, host: str, asked: dict[str, Any]) -> None:
    server.script(ONE_ROLE)

    with pytest.raises(click.UsageError, match="already"):
        reached(Client(server.url, "key"), host, asked)


def submitted(server: ScriptedServer, folder: Path, *options: str) -> Any:
    (folder / "job.json").write_text(json.dumps(DOCUMENT))
    server.script(success({"job_id": "job-1", "status": "PENDING", "warnings": []}, 201))
    answer = CliRunner().invoke(main, ["submit", str(folder / "job.json"), *options])
    assert answer.exit_code == 0, answer.output
    return json.loads(server.seen[0][3])


def test_submit_adds_ports_and_replaces_those_of_the_same_name(server: ScriptedServer, tmp_path: Path) -> None:
    sent = submitted(server, tmp_path, "--port", "web=7860", "--port", "raw=9/tcp", "--on-failure", "keep:30m")

    assert sent["interactive_config"] == {
        "ports": [
            {"name": "db", "port": 5432},
            {"name": "web", "port": 7860},
            {"name": "raw", "port": 9, "protocol": "tcp"},
        ],
        "keep_on_failure_seconds": 1800,
    }


def test_submit_leaves_the_document_alone_without_them(server: ScriptedServer, tmp_path: Path) -> None:
    assert submitted(server, tmp_path) == DOCUMENT


@pytest.mark.parametrize(
    "options",
    [
        ["--port", "8080"],
        ["--port", "web="],
        ["--port", "We=80"],
        ["--port", "a--b=80"],
        ["--port", "web=80/udp"],
        ["--on-failure", "keep"],
        ["--on-failure", "keep:30"],
        ["--on-failure", "30m"],
    ],
)
def test_options_that_mean_nothing_are_refused(server: ScriptedServer, tmp_path: Path, options: list[str]) -> None:
    (tmp_path / "job.json").write_text("{}")
    answer = CliRunner().invoke(main, ["submit", str(tmp_path / "job.json"), *options])

    assert (answer.exit_code, server.seen) == (2, [])
    assert "write" in answer.stderr


def notebook(**options: Any) -> dict[str, Any]:
    return document_of(**{"packages": None, "image": "", "gpus": 0, "hours": 8.0, "name": "n", "file": None, **options})


def test_a_notebook_is_a_job_that_waits_beside_jupyterlab(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("# mine\ntorch>=2  # with CUDA\n\npandas\n")
    made = notebook(packages=tmp_path / "requirements.txt", gpus=2, hours=0.5)

    assert made["training_config"]["packages"] == {"requirements": ["torch>=2", "pandas", JUPYTERLAB]}
    assert made["training_config"]["framework"]["type"] == "CUSTOM"
    assert made["resource_config"] == {"gpu_count": 2, "device_type": "cuda"}
    assert made["scheduling_config"] == {"max_runtime_seconds": 1800}
    assert made["interactive_config"] == {"notebook": True}


def test_a_notebook_takes_an_image_or_a_document(tmp_path: Path) -> None:
    assert notebook(image="some/image:1")["resource_config"] == {
        "image": {"reference": "some/image:1"},
        "device_type": "cpu",
    }
    (tmp_path / "job.json").write_text(
        '{"name": "mine", "training_config": {"packages": {"requirements": ["jupyterlab==4.4"]}}}'
    )
    made = notebook(file=tmp_path / "job.json")

    assert (made["name"], made["training_config"]["packages"]) == ("mine", {"requirements": ["jupyterlab==4.4"]})
    with pytest.raises(click.UsageError, match="exclude each other"):
        notebook(image="some/image:1", packages=tmp_path / "job.json")


def test_a_notebook_that_is_closed_is_not_waited_for(server: ScriptedServer) -> None:
    closed = {"name": "notebook", "url": "http://jobs.localhost/", "may_open": False}
    server.script(
        success({"ports": [closed]}), failure(403, {"code": "FORBIDDEN", "message": "what people run is recorded"})
    )

    answer = CliRunner().invoke(main, ["notebook", JOB])

    assert answer.exit_code == 1
    assert "what people run is recorded" in answer.stderr
    assert f"trainyard notebook {JOB} --stop" in answer.stderr


def test_a_notebook_whose_packages_cannot_be_had_says_the_way_out(server: ScriptedServer) -> None:
    why = "training_config.packages: https://pypi.org/simple can't be reached"
    failed = {"job_id": JOB, "status": "FAILED", "error_message": why}
    listed = {"name": "notebook", "url": "http://jobs.localhost/", "may_open": True}
    server.script(success({"ports": [listed]}), success(failed))

    answer = CliRunner().invoke(main, ["notebook", JOB])

    assert answer.exit_code == 1
    assert why in answer.stderr
    assert "--image" in answer.stderr


def test_stop_needs_a_job(server: ScriptedServer) -> None:
    answer = CliRunner().invoke(main, ["notebook", "--stop"])

    assert (answer.exit_code, server.seen) == (2, [])
