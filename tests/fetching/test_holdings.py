"""What a node reports of its cache, and that the next job is placed where its model is cached."""

import hashlib
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from app.domain.lifecycle.states import JobState
from app.domain.scheduling.data_locality import Holding, source_key
from app.models import CachedSource, Job
from app.services.scheduling import planner
from tests.fetching.web_server import file
from tests.systems.supervising import NODE, World
from workers.fetching import cache_index
from workers.fetching.cache import stored_at
from workers.fetching.cache_index import CacheIndex
from workers.fetching.items import FetchedFile, Item
from workers.node.worker_step import NodeThreads
from workers.prepare.inputs.resolve_inputs import DataRequest, ModelRequest, find_data, find_model

MODEL = {"config.json": b'{"model_type": "llama"}', "model.safetensors": bytes(range(256)) * 64}
MODEL_BYTES = sum(map(len, MODEL.values()))
LINES = b'{"text": "hello"}\n'


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "data/cache/data"


def keep(root: Path, location: str, contents: Mapping[str, bytes], *, used_at: float = 0.0) -> str:
    """As if an attempt had fetched them; returns the key."""
    files = []
    for name, content in contents.items():
        sha256 = hashlib.sha256(content).hexdigest()
        stored_at(root, sha256).parent.mkdir(parents=True, exist_ok=True)
        stored_at(root, sha256).write_bytes(content)
        files.append(FetchedFile(path=name, name=name, size_bytes=len(content), sha256=sha256))
    item = Item(kind="data", location=location, target="", max_bytes=1, limit_name="")
    cache_index.note(root, item, files)
    key = source_key("data", location)
    os.utime(root / "sources" / key, (used_at, used_at))
    return key


def evict(root: Path, content: bytes) -> None:
    stored_at(root, hashlib.sha256(content).hexdigest()).unlink()


def test_model_that_was_fetched_is_held_with_all_its_bytes(hub, make_library, root):
    hub.add("org/tiny", MODEL)

    find_model(make_library(), ModelRequest(model_id="org/tiny"))

    whole = Holding(held_bytes=MODEL_BYTES, size_bytes=MODEL_BYTES)
    assert CacheIndex(root).now() == {source_key("model", "org/tiny"): whole}


def test_look_at_a_model_without_its_weights_is_no_holding(hub, make_library, root):
    hub.add("org/tiny", MODEL)

    find_model(replace(make_library(), without_weights=True), ModelRequest(model_id="org/tiny"))

    assert CacheIndex(root).now() == {}


def test_signed_url_is_known_by_what_the_document_shows(web, make_library, root):
    web.answers["/a.jsonl"] = file(LINES)

    find_data(make_library(), DataRequest(location=web.url("/a.jsonl?sig=hunter2")))

    assert list(CacheIndex(root).now()) == [source_key("data", web.url("/a.jsonl?sig=***"))]
    assert "hunter2" not in "".join(path.name + path.read_text() for path in (root / "sources").iterdir())


def test_what_lies_on_this_machine_is_no_holding(make_library, mine, root):
    (mine / "a.jsonl").write_bytes(LINES)

    find_data(make_library(), DataRequest(location="a.jsonl"))

    assert CacheIndex(root).now() == {}


def test_evicted_files_are_missing_and_a_source_without_any_is_forgotten(root):
    key = keep(root, "s3://bucket/data", {"a": b"a" * 30, "b": b"b" * 70})
    held = CacheIndex(root)
    assert held.now() == {key: Holding(held_bytes=100, size_bytes=100)}

    evict(root, b"a" * 30)
    assert held.now() == {key: Holding(held_bytes=70, size_bytes=100)}

    evict(root, b"b" * 70)
    assert held.now() == {}
    assert list((root / "sources").iterdir()) == []


def test_only_the_last_used_are_reported(root, monkeypatch):
    monkeypatch.setattr(cache_index, "MOST_SOURCES", 2)
    keys = [keep(root, f"s3://bucket/{n}", {"a": b"%d" % n}, used_at=n) for n in range(4)]

    assert CacheIndex(root).now().keys() == {keys[2], keys[3]}
    assert len(list((root / "sources").iterdir())) == 2


def test_the_largest_files_stand_for_all(root, monkeypatch):
    monkeypatch.setattr(cache_index, "MOST_FILES", 1)
    key = keep(root, "s3://bucket/data", {"a": b"a" * 10, "b": b"b" * 90})

    evict(root, b"a" * 10)

    assert CacheIndex(root).now() == {key: Holding(held_bytes=100, size_bytes=100)}


def test_broken_note_is_deleted(root):
    key = keep(root, "s3://bucket/data", {"a": b"a"})
    (root / "sources" / key).write_text('{"files": 3}')

    assert CacheIndex(root).now() == {}
    assert list((root / "sources").iterdir()) == []


@pytest.fixture
def world(tmp_path, sqlite_url, forked_supervisors):
    world = World(tmp_path, sqlite_url, spawn=forked_supervisors.spawn, TRAINYARD_FETCH_ALLOW="127.0.0.1")
    yield world
    world.close()


def started(world: World, name: str, directory: Path) -> NodeThreads:
    """A node worker that has registered and reported what its cache holds."""
    settings = replace(
        world.settings, node=replace(world.settings.node, name=name), data=replace(world.settings.data, dir=directory)
    )
    node = NodeThreads(settings, world.db)
    for _ in range(2):
        node._heartbeat()
    return node


def training(world: World, model: str) -> str:
    job_id = world.submit("print('trained')\n")
    with world.db.write() as session:
        job = session.get_one(Job, job_id)
        changed = {**job.spec["training_config"], "base_model": {"model_id": model}}
        job.spec = {**job.spec, "training_config": changed}
    return job_id


@pytest.mark.long
def test_next_job_of_a_model_goes_to_the_node_that_has_fetched_it(world, hub, tmp_path):
    hub.add("org/tiny", MODEL)
    first = training(world, "org/tiny")
    world.take_up(first)
    assert world.wait_for_end(first).state is JobState.COMPLETED, world.describe(first)
    node = started(world, NODE, world.data_dir)
    started(world, "another", tmp_path / "another")

    following, other = training(world, "org/tiny"), training(world, "org/other")
    placed = {each.job_id: each.node for each in planner.plan_once(world.db)}

    assert placed == {following: NODE, other: "another"}  # of equal nodes the first by name
    evict(world.data_dir / "cache/data", MODEL["model.safetensors"])
    node._heartbeat()
    with world.db.read() as session:
        (row,) = session.query(CachedSource)
    assert (row.node, row.held_bytes, row.size_bytes) == (NODE, len(MODEL["config.json"]), MODEL_BYTES)
