"""Tokens that a node keeps: which jobs leave and find them, and what is refused."""

import os
from dataclasses import replace

import pytest

from app.domain.spec.locations.paths import ReadingRules
from app.domain.spec.model import JobDocument
from config.fetching import CacheSettings
from tests.builders.factories import make_document
from trainyard.protocol.run_spec import RunSpec
from workers.prepare.inputs.input_library import Library
from workers.prepare.inputs.kept_tokens import TOKENS, _software, kept_tokens
from workers.prepare.prepare import find_sources, input_fields

FILES = {"source-0.arrow": b"ids", "source-0.json": b"{}", "held-out-blocks.arrow": b"blocks"}


@pytest.fixture
def mine(tmp_path):
    """A directory with a model and data that jobs may read."""
    mine = tmp_path / "mine"
    (mine / "model").mkdir(parents=True)
    (mine / "model/config.json").write_text("{}")
    (mine / "model/tokenizer.json").write_text("{}")
    (mine / "model/model.safetensors").write_bytes(b"weights")
    (mine / "train.jsonl").write_text('{"text": "hello"}\n')
    return mine


@pytest.fixture
def make_library(mine, tmp_path):
    """What jobs of a project may read on one node."""
    made = []

    def make(project="p", **settings):
        rules = ReadingRules(roots=(str(mine),), real_path=os.path.realpath)
        cache_dir, cache = tmp_path / "cache", CacheSettings(**settings)
        library = Library(rules=rules, cache_dir=cache_dir, project=project, project_of_job=lambda _: None, cache=cache)
        made.append(library)
        return library

    yield make
    for library in made:
        library.close()


@pytest.fixture
def run_dir(tmp_path):
    """A run directory in which ranks have stored tokens."""
    stored = tmp_path / "run" / TOKENS / "0123"
    stored.mkdir(parents=True)
    for name, content in FILES.items():
        (stored / name).write_bytes(content)
    (stored / "source-1.arrow.77.partial").write_bytes(b"unfinished")
    return tmp_path / "run"


def tokens_of(library, *, environment=(), reward="", **sections):
    """The tokens of a job with these sections in its document."""
    document = JobDocument.from_json(make_document(**with_inputs(sections)))
    training = document.training_config
    sources = find_sources(library, training.framework.type, document)
    spec = RunSpec(
        run_dir=library.cache_dir,
        framework=training.framework.type,
        training_type=training.training_type,
        training_config=training.to_json(),
        data_config=document.data_config.to_json(),
        hyperparameters=training.hyperparameters,
        **input_fields(sources),
    )
    return kept_tokens(library, replace(spec, reward_path=reward), sources, dict(environment))


def with_inputs(sections):
    training = {"base_model": {"model_id": "model"}, **sections.get("training_config", {})}
    training["base_model"] = {"model_id": "model", **training["base_model"]}
    data = {"sources": [{"path": "train.jsonl"}], **sections.get("data_config", {})}
    return {"training_config": training, "data_config": data}


def test_tokens_of_one_job_are_found_by_the_next(make_library, run_dir):
    first, second = make_library(), make_library()
    assert tokens_of(first).restore() is None

    tokens_of(first).keep(run_dir)
    first.close()
    found = tokens_of(
        second, training_config={"hyperparameters": {"learning_rate": "1"}}, data_config={"batch_size": 3}
    )

    directory = found.restore()
    assert {path.name: path.read_bytes() for path in directory.iterdir()} == FILES
    assert directory.is_relative_to(second.link_directory.path)


@pytest.mark.parametrize(
    "sections",
    [
        {"training_config": {"training_type": "CONTINUED_PRETRAIN"}},
        {"training_config": {"hyperparameters": {"packing": "true"}}},
        {"data_config": {"max_seq_length": 17}},
        {"data_config": {"seed": 17}},
        {"data_config": {"sources": [{"path": "train.jsonl"}, {"path": "train.jsonl"}]}},
    ],
)
def test_job_with_other_tokens_has_another_key(make_library, sections):
    library = make_library()

    assert tokens_of(library, **sections).key != tokens_of(library).key


@pytest.mark.parametrize("changed", ["train.jsonl", "model/tokenizer.json", "model/config.json"])
def test_changed_file_is_another_key(make_library, mine, changed):
    library = make_library()
    before = tokens_of(library).key
    (mine / changed).write_text('{"text": "other"}')

    assert tokens_of(library).key != before


def test_weights_do_not_count(make_library, mine):
    library = make_library()
    before = tokens_of(library).key
    (mine / "model/model.safetensors").write_bytes(b"other weights")

    assert tokens_of(library).key == before


def test_our_own_tokenizing_code_is_part_of_the_key():
    assert {"tokenizing.py", "transformers"} <= set(_software())


def test_other_project_finds_nothing(make_library, run_dir):
    tokens_of(make_library("p")).keep(run_dir)

    assert tokens_of(make_library("q")).restore() is None


@pytest.mark.parametrize(
    "job",
    [
        {"training_config": {"framework": {"type": "CUSTOM", "custom_command": ["true"]}}},
        {"training_config": {"base_model": {"trust_remote_code": True}}},
        {"data_config": {"streaming": True}},
        {"environment": {"LD_PRELOAD": "mine.so"}},
        {"reward": "reward.py"},
    ],
    ids=["script", "code of the model", "streaming", "environment", "reward"],
)
def test_job_that_runs_other_code_or_stores_nothing_takes_no_part(make_library, job):
    assert tokens_of(make_library(), **job) is None


def test_link_in_place_of_tokens_is_not_followed(make_library, run_dir, tmp_path):
    (tmp_path / "secret").write_bytes(b"of others")
    stored = next((run_dir / TOKENS).iterdir())
    (stored / "source-0.arrow").unlink()
    (stored / "source-0.arrow").symlink_to(tmp_path / "secret")
    library = make_library()

    tokens_of(library).keep(run_dir)

    assert tokens_of(library).restore() is None


def test_tokens_that_were_evicted_in_part_are_not_there(make_library, run_dir):
    first, second = make_library(), make_library()
    tokens_of(first).keep(run_dir)
    first.close()
    next((second.order.root / "objects").glob("*/*")).unlink()

    assert tokens_of(second).restore() is None


def test_node_without_room_keeps_nothing(make_library, run_dir):
    library = make_library(max_bytes=4)

    tokens_of(library).keep(run_dir)

    assert tokens_of(library).restore() is None
