"""Ports, exposed URLs, readiness and standard input of Run:ai's workloads, both ways."""

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from app.compat.runai.documents.requests import DistributedSchema
from app.compat.runai.from_native import spec_of, training_of, workload_of
from app.compat.runai.owners import Owner
from app.compat.runai.to_native import Native, to_native
from app.domain.errors import BadSpec
from app.domain.lifecycle.states import JobState
from app.http.request_body import validated
from app.schemas.jobs import SubmitJobSchema
from tests.unit.compat.test_runai import CLUSTER, details_of, ignored_fields, translated

SERVED = Owner(7, "Ada", "http://jobs.localhost:8001")


def reached(spec: dict[str, Any]) -> dict[str, Any]:
    """The section of the native document, which the native schema takes."""
    native = translated(spec)
    validated(SubmitJobSchema(), native.document)
    found: dict[str, Any] = native.document.get("interactive_config", {})
    return found


def of_masters(spec: dict[str, Any], master: dict[str, Any]) -> Native:
    body = {"name": "both", "projectId": "default", "clusterId": CLUSTER, "spec": {"command": "true", **spec}}
    asked = validated(DistributedSchema(), {**body, "masterSpec": master})
    return to_native(asked, "both", may_read=lambda _: True, distributed=True)


def test_exposed_urls_are_http_and_other_ports_tcp() -> None:
    found = reached(
        {
            "exposedUrls": [
                {"container": 8080, "name": "board", "authorizedUsers": ["ada"], "toolType": "tensorboard"},
                {"container": 8888, "name": "My Tool"},
                {"container": 9999, "name": "left-out", "exclude": True},
            ],
            "ports": [{"container": 8080, "name": "same"}, {"container": 5432, "name": "database"}],
        }
    )

    assert found == {
        "ports": [
            {"name": "board", "port": 8080, "protocol": "http", "authorized_users": ["ada"]},
            {"name": "port-8888", "port": 8888, "protocol": "http"},
            {"name": "database", "port": 5432, "protocol": "tcp"},
        ]
    }


def test_names_that_no_address_can_have_are_made_of_the_number() -> None:
    names = [
        {"container": 81, "name": "notebook"},
        {"container": 82, "name": "twice"},
        {"container": 83, "name": "twice"},
        {"container": 84, "name": "port-85"},
        {"container": 85},
        {"container": 86, "name": "-"},
    ]

    found = reached({"exposedUrls": names})["ports"]

    assert [each["name"] for each in found] == ["port-81", "twice", "port-83", "port-85", "port-85-2", "port-86"]


@pytest.mark.parametrize(
    ("spec", "field", "why"),
    [
        ({"exposedUrls": [{"container": 80}, {"container": 80}]}, "spec.exposedUrls.1.container", "given twice"),
        ({"ports": [{"container": 80}, {"container": 80}]}, "spec.ports.1.container", "given twice"),
        (
            {"exposedUrls": [{"container": 80}], "ports": [{"container": 80}, {"container": 80}]},
            "spec.ports.1.container",
            "given twice",
        ),
        ({"exposedUrls": [{"container": n} for n in range(1, 18)]}, "spec.exposedUrls.16", "at most 16"),
        (
            {"exposedUrls": [{"container": 80, "authorizationType": "authorizedUsers"}]},
            "spec.exposedUrls.0.authorizedUsers",
            "is required",
        ),
        (
            {"exposedUrls": [{"container": 80, "authorizationType": "authenticatedUsers", "authorizedUsers": ["a"]}]},
            "spec.exposedUrls.0.authorizedUsers",
            "contradicts",
        ),
        (
            {"exposedUrls": [{"container": 80, "authorizedGroups": ["a"]}]},
            "spec.exposedUrls.0.authorizedGroups",
            "identity provider",
        ),
        (
            {"probes": {"readiness": {"handler": {"httpGet": {"port": 80, "path": "a b\r\nHost: x"}}}}},
            "spec.probes.readiness.handler.httpGet.path",
            "ASCII",
        ),
    ],
)
def test_what_cannot_be_reached_as_asked_is_refused(spec: dict[str, Any], field: str, why: str) -> None:
    with pytest.raises(BadSpec, match=why) as refused:
        translated(spec)

    assert refused.value.field == field


def test_groups_are_left_out_where_nobody_knows_them_but_never_widen_who_may_open() -> None:
    native = translated({"exposedUrls": [{"container": 80, "authorizedUsers": ["ada"], "authorizedGroups": ["lab"]}]})

    port = native.document["interactive_config"]["ports"][0]

    assert (port["authorized_users"], "authorized_groups" in port) == (["ada"], False)
    assert ignored_fields(native) == ["spec.exposedUrls.authorizedGroups"]


def test_groups_are_those_of_the_identity_provider() -> None:
    body = {"spec": {"command": "true", "exposedUrls": [{"container": 80, "authorizedGroups": ["lab"]}]}}

    native = to_native(
        {**translated({}).foreign, **body, "name": "a", "clusterId": CLUSTER, "projectId": "x"},
        "a",
        may_read=lambda _: True,
        knows_groups=True,
    )

    assert native.document["interactive_config"]["ports"][0]["authorized_groups"] == ["lab"]


@pytest.mark.parametrize(
    ("asked", "more", "found", "ignored"),
    [
        ({"port": 80}, {}, {"port": 80, "path": "/"}, []),
        (
            {"port": 80, "path": "health", "host": "localhost", "scheme": "HTTP"},
            {},
            {"port": 80, "path": "/health"},
            [],
        ),
        ({"port": 80, "scheme": "HTTPS"}, {}, {"port": 80}, ["handler.httpGet.scheme"]),
        ({"port": 80, "host": "10.0.0.1"}, {}, {"port": 80, "path": "/"}, ["handler.httpGet.host"]),
        (
            {"port": 80},
            {"initialDelaySeconds": 3, "periodSeconds": 2, "timeoutSeconds": 9, "failureThreshold": 4},
            {
                "port": 80,
                "path": "/",
                "initial_delay_seconds": 3,
                "period_seconds": 2,
                "timeout_seconds": 2,
                "failure_threshold": 4,
            },
            ["timeoutSeconds"],
        ),
    ],
)
def test_readiness_is_asked_as_kubernetes_does(
    asked: dict[str, Any], more: dict[str, Any], found: dict[str, Any], ignored: list[str]
) -> None:
    native = translated({"probes": {"readiness": {"handler": {"httpGet": asked}, **more}}})

    validated(SubmitJobSchema(), native.document)

    assert native.document["interactive_config"] == {"readiness_probe": found}
    assert ignored_fields(native) == [f"spec.probes.readiness.{name}" for name in ignored]


def test_ports_of_a_distributed_workload_are_those_of_its_first_rank_where_pods_are_equal() -> None:
    url, probe = {"container": 80, "name": "workers"}, {"readiness": {"handler": {"httpGet": {"port": 80}}}}
    first = {"exposedUrls": [{"container": 80, "name": "first"}], "probes": probe}

    own = of_masters({"exposedUrls": [url], "probes": {"readiness": {**probe["readiness"], "periodSeconds": 5}}}, first)
    same = of_masters({"exposedUrls": [url], "probes": probe}, {"command": "false"})

    assert [each["name"] for each in own.document["interactive_config"]["ports"]] == ["first"]
    assert ignored_fields(own) == ["spec.exposedUrls", "spec.probes.readiness"]
    assert same.document["interactive_config"]["ports"] == [{"name": "workers", "port": 80, "protocol": "http"}]
    assert ignored_fields(same) == []
    shown = training_of(details_of(own), SERVED)
    assert shown["masterSpec"]["exposedUrls"][0]["url"].endswith("/ports/first/")
    assert "url" not in shown["spec"]["exposedUrls"][0]


def test_a_master_that_differs_and_the_first_worker_have_ports_of_their_own() -> None:
    url = {"container": 80, "name": "board"}
    workers = {"exposedUrls": [url], "ports": [{"container": 80, "name": "same"}, {"container": 9}], "numWorkers": 2}

    native = of_masters(workers, {"command": "lead", "exposedUrls": [url], "ports": [{"container": 9}]})

    validated(SubmitJobSchema(), native.document)
    of_worker = {"role": "worker", "index": 0}
    assert native.document["interactive_config"]["ports"] == [
        {"name": "board", "port": 80, "protocol": "http"},
        {"name": "port-80", "port": 80, "protocol": "http", **of_worker},
        {"name": "port-9", "port": 9, "protocol": "tcp"},
        {"name": "port-9-2", "port": 9, "protocol": "tcp", **of_worker},
    ]
    assert ignored_fields(native) == []
    shown = training_of(details_of(native), SERVED)
    assert shown["masterSpec"]["exposedUrls"][0]["url"].endswith("/ports/board/")
    assert shown["spec"]["exposedUrls"][0]["url"].endswith("/ports/port-80/")


def test_both_lists_of_workers_stay_theirs_if_the_master_has_either() -> None:
    url, port = {"container": 80, "name": "board"}, {"container": 9, "name": "raw"}

    native = of_masters({"exposedUrls": [url], "numWorkers": 2}, {"command": "lead", "ports": [port]})

    assert native.document["interactive_config"]["ports"] == [
        {"name": "board", "port": 80, "protocol": "http", "role": "worker", "index": 0},
        {"name": "raw", "port": 9, "protocol": "tcp"},
    ]
    assert ignored_fields(native) == []
    shown = training_of(details_of(native), SERVED)
    assert shown["spec"]["exposedUrls"][0]["url"].endswith("/ports/board/")


@pytest.mark.parametrize("more", [{}, {"exclude": True, "container": 81}])
def test_list_that_the_master_has_too_is_not_said_to_be_left_out(more: dict[str, Any]) -> None:
    """Nor is one whose items are all excluded."""
    native = of_masters({"exposedUrls": [{"container": 80, **more}]}, {"exposedUrls": [{"container": 80}]})

    assert [each["port"] for each in native.document["interactive_config"]["ports"]] == [80]
    assert ignored_fields(native) == []


def test_answers_have_the_addresses_of_the_gateway() -> None:
    urls: list[dict[str, Any]] = [
        {"container": 80, "name": "tool", "authorizedUsers": ["a"]},
        {"container": 81, "exclude": True},
    ]
    found = details_of(translated({"exposedUrls": urls, "ports": [{"container": 82}]}))

    address = f"http://jobs.localhost:8001/jobs/{found.job.id}/ports/tool/"

    shown = training_of(found, SERVED)["spec"]["exposedUrls"]
    assert [each.get("url") for each in shown] == [address, None]
    assert [{name: each[name] for name in each if name != "url"} for each in shown] == [urls[0], urls[1]]
    assert workload_of(found, SERVED)["urls"] == [address]
    assert workload_of(found, Owner(7, "Ada"))["urls"] == []
    found.job.status = JobState.COMPLETED
    assert workload_of(found, SERVED)["urls"] == []


def test_jobs_of_other_apis_are_shown_with_their_ports_and_probes() -> None:
    asked = {
        "exposedUrls": [{"container": 80, "name": "tool", "authorizedUsers": ["a"]}],
        "ports": [{"container": 82, "name": "database"}],
        "probes": {"readiness": {"periodSeconds": 7, "handler": {"httpGet": {"port": 80, "path": "/health"}}}},
    }
    native = translated(asked)

    again = translated(spec_of(details_of(native)))

    assert again.document["interactive_config"]["ports"] == native.document["interactive_config"]["ports"]
    assert again.document["interactive_config"]["readiness_probe"] == {
        "port": 80,
        "path": "/health",
        "initial_delay_seconds": 0,
        "period_seconds": 7,
        "timeout_seconds": 1,
        "success_threshold": 1,
        "failure_threshold": 3,
    }


@pytest.mark.parametrize(("ready", "status"), [(None, "Unknown"), (True, "True"), (False, "False")])
def test_readiness_is_a_condition_of_a_running_workload(*, ready: bool | None, status: str) -> None:
    probe = {"probes": {"readiness": {"handler": {"httpGet": {"port": 80}}}}}
    running, plain = details_of(translated(probe), ready=ready), details_of(translated({}))
    running.job.status = plain.job.status = JobState.TRAINING

    assert [(each["type"], each["status"]) for each in workload_of(running, SERVED)["conditions"]] == [
        ("Ready", status)
    ]
    assert workload_of(plain, SERVED)["conditions"] == []


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A command that reads until its input ends, with an input that has ended already."""
    native = translated({"command": "sh", "args": "-c 'echo begun; cat; echo ended; exit 3'", "stdin": True})
    words = native.document["training_config"]["framework"]["custom_command"]
    with subprocess.Popen(
        words,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        env={"TMPDIR": str(tmp_path), "PATH": os.environ["PATH"]},
        start_new_session=True,
    ) as begun:
        yield begun
        os.killpg(begun.pid, signal.SIGKILL)


def test_standard_input_stays_open_on_request(reader: subprocess.Popen[str], tmp_path: Path) -> None:
    assert reader.stdout is not None
    assert reader.stdout.readline() == "begun\n"
    with pytest.raises(subprocess.TimeoutExpired):
        reader.wait(0.2)
    assert list(tmp_path.iterdir()) == []


def test_input_of_an_images_own_program_is_not_ours() -> None:
    body = {"name": "a", "projectId": "x", "clusterId": CLUSTER, "spec": {"image": "busybox", "stdin": True}}

    native = to_native(body, "a", may_read=lambda _: True, uses_images=True)

    assert "spec.stdin" in ignored_fields(native)
