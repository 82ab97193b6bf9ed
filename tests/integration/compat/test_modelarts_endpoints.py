"""ModelArts' endpoints of a training job: JupyterLab, SSH, and what is refused."""

from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from app.database.engine import Database
from app.domain.errors import Forbidden
from app.domain.lifecycle.states import JobState
from app.models import Job, Project
from app.security.permissions import Role
from app.services.access import api_keys
from app.services.interactive import ports
from tests.builders.factories import make_node
from tests.integration.compat.test_modelarts_tensorboard import ALGORITHM, BODY, JOBS, said
from tests.systems.apps import SECRET_KEY, Api

NOTEBOOK = {"jupyter-lab/enable": "true"}
PORTS = "http://jobs.localhost:8001"
SLOT = {"flavor_id": "trainyard.cpu.1"}


@pytest.fixture
def served(database: Database, tmp_path: Path) -> Api:
    """An installation whose gateway serves ports of jobs."""
    return Api(database, tmp_path, TRAINYARD_GATEWAY_PORTS_URL=PORTS)


def warned_of(api: Api, made: dict[str, Any]) -> list[str]:
    events = api.get(f"/v1/jobs/job-{made['metadata']['id']}/events")["events"]
    return [field for event in events if event["reason"] == "NOT_ACTED_ON" for field in event["data"]["fields"]]


def shown(api: Api, made: dict[str, Any], key: str | None = None) -> Any:
    return said(api.call("GET", f"{JOBS}/{made['metadata']['id']}", key=key))["endpoints"]


def test_notebook_is_a_port_of_the_job_with_a_token_of_the_callers(served: Api) -> None:
    api = served
    user, viewer = api.make_key(Role.USER), api.make_key(Role.VIEWER)

    made = said(api.post(JOBS, {**BODY, "metadata": {"name": "n", "annotations": NOTEBOOK}}, key=user), 201)

    native = f"job-{made['metadata']['id']}"
    lab = shown(api, made, key=user)["jupyter_lab"]
    assert made["endpoints"]["jupyter_lab"].keys() == {"url", "token"}
    assert made["metadata"]["annotations"] == NOTEBOOK
    assert api.get(f"/v1/jobs/{native}")["interactive_config"]["notebook"] is True
    assert warned_of(api, made) == []
    assert lab["url"].startswith(f"{PORTS}/jobs/{native}/ports/notebook/?")
    assert parse_qs(urlsplit(lab["url"]).query) == {"trainyard_token": [lab["token"]]}
    plane = api.app.extensions["trainyard"].plane
    assert ports.by_token(plane, SECRET_KEY, lab["token"], native, "notebook").port.name == "notebook"
    # A notebook runs code, and a viewer may not.
    assert shown(api, made, key=viewer) == {}
    with pytest.raises(Forbidden):
        ports.by_caller(plane, api_keys.authenticate(api.db, viewer), native, "notebook")
    assert [each["may_open"] for each in api.get(f"/v1/jobs/{native}/ports", key=viewer)["ports"]] == [False]


def test_what_has_ended_and_what_the_project_has_switched_off_has_no_address(served: Api) -> None:
    api = served
    ssh = {"endpoints": {"ssh": {"key_pair_names": ["mine"]}}}
    made, other = (
        said(api.post(JOBS, {**BODY, **ssh, "metadata": {"name": name, "annotations": NOTEBOOK}}), 201)
        for name in ("a", "b")
    )
    with api.db.write() as session:
        session.get_one(Job, f"job-{other['metadata']['id']}").status = JobState.CANCELLED
    assert shown(api, other) == {}
    assert shown(api, made).keys() == {"jupyter_lab", "ssh"}

    with api.db.write() as session:
        session.get_one(Project, "default").sessions = "off"

    assert shown(api, made) == {}


def test_ssh_leads_through_the_proxy_and_key_pairs_are_named_as_unused(api: Api) -> None:
    viewer = api.make_key(Role.VIEWER)

    made = said(api.post(JOBS, {**BODY, "endpoints": {"ssh": {"key_pair_names": ["mine", "yours"]}}}), 201)

    assert made["endpoints"] == {
        "ssh": {
            "key_pair_names": ["mine", "yours"],
            "task_urls": [{"task": "worker-0", "url": f"ssh://job-{made['metadata']['id']}.trainyard"}],
        }
    }
    assert shown(api, made) == made["endpoints"]
    assert warned_of(api, made) == ["endpoints.ssh.key_pair_names"]
    assert shown(api, made, key=viewer) == {}
    again = said(api.post(JOBS, {**BODY, "metadata": {"name": "again"}, "endpoints": made["endpoints"]}), 201)
    assert again["endpoints"]["ssh"]["key_pair_names"] == ["mine", "yours"]


def test_ssh_reaches_each_node_and_each_task(api: Api) -> None:
    with api.db.write() as session:
        make_node(session, "n1")
        make_node(session, "n2")
    ssh = {"endpoints": {"ssh": {"key_pair_names": ["mine"]}}}
    pool = {"flavor_id": "trainyard.cpu.2", "node_count": 2}
    nodes = said(api.post(JOBS, {**BODY, **ssh, "spec": {"resource": pool}}), 201)
    named = {"metadata": {"name": "rl", "annotations": {"job_template": "Template RL"}}}
    code = {"code_dir": "/team/src/", "boot_file": "/team/src/train.py"}
    task = {"algorithm": code, "task_resource": SLOT}
    tasks = [{**task, "role": "trainer"}, {**task, "role": "rollout", "task_resource": {**SLOT, "node_count": 2}}]
    roles = said(api.post(JOBS, {**BODY, **ssh, **named, "algorithm": {}, "tasks": tasks}), 201)

    of_nodes, of_roles = (made["endpoints"]["ssh"]["task_urls"] for made in (nodes, roles))

    host = f"job-{nodes['metadata']['id']}.trainyard"
    assert of_nodes == [
        {"task": "worker-0", "url": f"ssh://rank-0.{host}"},
        {"task": "worker-1", "url": f"ssh://rank-1.{host}"},
    ]
    host = f"job-{roles['metadata']['id']}.trainyard"
    assert of_roles == [
        {"task": each, "url": f"ssh://{each}.{host}"} for each in ("trainer-0", "rollout-0", "rollout-1")
    ]
    assert shown(api, roles)["ssh"]["task_urls"] == of_roles


def test_notebook_without_a_gateway_for_ports_is_a_warning(api: Api) -> None:
    made = said(api.post(JOBS, {**BODY, "metadata": {"name": "n", "annotations": NOTEBOOK}}), 201)

    assert made["endpoints"] == {}
    assert warned_of(api, made) == ["metadata.annotations.jupyter-lab/enable"]


def test_annotation_that_comes_late_is_named(api: Api) -> None:
    made = said(api.post(JOBS, BODY), 201)

    answered = api.call("PUT", f"{JOBS}/{made['metadata']['id']}", json={"metadata": {"annotations": NOTEBOOK}})
    refused = api.call(
        "PUT",
        f"{JOBS}/{made['metadata']['id']}",
        json={"metadata": {"annotations": {"mindstudio-insight/enable": "true"}}},
    )

    assert "jupyter-lab/enable" in answered.headers["Warning"]
    assert refused.status_code == 400
    assert "Ascend" in refused.text


def test_notebook_of_the_native_api_is_shown_with_its_annotation(served: Api) -> None:
    job_id = served.submit(
        training_config={
            "framework": {"type": "CUSTOM", "custom_command": ["sleep", "1"]},
            "base_model": {"model_id": "none"},
        },
        interactive_config={"notebook": True},
    )

    found = said(served.call("GET", f"{JOBS}/{job_id.removeprefix('job-')}"))

    assert found["metadata"]["annotations"] == NOTEBOOK
    assert found["endpoints"].keys() == {"jupyter_lab"}


def test_search_has_no_notebook(served: Api) -> None:
    search = {
        "reward_attrs": [{"name": "acc"}],
        "search_params": [
            {
                "name": "lr",
                "param_type": "continuous",
                "lower_bound": "0.1",
                "upper_bound": "0.2",
                "discrete_points_num": "2",
            }
        ],
    }
    body = {**BODY, "metadata": {"name": "s", "annotations": NOTEBOOK}}

    answered = served.post(JOBS, {**body, "algorithm": {**ALGORITHM, "policies": {"auto_search": search}}})

    assert said(answered, 201)["endpoints"] == {}
    assert any("jupyter-lab/enable" in line for line in answered.headers.getlist("Warning"))
