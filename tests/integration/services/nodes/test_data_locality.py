"""What nodes report of their caches, and how it affects placement."""

from collections.abc import Mapping
from typing import Any

import pytest

from app.database.engine import Database
from app.domain.scheduling.data_locality import Holding, source_key
from app.domain.scheduling.planner import SchedulingPolicy
from app.domain.scheduling.scoring import CACHED, DEFAULT_WEIGHTS
from app.models import CachedSource, Node
from app.services.nodes import data_locality
from app.services.scheduling import planner
from tests.builders.factories import make_document, make_job, make_node
from tests.builders.statements import statements
from tests.systems.apps import Api

pytestmark = pytest.mark.both_databases

MODEL = source_key("model", "acme/tiny")
DATA = source_key("data", "s3://bucket/data.jsonl")
ALL = Holding(held_bytes=100, size_bytes=100)


def reading(model: str = "acme/tiny", data: str = "s3://bucket/data.jsonl", **resources: Any) -> dict[str, Any]:
    return make_document(
        training_config={"base_model": {"model_id": model}},
        data_config={"sources": [{"path": data}]},
        resource_config={"gpu_count": 1, **resources},
    )


def reported(database: Database) -> dict[tuple[str, str], tuple[int, int]]:
    with database.read() as session:
        return {(row.node, row.source): (row.held_bytes, row.size_bytes) for row in session.query(CachedSource)}


@pytest.fixture
def nodes(database: Database) -> Database:
    with database.write() as session:
        make_node(session, "a")
        make_node(session, "b")
    return database


def submit(database: Database, document: Mapping[str, Any]) -> str:
    with database.write() as session:
        return str(make_job(session, document=dict(document)).id)


def test_a_nodes_report_replaces_its_previous_one(nodes: Database) -> None:
    data_locality.report(nodes, "a", {MODEL: ALL, DATA: ALL})
    data_locality.report(nodes, "b", {MODEL: ALL})
    data_locality.report(nodes, "a", {MODEL: Holding(held_bytes=40, size_bytes=100)})

    assert reported(nodes) == {("a", MODEL): (40, 100), ("b", MODEL): (100, 100)}


def test_job_whose_stored_model_is_no_text_does_not_block_others(nodes: Database) -> None:
    data_locality.report(nodes, "a", {MODEL: ALL})
    damaged = reading()
    damaged["training_config"]["base_model"]["model_id"] = 5
    submit(nodes, damaged)
    sound = submit(nodes, reading())

    assert [placed.job_id for placed in planner.plan_once(nodes)] == [sound]


def test_removed_node_takes_its_reported_sources_along(nodes: Database) -> None:
    data_locality.report(nodes, "a", {MODEL: ALL})
    with nodes.write() as session:
        session.delete(session.get_one(Node, "a"))

    data_locality.report(nodes, "a", {MODEL: ALL})

    assert reported(nodes) == {}


def test_job_goes_to_the_node_that_holds_its_model(nodes: Database) -> None:
    data_locality.report(nodes, "b", {MODEL: ALL})
    holder, elsewhere = submit(nodes, reading()), submit(nodes, reading("acme/other"))

    placed = {each.job_id: each.node for each in planner.plan_once(nodes)}

    assert placed == {holder: "b", elsewhere: "a"}


def test_weight_of_zero_asks_for_no_cache(nodes: Database) -> None:
    data_locality.report(nodes, "b", {MODEL: ALL})
    submit(nodes, reading())

    with statements(nodes) as sent:
        (placed,) = planner.plan_once(nodes, policy=SchedulingPolicy(weights={**DEFAULT_WEIGHTS, CACHED: 0.0}))

    assert placed.node == "a"
    assert not [each for each in sent if "cached_source" in each]


def test_many_jobs_that_read_the_same_are_looked_up_at_once(nodes: Database) -> None:
    data_locality.report(nodes, "b", {MODEL: ALL})
    for _ in range(20):
        submit(nodes, reading(gpu_count=2))

    with statements(nodes) as sent:
        planner.plan_once(nodes)

    assert len([each for each in sent if "cached_source" in each]) == 2  # is there any; who has these


def test_largest_that_nodes_know_is_what_a_job_has_to_expect(nodes: Database) -> None:
    data_locality.report(nodes, "a", {MODEL: Holding(held_bytes=10, size_bytes=10)})
    data_locality.report(nodes, "b", {MODEL: Holding(held_bytes=50, size_bytes=100)})
    submit(nodes, reading())

    assert [each.node for each in planner.plan_once(nodes)] == ["b"]


def test_points_are_shown_to_people(api: Api) -> None:
    with api.db.write() as session:
        make_node(session, "a")
        make_node(session, "b")
    data_locality.report(api.db, "b", {MODEL: Holding(held_bytes=50, size_bytes=100)})
    job_id = submit(api.db, reading())

    points = {
        name: [each["points"] for each in api.get(f"/v1/nodes/{name}/why/{job_id}")["scores"] if each["name"] == CACHED]
        for name in "ab"
    }

    assert points == {"a": [0.0], "b": [25.0]}
