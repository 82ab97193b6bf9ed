"""How much of a job's model and data each node has cached, and how the planner uses that."""

from typing import Any

import pytest

from app.domain.scheduling import data_locality
from app.domain.scheduling.data_locality import NOT_CACHED, CachedInput, cached, source_key, source_keys
from app.domain.scheduling.planner import SchedulingPolicy, plan
from app.domain.scheduling.queue_order import QueuedJob
from app.domain.scheduling.resources import Device, NodeCapacity, Request
from app.domain.scheduling.scoring import CACHED, DEFAULT_WEIGHTS, points_of
from app.domain.spec.model import JobDocument

DOCUMENT: dict[str, Any] = {
    "training_config": {"base_model": {"model_id": "acme/tiny", "revision": None}},
    "data_config": {"sources": [{"path": "s3://bucket/data"}, {"path": "s3://bucket/data"}]},
}


def node(name: str, **more: Any) -> NodeCapacity:
    devices = tuple(Device(index=index, type="cpu") for index in range(8))
    return NodeCapacity(name=name, devices=devices, free=frozenset(range(8)), **more)


def source(size_bytes: int, **held: float) -> CachedInput:
    return CachedInput(size_bytes=size_bytes, held=held)


def placed(nodes: list[NodeCapacity], *sources: CachedInput, jobs: int = 1, **weights: float) -> list[str]:
    read = cached(sources)
    line = [QueuedJob(job_id=f"j{n}", priority=5, since=n, request=Request(), cached=read) for n in range(jobs)]
    return [
        p.node for p in plan(line, nodes, policy=SchedulingPolicy(weights={**DEFAULT_WEIGHTS, **weights})).placements
    ]


def test_part_of_a_node_is_that_of_the_bytes_that_it_holds() -> None:
    read = cached([source(900, a=1.0, b=0.5), source(100, a=1.0, c=1.0)])

    assert [read.on(name) for name in "abcd"] == [1.0, 0.45, 0.1, 0.0]


def test_data_that_is_cached_nowhere_prefers_no_node() -> None:
    assert cached([source(100), source(0, a=1.0)]) is NOT_CACHED
    assert cached([source(100), source(50, a=1.0)]).on("a") == 1.0


@pytest.mark.parametrize("sizes", [(1, 1, 1), (7, 5, 3, 1), (1,) * 30])
def test_node_that_holds_everything_has_all_of_it_however_it_is_divided(sizes: tuple[int, ...]) -> None:
    assert cached([source(size, a=1.0) for size in sizes]).on("a") == 1.0


def test_every_source_of_a_document_counts_once() -> None:
    assert len(source_keys(JobDocument.from_json(DOCUMENT))) == 2
    base = {"model_id": "acme/tiny", "revision": "v2", "tokenizer_id": "acme/words"}
    assert len(source_keys(JobDocument.from_json({**DOCUMENT, "training_config": {"base_model": base}}))) == 3


def test_source_is_another_one_at_another_revision_or_as_data() -> None:
    keys = {source_key("model", "acme/a"), source_key("model", "acme/a", "v2"), source_key("data", "acme/a")}

    assert len(keys) == 3


def test_signature_of_a_url_is_no_part_of_its_name() -> None:
    first, shown = "https://host/a.jsonl?id=1&sig=hunter2", "https://host/a.jsonl?id=1&sig=***"

    assert source_key("data", first) == source_key("data", shown)
    assert source_key("data", first) != source_key("data", "https://host/a.jsonl?id=2&sig=hunter2")


def test_node_that_holds_the_model_is_preferred_until_it_runs_five_jobs_more() -> None:
    nodes = [node("a"), node("b")]

    assert placed(nodes, source(100, b=1.0)) == ["b"]
    assert placed(nodes, source(100, b=1.0), jobs=6) == ["b", "b", "b", "b", "b", "a"]
    assert placed(nodes, source(100, b=1.0), cached=0.0) == ["a"]


def test_among_many_holders_the_one_with_the_fewest_jobs_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_locality, "FEW_HOLDERS", 2)
    nodes = [node("a"), *(node(name, active_jobs=1) for name in "bcd")]
    model, data = source(800, b=1.0, c=1.0, d=1.0), source(200, d=1.0)

    assert placed(nodes, model, jobs=3) == ["b", "c", "d"]
    assert placed(nodes, model, data) == ["d"]


def test_shown_points_are_those_of_the_score() -> None:
    points = points_of(Request(), node("a"), cached=cached([source(100, a=0.5)]))

    assert [each.points for each in points if each.name == CACHED] == [25.0]


def test_model_of_the_hub_is_the_same_under_its_id_and_its_uri() -> None:
    assert source_key("model", "hf://acme/a") == source_key("model", "acme/a")
    assert source_key("model", "hf://acme/a@v2") == source_key("model", "acme/a", "v2")
