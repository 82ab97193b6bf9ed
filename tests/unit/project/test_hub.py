"""The hub of the tests against the real client: what goes up comes down, and refusals are what the client expects."""

import hashlib
from pathlib import Path
from typing import Literal

import pytest
from huggingface_hub import HfApi, HfFileSystem, close_session, constants, snapshot_download
from huggingface_hub.errors import (
    EntryNotFoundError,
    GatedRepoError,
    HfHubHTTPError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.hf_api import RepoFile
from huggingface_hub.utils.tqdm import disable_progress_bars

from tests.doubles.hub import READ_TOKEN, STRANGER_TOKEN, TOKEN, Hub, running_hub

# The client's own: it hands its streams to httpx in a way that is about to go.
pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")

WEIGHTS = bytes(range(256)) * 40


@pytest.fixture
def hub(monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", "/nonexistent")
    disable_progress_bars()
    with running_hub() as hub:
        yield hub
    close_session()


@pytest.fixture
def model(tmp_path: Path) -> Path:
    directory = tmp_path / "model"
    (directory / "sub").mkdir(parents=True)
    (directory / "config.json").write_text('{"a": 1}')
    (directory / "README.md").write_text("---\nlicense: mit\n---\n# A model\n")
    (directory / "model.safetensors").write_bytes(WEIGHTS)
    (directory / "sub" / "empty.txt").write_text("")
    return directory


def api(hub: Hub, token: str | Literal[False] = TOKEN) -> HfApi:
    return HfApi(endpoint=hub.url, token=token)


def contents(directory: Path) -> dict[str, bytes]:
    return {
        str(p.relative_to(directory)): p.read_bytes()
        for p in directory.rglob("*")
        if p.is_file() and ".cache" not in p.parts
    }


@pytest.mark.parametrize("part_bytes", [1 << 20, 4096])
def test_what_is_uploaded_comes_down_again(hub, model, tmp_path, part_bytes):
    hub.part_bytes = part_bytes

    api(hub).create_repo("acme/tiny", private=True)
    made = api(hub).upload_folder(repo_id="acme/tiny", folder_path=model, commit_message="from job-1")
    path = snapshot_download("acme/tiny", endpoint=hub.url, token=TOKEN, cache_dir=tmp_path / "cache")

    assert contents(Path(path)) == contents(model) == hub.files("acme/tiny")
    assert hub.head("acme/tiny").message == "from job-1"
    assert made.oid == hub.head("acme/tiny").oid
    assert bool(hub.asked("POST /complete")) is (part_bytes < len(WEIGHTS))


def test_uploading_the_same_again_makes_no_commit(hub, model):
    api(hub).create_repo("acme/tiny")
    first = api(hub).upload_folder(repo_id="acme/tiny", folder_path=model)
    api(hub).create_repo("acme/tiny", exist_ok=True)

    again = api(hub).upload_folder(repo_id="acme/tiny", folder_path=model)

    assert again.oid == first.oid
    assert len(hub.asked("POST .*/commit/")) == 1


def test_datasets_are_listed_in_pages(hub):
    files = {f"data/train-{n:02}.jsonl": b"{}\n" * n for n in range(1, 8)}
    hub.add("acme/rows", files | {"README.md": b"rows"}, dataset=True)
    hub.page_size = 3

    entries = list(api(hub).list_repo_tree("acme/rows", repo_type="dataset", recursive=True))

    assert {e.path: e.size for e in entries if hasattr(e, "size")} == {p: len(b) for p, b in files.items()} | {
        "README.md": 4
    }
    assert api(hub).list_repo_files("acme/rows", repo_type="dataset") == sorted([*files, "README.md"])
    siblings = api(hub).dataset_info("acme/rows", files_metadata=True).siblings or []
    assert siblings[0].size == 4


def test_large_files_are_listed_with_their_digest(hub, model):
    hub.add("acme/tiny", model)

    (info,) = api(hub).get_paths_info("acme/tiny", ["model.safetensors", "missing"])

    assert isinstance(info, RepoFile)
    assert info.lfs is not None
    assert info.lfs.sha256 == hashlib.sha256(WEIGHTS).hexdigest()


def test_a_revision_stays_what_it_was(hub, tmp_path):
    old = hub.add("acme/tiny", {"a.txt": b"old"})
    hub.add("acme/tiny", {"a.txt": b"new"})
    hub.add("acme/tiny", {"a.txt": b"other"}, branch="side")

    def at(revision):
        path = snapshot_download("acme/tiny", endpoint=hub.url, revision=revision, cache_dir=tmp_path, token=False)
        return Path(path, "a.txt").read_bytes()

    assert [at(old), at("main"), at("side")] == [b"old", b"new", b"other"]
    with pytest.raises(RevisionNotFoundError):
        at("nowhere")


def test_the_file_system_reads_ranges(hub):
    hub.add("acme/rows", {"train.parquet": WEIGHTS}, dataset=True)
    files = HfFileSystem(endpoint=hub.url, token=False, skip_instance_cache=True)

    with files.open("datasets/acme/rows/train.parquet", "rb") as stream:
        stream.seek(1000)
        assert stream.read(10) == WEIGHTS[1000:1010]
    assert files.glob("datasets/acme/rows/*.parquet") == ["datasets/acme/rows/train.parquet"]


def test_a_download_that_is_cut_resumes_where_it_was(hub, tmp_path):
    hub.add("acme/tiny", {"model.safetensors": WEIGHTS})
    hub.cut("GET /objects/", 5000)

    path = snapshot_download("acme/tiny", endpoint=hub.url, cache_dir=tmp_path, token=TOKEN)

    assert Path(path, "model.safetensors").read_bytes() == WEIGHTS
    assert [seen.token for seen in hub.asked("GET /objects/")] == ["", ""]


@pytest.mark.parametrize("token", [False, STRANGER_TOKEN, "hf_unknown"])
def test_a_private_repository_does_not_exist_for_others(hub, token):
    hub.add("acme/secret", {"a.txt": b"a"}, private=True)

    assert api(hub).model_info("acme/secret").private
    with pytest.raises(HfHubHTTPError):
        api(hub, token).model_info("acme/secret")


@pytest.mark.parametrize("token", [READ_TOKEN, STRANGER_TOKEN])
def test_only_the_owner_writes(hub, model, token):
    hub.add("acme/tiny", {"a.txt": b"a"})

    with pytest.raises(HfHubHTTPError):
        api(hub, token).upload_folder(repo_id="acme/tiny", folder_path=model)
    with pytest.raises(HfHubHTTPError):
        api(hub, token).create_repo("acme/other")
    assert hub.files("acme/tiny") == {"a.txt": b"a"}


def test_token_identifies_its_owner(hub):
    assert api(hub).whoami()["name"] == "acme"
    with pytest.raises(HfHubHTTPError):
        api(hub, "hf_unknown").whoami()


def test_refusals_are_what_the_client_knows(hub):
    hub.add("acme/gated", {"a.txt": b"a"}, gated=True)
    hub.add("acme/tiny", {"a.txt": b"a"})
    hub.fail("GET /api/models/acme/tiny", 500)

    with pytest.raises(GatedRepoError):
        api(hub, STRANGER_TOKEN).hf_hub_download("acme/gated", "a.txt")
    with pytest.raises(RepositoryNotFoundError):
        api(hub).model_info("acme/nothing")
    with pytest.raises(EntryNotFoundError):
        api(hub).hf_hub_download("acme/tiny", "b.txt")
    with pytest.raises(HfHubHTTPError, match="500"):
        api(hub).model_info("acme/tiny")
    assert api(hub).model_info("acme/tiny").sha == hub.head("acme/tiny").oid
