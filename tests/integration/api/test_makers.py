"""Who has made an evaluation, a sweep, a service or a batch: the id of the key, and its name."""

from typing import Any

import pytest

from app.security.permissions import Role
from tests.builders.sweeps import make_sweep_document
from tests.systems.apps import Api

MODEL = {"model_uri": "/srv/models/tiny"}
TASK = {"type": "generate", "max_new_tokens": 8}
SOURCES = {"sources": [{"path": "/srv/data/train.jsonl"}]}
BODIES: dict[str, Any] = {
    "evaluations": {"model": MODEL, "benchmarks": [{"name": "perplexity", "dataset": "/srv/data/train.jsonl"}]},
    "inference": {"name": "a", "kind": "batch", "model": MODEL, "task": TASK, "data_config": SOURCES},
    "services": {"name": "a", "model": MODEL, "replicas": {"min": 0, "max": 1}},
    "sweeps": make_sweep_document(),
}
IDS = {"evaluations": "evaluation_id", "inference": "job_id", "services": "service_id", "sweeps": "sweep_id"}


@pytest.mark.parametrize("kind", BODIES)
def test_what_a_key_has_made_shows_its_name(api: Api, kind: str) -> None:
    named, nameless = (api.make_key(Role.ADMIN, name=name) for name in ("anna", ""))
    made = {}
    for number, key in enumerate((named, nameless)):
        body = {**BODIES[kind], "name": f"a-{number}"}
        made[api.data(api.post(f"/v1/{kind}", body, key=key), 201)[IDS[kind]]] = ["anna", ""][number]

    listed = {each[IDS[kind]]: each["created_by_name"] for each in api.get(f"/v1/{kind}")[kind]}
    shown = {each: api.get(f"/v1/{kind}/{each}") for each in made}

    assert listed == made
    assert {each: answer["created_by_name"] for each, answer in shown.items()} == made
    assert all(answer["created_by"].startswith("key-") for answer in shown.values())


def test_name_of_a_super_admins_key_is_not_shown(api: Api) -> None:
    key = api.make_key(Role.SUPER_ADMIN, None, name="root key of Carol, prod vault item 7")
    job_id = api.submit(key=key)
    viewer = api.make_key(Role.VIEWER)

    for answer in (api.get(f"/v1/jobs/{job_id}", key=viewer), api.get("/v1/jobs", key=viewer)["jobs"][0]):
        assert answer["created_by_name"] == "administrator"
