"""Models and data sets from a hub that speaks the real one's API."""

import hashlib
from typing import Any

import pytest

from app.domain.spec.model import BaseModel
from tests.doubles.hub import READ_TOKEN
from workers.attempt_failed import AttemptFailed
from workers.prepare.inputs.input_library import JobInputs
from workers.prepare.inputs.read_inputs import read_inputs
from workers.prepare.inputs.resolve_inputs import DataRequest, ModelRequest, find, find_data, find_model

MODEL = {
    "config.json": b'{"model_type": "llama"}',
    "model.safetensors": bytes(range(256)) * 64,
    "modeling_own.py": b"a = 1",
    "model.onnx": b"not needed",
    "onnx/model.bin": b"not needed",
}
WANTED = ["config.json", "model.safetensors", "modeling_own.py"]
LINES = b'{"text": "hello"}\n'


def names(model):
    return sorted(str(path.relative_to(model.path)) for path in model.path.rglob("*") if path.is_file())


def refusal(function, *arguments):
    with pytest.raises(AttemptFailed) as refused:
        function(*arguments)
    return refused.value


def test_model_is_fetched_with_its_code(hub, make_library):
    hub.add("org/tiny", MODEL)

    for model in find(make_library(), [ModelRequest(model_id=each) for each in ("org/tiny", "hf://org/tiny")], [])[0]:
        assert names(model) == WANTED
        assert (model.path / "model.safetensors").read_bytes() == MODEL["model.safetensors"]
        assert model.visible == model.path


def test_commit_is_known_of_models_and_data(hub, make_library):
    commit = hub.add("org/tiny", MODEL)
    of_data = hub.add("org/faq", {"train.jsonl": LINES}, dataset=True)
    library = make_library()

    models, data = find(library, [ModelRequest(model_id="org/tiny")], [DataRequest(location="hf://datasets/org/faq")])

    assert ([found.commit for found in models], [found.commit for found in data]) == ([commit], [of_data])
    sources = JobInputs(model=models[0], tokenizer=None, data=tuple(data), script=None)
    read = read_inputs(library, BaseModel(model_id="org/tiny"), sources)
    assert read.base is not None
    assert (read.base.commit, read.data[0].commit) == (commit, of_data)
    assert read.data[0].sha256 == hashlib.sha256(LINES).hexdigest()


def test_revision_is_that_of_the_time(hub, make_library):
    hub.add("org/tiny", {"config.json": b"old"}, branch="v1")
    hub.add("org/tiny", {"config.json": b"new"})
    requests = [
        ModelRequest(model_id="org/tiny", revision="v1"),
        ModelRequest(model_id="hf://org/tiny@v1"),
        ModelRequest(model_id="hf://org/tiny", revision="v1"),
    ]

    models = find(make_library(), requests, [])[0]

    assert [(model.path / "config.json").read_bytes() for model in models] == [b"old"] * 3


@pytest.mark.long
def test_unchanged_files_are_not_sent_again(hub, make_library):
    hub.add("org/tiny", MODEL)
    library = make_library()
    find_model(library, ModelRequest(model_id="org/tiny"))
    before = len(hub.asked(r"GET .*/resolve/"))
    hub.add("org/tiny", {"config.json": b'{"model_type": "gpt2"}'})

    model = find_model(library, ModelRequest(model_id="org/tiny"))

    assert len(hub.asked(r"GET .*/resolve/")) == before + 1
    assert (model.path / "config.json").read_bytes() == b'{"model_type": "gpt2"}'


@pytest.mark.long
def test_model_that_is_here_does_not_need_the_hub(hub, make_library):
    hub.add("org/tiny", MODEL)
    library = make_library()
    find_model(library, ModelRequest(model_id="org/tiny"))
    hub.fail("GET /api/", 503, times=100)

    assert names(find_model(library, ModelRequest(model_id="org/tiny"))) == WANTED


@pytest.mark.parametrize(
    ("model_id", "revision", "said"),
    [
        ("org/unknown", None, "org/unknown"),
        ("org/tiny", "v9", "no revision v9"),
        ("org/gated", None, "licence"),
        ("acme/secret", None, "hub_token"),
    ],
)
def test_what_the_hub_does_not_give_is_said(hub, make_library, model_id, revision, said):
    hub.add("org/tiny", MODEL)
    hub.add("org/gated", MODEL, gated=True)
    hub.add("acme/secret", MODEL, private=True)

    refused = refusal(find_model, make_library(), ModelRequest(model_id=model_id, revision=revision))

    assert refused.error_type == "MODEL_NOT_FOUND"
    assert said in refused.message


@pytest.mark.long
def test_private_model_needs_the_jobs_token_each_time(hub, make_library):
    hub.add("acme/secret", MODEL, private=True)

    model = find_model(
        make_library(secrets={"output_config.hub_token": READ_TOKEN}), ModelRequest(model_id="acme/secret")
    )

    assert names(model) == WANTED
    assert refusal(find_model, make_library(), ModelRequest(model_id="acme/secret")).error_type == "MODEL_NOT_FOUND"


def test_tokens_of_the_node_are_used(hub, make_library, monkeypatch):
    hub.add("acme/secret", MODEL, private=True)
    monkeypatch.setenv("HF_TOKEN", READ_TOKEN)

    assert names(find_model(make_library(), ModelRequest(model_id="acme/secret"))) == WANTED


def test_local_model_never_asks_a_hub(hub, make_library):
    hub.add("org/tiny", MODEL)

    refused = refusal(find_model, make_library(), ModelRequest(model_id="org/tiny", source="local"))

    assert "does not exist on this node" in refused.message
    assert hub.seen == []


def test_model_of_the_hub_is_never_a_local_directory(hub, make_library, mine):
    hub.add("org/tiny", MODEL)
    (mine / "org/tiny").mkdir(parents=True)
    (mine / "org/tiny/config.json").write_text("{}")

    assert find_model(make_library(), ModelRequest(model_id="org/tiny")).path == mine / "org/tiny"
    assert names(find_model(make_library(), ModelRequest(model_id="org/tiny", source="hub"))) == WANTED


DATASET = {
    "README.md": b"# Data\n",
    "dataset_infos.json": b"{}",
    "data/train-00000-of-00002.jsonl": LINES,
    "data/train-00001-of-00002.jsonl": LINES * 2,
    "data/validation.jsonl": LINES * 3,
    "raw/table.csv": b"a\n1\n",
}
TRAIN = ["data/train-00000-of-00002.jsonl", "data/train-00001-of-00002.jsonl"]


FILES: list[tuple[str, dict[str, Any], list[str]]] = [
    ("", {}, TRAIN),
    ("", {"split": "val[:10%]"}, ["data/validation.jsonl"]),
    ("", {"split": "test", "format": "csv"}, ["raw/table.csv"]),
    ("/data/validation.jsonl", {}, ["validation.jsonl"]),
    ("/data/*.jsonl", {}, ["train-00000-of-00002.jsonl", "train-00001-of-00002.jsonl", "validation.jsonl"]),
    ("@main/data", {"split": "validation"}, ["validation.jsonl"]),
]


def test_files_of_a_data_set(hub, make_library):
    hub.add("acme/chats", DATASET, dataset=True)
    requests = [DataRequest(location=f"hf://datasets/acme/chats{rest}", **options) for rest, options, _ in FILES]

    found = find(make_library(), [], requests)[1]

    assert [[file.name for file in data.files] for data in found] == [names for _, _, names in FILES]


def test_missing_file_of_a_data_set_is_said(hub, make_library):
    hub.add("acme/chats", DATASET, dataset=True)

    refused = refusal(find_data, make_library(), DataRequest(location="hf://datasets/acme/chats/gone.jsonl"))

    assert refused.error_type == "DATA_NOT_FOUND"


def test_bytes_that_are_not_the_listed_ones_are_refused(hub, make_library, objects):
    hub.add("acme/chats", {"a.parquet": LINES}, dataset=True)
    stored = hub.repositories.objects
    stored.update({sha256: data.upper() for sha256, data in stored.items()})

    refused = refusal(find_data, make_library(), DataRequest(location="hf://datasets/acme/chats/a.parquet"))

    assert refused.error_type == "STORAGE_ERROR"
    assert "the content differs from what its server lists" in refused.message
    assert objects() == []


def test_unreachable_hub_may_be_tried_again(make_library, monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:1")

    refused = refusal(find_model, make_library(), ModelRequest(model_id="org/tiny"))

    assert refused.error_type == "HUB_UNREACHABLE"
    assert "http://127.0.0.1:1" in refused.message


@pytest.mark.long
def test_hub_that_says_nothing_is_given_up(hub, make_library, monkeypatch):
    hub.stall("GET /api/")

    refused = refusal(find_model, make_library(stalled_seconds=1.5), ModelRequest(model_id="org/tiny"))

    assert refused.error_type == "STORAGE_ERROR"
    assert "nothing has arrived" in refused.message


@pytest.mark.long
@pytest.mark.parametrize("kept", [True, False], ids=["hub there", "hub away"])
def test_gated_files_that_another_fetched_are_not_handed_to_those_without_access(hub, make_library, kept):
    hub.add("acme/gated", MODEL, gated=True)
    request = ModelRequest(model_id="acme/gated")
    assert names(find_model(make_library(secrets={"output_config.hub_token": READ_TOKEN}), request)) == WANTED
    if not kept:
        hub.fail("GET /api/", 503, times=100)

    refused = refusal(find_model, make_library(), request)

    assert refused.error_type == ("MODEL_NOT_FOUND" if kept else "HUB_UNREACHABLE")


@pytest.mark.long
def test_gated_model_of_those_with_access_comes_from_the_cache(hub, make_library):
    hub.add("acme/gated", MODEL, gated=True)
    library = make_library(secrets={"output_config.hub_token": READ_TOKEN})
    find_model(library, ModelRequest(model_id="acme/gated"))
    before = len(hub.asked(r"GET .*/resolve/"))

    assert names(find_model(library, ModelRequest(model_id="acme/gated"))) == WANTED
    assert len(hub.asked(r"GET .*/resolve/")) == before
