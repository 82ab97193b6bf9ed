"""What administrators do over HTTP, by the client: labels, lost nodes, devices, egress, shares, models, placements."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from app.domain.lifecycle.states import JobState
from app.models import AuditEntry, StuckDevice
from app.models.base import utc_now
from app.security.permissions import Role
from tests.builders.factories import make_attempt, make_job, make_node, make_project
from tests.systems.apps import Api
from tests.systems.served import Served, serving
from trainyard.client import ApiError, Conflict, Forbidden, InvalidRequest, NotFound


@pytest.fixture
def served(api: Api) -> Iterator[Served]:
    with serving(api) as served:
        yield served


def audited(api: Api, action: str) -> list[str]:
    with api.db.read() as session:
        return [entry.target for entry in session.query(AuditEntry).where(AuditEntry.action == action)]


def test_labels_that_two_administrators_add_at_once_are_all_kept(served: Served) -> None:
    with served.api.db.write() as session:
        make_node(session, "gpu-1")
    names = [f"rack-{number}" for number in range(6)]

    with ThreadPoolExecutor(len(names)) as pool:
        list(pool.map(lambda name: served.client().nodes.change_labels("gpu-1", add=[name]), names))

    client = served.client()
    assert sorted(client.nodes.get("gpu-1")["admin_labels"]) == names
    left = client.nodes.change_labels("gpu-1", add=["fast"], remove=names[1:])
    assert sorted(left["labels"]) == ["fast", "rack-0"]
    with pytest.raises(Conflict, match="not labelled 'rack-9'"):
        client.nodes.change_labels("gpu-1", remove=["rack-9"])


def test_services_that_two_administrators_allow_at_once_are_all_allowed(served: Served) -> None:
    client = served.client()
    client.projects.create("lab")
    names = [f"host-{number}.example.org:443" for number in range(6)]

    with ThreadPoolExecutor(len(names)) as pool:
        list(pool.map(lambda name: served.client().projects.change_egress("lab", add=[name]), names))

    assert sorted(client.projects.get("lab")["egress"]) == names
    assert client.projects.change_egress("lab", remove=names[1:])["egress"] == names[:1]
    with pytest.raises(InvalidRequest, match="at most"):
        client.projects.change_egress("lab", add=[f"h{number}.example.org:443" for number in range(200)])


def test_only_a_lost_node_is_removed(served: Served) -> None:
    with served.api.db.write() as session:
        make_node(session, "gpu-1")
        make_node(session, "gone", state="lost")
    client = served.client()

    with pytest.raises(Conflict, match="stop its worker first"):
        client.nodes.remove("gpu-1")
    client.nodes.remove("gone")

    assert [node["name"] for node in client.nodes.list()] == ["gpu-1"]
    assert audited(served.api, "node.remove") == ["gone"]
    with pytest.raises(NotFound, match="known: gpu-1"):
        client.nodes.remove("gone")


def test_devices_are_put_back_once(served: Served) -> None:
    with served.api.db.write() as session:
        make_node(session, "gpu-1")
        before = utc_now() - timedelta(hours=1)
        session.add(StuckDevice(node="gpu-1", device_index=1, job_id="j", attempt=1, since=before, seen_at=before))
    api, repeated = served.api, {"Idempotency-Key": "once"}

    answers = [api.data(api.post("/v1/nodes/gpu-1/put-back", {}, headers=repeated)) for _ in range(2)]

    assert answers == [{"name": "gpu-1", "devices": 1}] * 2, "the second one is the stored answer"
    assert served.client().nodes.put_back("gpu-1")["devices"] == 0


def test_a_placement_is_that_of_the_teams_own_job(served: Served) -> None:
    with served.api.db.write() as session:
        make_node(session, "free", devices=2)
        make_attempt(session, make_job(session, state=JobState.TRAINING), make_node(session, "busy", devices=1))
        make_project(session, "red")
        job_id = make_job(session, project="red", pending_reason="other jobs are first").id
    red, blue = (served.client(served.api.make_key(Role.VIEWER, name)) for name in ("red", "blue"))

    found = red.nodes.explain(job_id)

    assert (found["job"]["job_id"], found["job"]["queue_position"]) == (job_id, 1)
    assert found["job"]["pending_reason"] == "other jobs are first"
    assert [(node["node"], node["starts_now"]) for node in found["nodes"]] == [("free", True), ("busy", False)]
    assert red.nodes.why("free", job_id) == found["nodes"][0]
    for invisible in (lambda: blue.nodes.explain(job_id), lambda: blue.nodes.why("free", job_id)):
        with pytest.raises(NotFound, match=f"no job {job_id}"):
            invisible()


def test_a_team_sees_its_own_share(served: Served) -> None:
    with served.api.db.write() as session:
        make_node(session, devices=4)
        make_project(session, "red").quota = {"cpu_slots": {"deserved": 3, "limit": 8}}
    red = served.client(served.api.make_key(Role.VIEWER, "red"))

    assert {share["project"] for share in served.client().queues.shares()} == {"default", "red"}
    (share,) = red.queues.shares()
    assert (share["project"], share["kind"], share["deserved"], share["limit"]) == ("red", "cpu_slots", 3, 8)


def test_registered_models_are_listed_to_teams_without_the_servers_paths(served: Served) -> None:
    client = served.client()
    client.models.add("tiny", "/srv/models/tiny")
    client.projects.create("red")
    client.models.add("secret", "/srv/models/secret", project="red")
    red, blue = (served.client(served.api.make_key(Role.USER, name)) for name in ("red", "blue"))

    assert {(row["name"], row["location"]) for row in red.models.list()} == {
        ("secret", "/srv/models/secret"),
        ("tiny", None),
    }
    assert [row["name"] for row in blue.models.list()] == ["tiny"]
    for refused in (lambda: red.models.add("mine", "/srv/models/tiny"), lambda: red.models.remove("tiny")):
        with pytest.raises(Forbidden, match="cluster_admin"):
            refused()
    with pytest.raises(Conflict, match="there is a model tiny already"):
        client.models.add("tiny", "/srv/models/other")
    client.models.remove("tiny")
    assert client.models.list()[-1]["removed_at"] is not None


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"name": "a b", "location": "/srv/models/tiny"}, "name"),
        ({"name": "tiny"}, "location"),
        ({"name": "tiny", "location": " "}, "location"),
        ({"name": "tiny", "location": "/srv/models/tiny", "project": ""}, "project"),
        ({"name": "tiny", "location": "/srv/models/tiny", "base": "x"}, "base"),
    ],
)
def test_bad_registrations_name_the_field(sqlite_api: Api, body: dict[str, str], field: str) -> None:
    answer = sqlite_api.post("/v1/registered-models", body)

    assert answer.status_code in (400, 422)
    assert field in answer.get_data(as_text=True)


def test_the_first_items_of_a_list_come_with_the_number_of_all(served: Served) -> None:
    with served.api.db.write() as session:
        for number in range(3):
            make_job(session, name=f"job-{number}")
    client = served.client()

    entries, total = client.queues.first_in_line(2)
    newest, _ = client.audit.newest(1, action="job")

    assert ([entry["name"] for entry in entries], total) == (["job-0", "job-1"], 3)
    assert newest == []
    hook = client.webhooks.create("https://hooks.example.com/")
    client.webhooks.test(hook["webhook_id"])
    (delivery,), sent = client.webhooks.newest_deliveries(hook["webhook_id"], 5)
    assert sent == 1
    whole = client.webhooks.delivery(hook["webhook_id"], delivery["delivery_id"])
    assert whole["payload"]["event"]["type"] == "webhook.test"
    (entry,), made = client.audit.newest(1, action="webhook.create")
    assert (client.audit.get(entry["id"]), made) == (entry, 1)
    with pytest.raises(ApiError):
        client.audit.get("audit-1")
