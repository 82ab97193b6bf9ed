"""Exposed URLs of Run:ai's trainings have the gateway's addresses, for those whom the document names alone."""

from pathlib import Path

import pytest

from app.database.engine import Database
from app.domain.errors import Forbidden
from app.models import Job
from app.security.permissions import Role
from app.services.access import api_keys
from app.services.interactive import ports
from tests.integration.compat.test_runai import BASE, BODY, TRAININGS, said
from tests.systems.apps import Api

PORTS = "http://jobs.localhost:8001"


@pytest.fixture
def served(database: Database, tmp_path: Path) -> Api:
    """An installation whose gateway serves ports of jobs."""
    return Api(database, tmp_path, TRAINYARD_GATEWAY_PORTS_URL=PORTS)


def test_exposed_url_is_filled_in_and_names_who_may_open_it(served: Api) -> None:
    api = served
    ada, bob = (api.make_key(Role.USER, name=name) for name in ("ada", "bob"))
    urls = [{"container": 8080, "name": "tool", "authorizedUsers": ["bob"], "toolType": "jupyter"}]
    others = [{"container": 5432, "name": "database"}]
    author = api.make_key(Role.USER, name="author")

    answered = api.post(
        TRAININGS, {**BODY, "spec": {"command": "true", "exposedUrls": urls, "ports": others}}, key=author
    )

    made = said(answered, 202)
    native = f"job-{made['workloadId']}"
    address = f"{PORTS}/jobs/{native}/ports/tool/"
    assert answered.headers.getlist("Warning") == []
    assert made["spec"]["exposedUrls"] == [{**urls[0], "url": address}]
    assert said(api.call("GET", f"{TRAININGS}/{made['workloadId']}")) == made
    assert said(api.call("GET", f"{BASE}/workloads/{made['workloadId']}"))["urls"] == [address]
    assert [each["urls"] for each in said(api.call("GET", f"{BASE}/workloads"))["workloads"]] == [[address]]
    listed = api.get(f"/v1/jobs/{native}/ports", key=bob)
    assert [(each["name"], each["port"], each["protocol"]) for each in listed["ports"]] == [
        ("tool", 8080, "http"),
        ("database", 5432, "tcp"),
    ]
    plane = api.app.extensions["trainyard"].plane
    for key in (bob, author):
        assert ports.by_caller(plane, api_keys.authenticate(api.db, key), native, "tool").port.port == 8080
    with pytest.raises(Forbidden):
        ports.by_caller(plane, api_keys.authenticate(api.db, ada), native, "tool")
    # What was read can be sent again.
    again = said(api.post(TRAININGS, {**BODY, "name": "again", "spec": made["spec"]}, key=author), 202)
    fresh = address.replace(made["workloadId"], again["workloadId"])
    assert again["spec"]["exposedUrls"][0]["url"] == fresh


def test_groups_without_an_identity_provider_are_refused_alone(served: Api) -> None:
    urls = [{"container": 8080, "authorizedGroups": ["lab"]}]

    refused = said(served.post(TRAININGS, {**BODY, "spec": {"command": "true", "exposedUrls": urls}}), 400)

    assert refused["complianceIssues"][0]["field"] == "spec.exposedUrls.0.authorizedGroups"
    with served.db.read() as session:
        assert session.query(Job).count() == 0


def test_rules_of_ports_are_told_in_the_clients_words(served: Api) -> None:
    probe = {"readiness": {"periodSeconds": 9999, "handler": {"httpGet": {"port": 80}}}}

    refused = said(served.post(TRAININGS, {**BODY, "spec": {"command": "true", "probes": probe}}), 400)

    assert refused["complianceIssues"][0]["field"] == "spec.probes.readiness.periodSeconds"
