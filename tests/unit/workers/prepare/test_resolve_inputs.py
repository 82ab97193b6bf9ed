"""From what a job names to what lies on the machine, and never to what it may not read."""

import functools
import hashlib
import os
from dataclasses import replace
from pathlib import Path

import pytest

from app.domain.spec.locations.paths import ReadingRules, within
from app.storage.beneath import RefusedFile
from config.fetching import FetchSettings
from workers.attempt_failed import AttemptFailed
from workers.fetching.local import LocalLister
from workers.prepare.inputs.input_library import Library
from workers.prepare.inputs.resolve_inputs import DataRequest, ModelRequest, find_script
from workers.prepare.inputs.resolve_inputs import find_data as find_requested_data
from workers.prepare.inputs.resolve_inputs import find_model as find_requested_model
from workers.sandbox.spec import FilesystemView


@pytest.fixture
def library(tmp_path):
    """A project that may read ``mine`` and the stored files of its own jobs."""
    data_dir, mine = tmp_path / "data", tmp_path / "mine"
    for directory in (data_dir / "files", data_dir / "run", mine / "model", mine / "empty"):
        directory.mkdir(parents=True)
    (data_dir / "secret.key").write_text("hunter2")
    (mine / "model" / "config.json").write_text("{}")
    (mine / "data.jsonl").write_text("{}\n")
    (mine / "nothing.jsonl").touch()
    (mine / "train.py").write_text("pass\n")
    rules = ReadingRules(roots=(str(data_dir / "files"), str(mine)), data_dir=str(data_dir), real_path=os.path.realpath)
    return Library(
        rules=rules, cache_dir=tmp_path / "cache", project="ours", project_of_job={"job-ours": "ours", "job-x": "x"}.get
    )


@pytest.fixture
def mine(tmp_path, library):
    return tmp_path / "mine"


def find_data(library, location, **fields):
    return find_requested_data(library, DataRequest(location=location, **fields))


def find_model(library, model_id, revision=None, **fields):
    return find_requested_model(library, ModelRequest(model_id=model_id, revision=revision, **fields))


def refusal(function, *arguments):
    with pytest.raises(AttemptFailed) as refused:
        function(*arguments)
    return refused.value


@pytest.mark.parametrize("form", ["{mine}/model", "file://{mine}/model", "model", "model/"])
def test_local_model_is_found(library, mine, form):
    assert find_model(library, form.format(mine=mine)).path == mine / "model"


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ("{mine}/gone", "does not exist"),
        ("{mine}/empty", "empty"),
        ("{mine}/data.jsonl", "not a directory"),
        ("/etc", "TRAINYARD_STORAGE_ROOTS"),
        ("{mine}/../data", "TRAINYARD_STORAGE_ROOTS"),
    ],
)
def test_unusable_model_is_refused(library, mine, model, said):
    refused = refusal(find_model, library, model.format(mine=mine))

    assert refused.error_type == "MODEL_NOT_FOUND"
    assert said in refused.message


def test_local_model_has_no_revisions(library, mine):
    refused = refusal(find_model, library, f"{mine}/model", "main")

    assert refused.error_type == "INVALID_CONFIG"
    assert "no revisions" in refused.message


def test_model_in_a_hub_cache_brings_the_files_that_it_links_to(library, mine):
    snapshot = mine / "models--org--tiny" / "snapshots" / "0123"
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text("{}")

    assert find_model(library, str(snapshot)).visible == mine / "models--org--tiny"


@pytest.mark.parametrize(
    ("location", "error_type"),
    [
        ("{mine}/gone.jsonl", "DATA_NOT_FOUND"),
        ("{mine}/nothing.jsonl", "DATA_INVALID"),
        ("{mine}/empty", "DATA_NOT_FOUND"),
        ("{mine}/../data/secret.key", "DATA_NOT_FOUND"),
        ("/proc/self/environ", "DATA_NOT_FOUND"),
    ],
)
def test_unusable_data_is_refused(library, mine, location, error_type):
    assert refusal(find_data, library, location.format(mine=mine)).error_type == error_type


def test_data_is_found(library, mine):
    data = find_data(library, "data.jsonl")

    assert data.path == mine / "data.jsonl"
    assert [(file.path, file.name, file.size_bytes) for file in data.files] == [(data.path, "data.jsonl", 3)]
    assert data.files[0].sha256 == hashlib.sha256(b"{}\n").hexdigest()


def test_custom_jobs_may_name_a_directory_as_data(library, mine):
    assert find_data(library, "model", custom=True).path == mine / "model"


def test_pipe_is_no_data(library, mine):
    os.mkfifo(mine / "pipe")

    assert refusal(find_data, library, "pipe").error_type == "DATA_INVALID"


def test_link_out_of_the_roots_is_refused(library, mine, tmp_path):
    (mine / "link").symlink_to(tmp_path / "data" / "secret.key")

    assert refusal(find_data, library, "link").error_type == "DATA_NOT_FOUND"


def test_stored_files_of_another_project_are_refused(library, mine, tmp_path):
    for job in ("job-ours", "job-x"):
        stored = tmp_path / "data/files/jobs" / job / "artifacts"
        stored.mkdir(parents=True)
        (stored / "config.json").write_text("{}")
    (mine / "link").symlink_to(tmp_path / "data/files/jobs/job-x/artifacts")

    assert find_model(library, str(tmp_path / "data/files/jobs/job-ours/artifacts"))
    assert refusal(find_model, library, str(mine / "link")).error_type == "MODEL_NOT_FOUND"


def test_refusal_does_not_tell_what_exists_outside(library):
    there, not_there = (refusal(find_data, library, path).message for path in ("/etc/passwd", "/etc/gone"))

    assert there.replace("passwd", "gone") == not_there


def test_missing_script_is_a_bad_configuration(library, mine):
    assert find_script(library, "train.py") == mine / "train.py"
    assert refusal(find_script, library, "gone.py").error_type == "INVALID_CONFIG"


LINES = b'{"text": "hello"}\n'


@pytest.fixture
def shards(mine):
    """A directory with files of several formats, and links that lead nowhere good."""
    directory = mine / "shards"
    (directory / "more").mkdir(parents=True)
    for name in ("b.jsonl", "a.jsonl.gz", ".hidden.jsonl", "more/c.jsonl", "README.md"):
        (directory / name).write_bytes(LINES)
    (directory / "dangling.jsonl").symlink_to(directory / "gone")
    return directory


@pytest.mark.parametrize(
    ("location", "names"),
    [
        ("shards", ["a.jsonl.gz", "b.jsonl"]),
        ("file://{mine}/shards/", ["a.jsonl.gz", "b.jsonl"]),
        ("shards/*.jsonl", ["b.jsonl"]),
        ("{mine}/shards/?.jsonl*", ["a.jsonl.gz", "b.jsonl"]),
        ("shards/[!b].*", ["a.jsonl.gz"]),
        ("*/*/*.jsonl", ["shards/more/c.jsonl"]),
    ],
)
def test_directory_or_glob_names_its_files(library, mine, shards, location, names):
    data = find_data(library, location.format(mine=mine))

    assert [file.name for file in data.files] == names
    assert all(file.path.read_bytes() == LINES for file in data.files)
    assert set(data.visible) == {file.path for file in data.files}


def test_file_with_the_name_of_a_glob_is_that_file(library, mine):
    (mine / "x[1].jsonl").write_bytes(LINES)

    assert find_data(library, "x[1].jsonl").path.name == "x[1].jsonl"


@pytest.mark.parametrize(
    ("location", "fields", "error_type", "said"),
    [
        ("shards/*.csv", {}, "DATA_NOT_FOUND", "no file matches"),
        ("shards", {"format": "csv"}, "DATA_NOT_FOUND", "no csv file"),
        ("mixed", {}, "INVALID_CONFIG", "several formats (csv, jsonl)"),
        ("many/*", {}, "INVALID_CONFIG", "TRAINYARD_FETCH_MAX_FILES"),
        ("loop" + "/*" * 40, {}, "INVALID_CONFIG", "TRAINYARD_FETCH_MAX_FILES"),
        ("leading-out", {}, "DATA_NOT_FOUND", "link to a place"),
        ("with-empty", {}, "DATA_INVALID", "b.jsonl is empty"),
    ],
)
def test_unusable_directory_is_refused(library, shards, tmp_path, location, fields, error_type, said):
    mine = shards.parent
    for name in ("mixed/a.csv", "mixed/b.jsonl", "with-empty/a.jsonl", *(f"many/{n}.jsonl" for n in range(4))):
        (mine / name).parent.mkdir(exist_ok=True)
        (mine / name).write_bytes(LINES)
    (mine / "with-empty/b.jsonl").touch()
    (mine / "loop").mkdir()
    for name in ("x", "y"):
        (mine / "loop" / name).symlink_to(".")
    (mine / "leading-out").mkdir()
    (mine / "leading-out/key.jsonl").symlink_to(tmp_path / "data/secret.key")
    limited = replace(library, fetch=FetchSettings(max_files=3))

    refused = refusal(lambda: find_data(limited, location, **fields))

    assert refused.error_type == error_type
    assert said in refused.message


def test_script_gets_a_directory_of_links_for_a_glob(library, mine, shards):
    data = find_data(library, "shards/*.jsonl*", custom=True)

    assert sorted(path.name for path in data.path.iterdir()) == ["a.jsonl.gz", "b.jsonl"]
    assert {path.resolve() for path in data.path.iterdir()} == {file.path for file in data.files}
    assert data.path in data.visible
    library.close()
    assert not data.path.exists()


def test_many_files_are_made_visible_by_their_directory(library, mine):
    (mine / "many").mkdir()
    for number in range(100):
        (mine / f"many/{number}.jsonl").write_bytes(LINES)

    assert find_data(library, "many").visible == (mine / "many",)


def test_digest_follows_the_content(library, mine):
    path = mine / "data.jsonl"
    before = find_data(library, "data.jsonl").sha256
    status = path.stat()
    path.write_text("[]\n")
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))

    assert find_data(library, "data.jsonl").sha256 != before


@pytest.fixture
def claims(library, tmp_path):
    """The library with one volume claim, ``corpus``, that holds data, a model, and ways out."""
    corpus = tmp_path / "volumes" / "ours" / "corpus"
    (corpus / "model").mkdir(parents=True)
    (corpus / "model/config.json").write_text("{}")
    (corpus / "a.jsonl").write_bytes(LINES)
    (corpus / "out").symlink_to(tmp_path / "data")
    (corpus / "out.jsonl").symlink_to(tmp_path / "data/secret.key")
    rules = replace(library.rules, claims_dir=str(tmp_path / "volumes"))
    return replace(library, rules=rules, fetch=FetchSettings(pvc_dir=tmp_path / "volumes", pvc_shared=("all",)))


def test_volume_claims_are_used_in_place(claims, tmp_path):
    corpus = tmp_path / "volumes/ours/corpus"

    assert find_data(claims, "pvc://corpus/a.jsonl").path == corpus / "a.jsonl"
    assert [file.name for file in find_data(claims, "pvc://corpus/[a]*.jsonl").files] == ["a.jsonl"]
    assert find_model(claims, "pvc://corpus/model").path == corpus / "model"


def test_claims_belong_to_their_project_unless_the_operator_shares_them(claims, mine, tmp_path):
    for name in ("theirs/corpus", "all"):
        (tmp_path / "volumes" / name).mkdir(parents=True)
        (tmp_path / "volumes" / name / "a.jsonl").write_bytes(LINES)
    others = replace(claims, project="theirs")
    (mine / "link").symlink_to(tmp_path / "volumes")

    assert find_data(others, "pvc://corpus/a.jsonl").path == tmp_path / "volumes/theirs/corpus/a.jsonl"
    assert find_data(claims, "pvc://all/a.jsonl").path == find_data(others, "pvc://all/a.jsonl").path
    for path in (tmp_path / "volumes/theirs/corpus/a.jsonl", tmp_path / "volumes/ours/corpus", mine / "link"):
        assert "outside every directory that jobs may read" in refusal(find_data, claims, str(path)).message


def test_buckets_are_directories_where_the_operator_says_so(library, tmp_path):
    (tmp_path / "buckets/Team_1").mkdir(parents=True)
    (tmp_path / "buckets/Team_1/a.jsonl").write_bytes(LINES)
    local = replace(library, fetch=FetchSettings(obs_dir=tmp_path / "buckets"))

    assert find_data(local, "obs://Team_1/a.jsonl").path == tmp_path / "buckets/Team_1/a.jsonl"
    assert "this node has no bucket other" in refusal(find_data, local, "obs://other/a.jsonl").message
    assert "is no name of a bucket; the form is obs://bucket/path" in refusal(find_data, local, "obs://-/a").message


@pytest.mark.parametrize(
    ("location", "error_type", "said"),
    [
        ("pvc://corpus/gone.jsonl", "DATA_NOT_FOUND", "does not exist"),
        ("pvc://other/a.jsonl", "DATA_NOT_FOUND", "no volume claim other of the project ours"),
        ("pvc://theirs/corpus/a.jsonl", "DATA_NOT_FOUND", "no volume claim theirs of the project ours"),
        ("pvc://corpus/../../data/secret.key", "INVALID_CONFIG", "leaves the volume claim"),
        ("pvc://corpus/out/secret.key", "INVALID_CONFIG", "leaves the volume claim"),
        ("pvc://corpus/*.jsonl", "DATA_NOT_FOUND", "link to a place"),
        ("pvc://../a.jsonl", "INVALID_CONFIG", "no name of a volume claim"),
    ],
)
def test_nothing_leads_out_of_a_volume_claim(claims, location, error_type, said):
    refused = refusal(find_data, claims, location)

    assert refused.error_type == error_type
    assert said in refused.message


def test_claim_is_mounted_whole_because_no_job_can_exchange_it(claims, tmp_path):
    corpus = tmp_path / "volumes/ours/corpus"
    found = (find_data(claims, "pvc://corpus/a.jsonl").path, find_model(claims, "pvc://corpus/model").visible)
    readable, known = (*found, tmp_path / "mine/model"), tuple(claims.claims)

    view = FilesystemView(run_dir=tmp_path, data_dir=tmp_path, readable=readable, claims=known)

    assert (known, view.shown) == ((corpus,), (corpus, tmp_path / "mine/model"))


def test_what_becomes_a_link_after_it_was_found_is_not_read_out_of_a_claim(claims, tmp_path):
    """Another job of the project may write to the claim at any time."""
    file = tmp_path / "volumes/ours/corpus/a.jsonl"
    find_data(claims, "pvc://corpus/a.jsonl")
    file.unlink()
    file.symlink_to(tmp_path / "data/secret.key")

    with pytest.raises(RefusedFile, match=r"a\.jsonl is a link that leads out of corpus"):
        claims.digests.of(file)
    with pytest.raises(RefusedFile, match=r"a\.jsonl is a link that leads out of corpus"), claims.opened(file):
        pass


def test_pipe_in_place_of_a_file_of_a_claim_holds_nobody_up(claims, tmp_path):
    file = tmp_path / "volumes/ours/corpus/a.jsonl"
    find_data(claims, "pvc://corpus/a.jsonl")
    file.unlink()
    os.mkfifo(file)

    with pytest.raises(RefusedFile, match="is not a regular file"):
        claims.digests.of(file)


def test_directory_that_became_a_link_is_not_listed(claims, tmp_path):
    corpus = tmp_path / "volumes/ours/corpus"
    lister = LocalLister(functools.partial(within, directory=str(corpus)))
    (corpus / "model").rename(corpus / "moved")
    (corpus / "model").symlink_to(tmp_path / "data")

    assert list(lister.children(f"{corpus}/model")) == []
    assert [Path(each.path).name for each in lister.children(f"{corpus}/moved")] == ["config.json"]


def test_volume_claims_that_are_not_set_up_name_the_setting(library):
    refused = refusal(find_data, library, "pvc://corpus/a.jsonl")

    assert refused.error_type == "INVALID_CONFIG"
    assert "TRAINYARD_FETCH_PVC_DIR" in refused.message
