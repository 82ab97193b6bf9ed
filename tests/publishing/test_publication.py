"""Real child processes publish what a job asks for, against real servers."""

import json
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cryptography.fernet import Fernet

from app.domain.spec.model import JobDocument
from app.host import processes
from app.security.secrets import SecretBox
from app.services.attempts.work_orders import WorkOrder
from config.settings import Settings, load_settings
from tests.doubles.hub import OWNER, READ_TOKEN, STRANGER_TOKEN, TOKEN
from tests.doubles.outbound_proxy import company_proxy
from tests.doubles.shares import TOKEN as USER_TOKEN
from tests.publishing.conftest import FILES, JOB
from tests.systems.places import BUCKET, KEY, SECRET
from workers.attempt_failed import AttemptFailed
from workers.publishing.copying import MARKER
from workers.publishing.failures import NotPublished
from workers.publishing.places import destination
from workers.publishing.preflight import check_output
from workers.publishing.runner import Publication, Published, log_options

REPOSITORY = f"{OWNER}/tiny"
PUSH = {"push_to_hub": True, "hub_repo_id": REPOSITORY}


class Node:
    """The settings of a node, and jobs that want something of it."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "root"
        self.claims = folder / "claims"
        self.data_dir = folder / "data"
        self._key = Fernet.generate_key().decode()
        for directory in (self.root, self.claims / "default/team", self.data_dir / "files" / "jobs"):
            directory.mkdir(parents=True)

    def settings(self, **more: str) -> Settings:
        return load_settings(
            {
                "TRAINYARD_DATA_DIR": str(self.data_dir),
                "TRAINYARD_STORAGE_ROOTS": str(self.root),
                "TRAINYARD_SECURITY_SECRET_KEY": self._key,
                "TRAINYARD_FETCH_PVC_DIR": str(self.claims),
                "TRAINYARD_PUBLISH_RETRY_SECONDS": "0.01",
                **more,
            }
        )

    def work(self, secrets: dict[str, str] | None = None, **output: Any) -> WorkOrder:
        return WorkOrder(
            job_id=JOB,
            project="default",
            name="tiny",
            attempt=1,
            fence=1,
            lease_id="lease-1",
            node="local",
            node_names=("local",),
            part=0,
            framework="HF_TRAINER",
            training_type="SFT",
            document=JobDocument.from_json({"output_config": output}),
            sealed_secrets=SecretBox(self._key).seal(secrets) if secrets else "",
            devices=(),
            threads_per_rank=1,
            resume=(),
            max_runtime_seconds=None,
            ran_seconds=0.0,
        )


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


@pytest.fixture
def publish(node, order) -> Callable[..., Published]:
    def carry_out(secrets: dict[str, str] | None = None, settings: dict[str, str] | None = None, **output: Any):
        return Publication(node.settings(**(settings or {})), node.work(secrets, **output), order).carry_out()

    return carry_out


def tree(directory: Path) -> dict[str, bytes]:
    found = {str(p.relative_to(directory)): p.read_bytes() for p in directory.rglob("*") if p.is_file()}
    return {path: data for path, data in found.items() if path != MARKER}


def test_without_a_request_nothing_is_published(publish):
    assert publish() == Published()


# ---- places


@pytest.mark.parametrize("form", ["{root}/out", "out", "file://{root}/out", "{root}/deep/er/out/"])
def test_model_is_published_to_a_local_directory(publish, node, form):
    done = publish(output_path=form.format(root=node.root))

    target = node.root / ("deep/er/out" if "deep" in form else "out")
    assert (done.failures, done.uri) == ([], f"file://{target}")
    assert tree(target) == FILES


def test_model_is_published_to_a_volume_claim(publish, node):
    done = publish(output_path="pvc://team/models/out")

    assert (done.failures, done.uri) == ([], "pvc://team/models/out")
    assert tree(node.claims / "default/team/models/out") == FILES


def test_claim_that_the_operator_shares_belongs_to_no_project(publish, node):
    (node.claims / "common").mkdir()

    done = publish(settings={"TRAINYARD_FETCH_PVC_SHARED": "common"}, output_path="pvc://common/out")

    assert (done.failures, done.uri) == ([], "pvc://common/out")
    assert tree(node.claims / "common/out") == FILES


def test_output_lies_below_the_root_of_its_project(publish, node):
    own = {"TRAINYARD_STORAGE_OUTPUT_ROOTS": f"{node.root}/out/{{project}}"}

    assert publish(settings=own, output_path="a").uri == f"file://{node.root}/out/default/a"
    assert publish(settings=own, output_path=f"{node.root}/out/default/b").uri == f"file://{node.root}/out/default/b"
    for place in (f"{node.root}/out/other/a", f"{node.root}/a", f"{node.root}/out/default-2/a"):
        failures = publish(settings=own, output_path=place).failures
        assert f"which are written below {node.root}/out/default;" in str(failures)


@pytest.mark.parametrize("scheme", ["pvc", "oci", "obs"])
def test_scheme_without_configuration_is_a_directory_of_the_installation(publish, node, scheme):
    own = {"TRAINYARD_FETCH_PVC_DIR": ""}

    done = publish(settings=own, output_path=f"{scheme}://newcomer/models/out")

    assert (done.failures, done.uri) == ([], f"{scheme}://newcomer/models/out")
    volume = node.data_dir / "files" / scheme / ("default" if scheme == "pvc" else "") / "newcomer"
    assert tree(volume / "models/out") == FILES
    assert (volume.stat().st_mode & 0o077 == 0) == (scheme == "pvc")


def test_a_volume_of_the_installation_leads_nowhere_else(publish, node):
    claims = node.data_dir / "files/pvc/default"
    claims.mkdir(parents=True)
    (claims / "team").symlink_to(node.data_dir)

    done = publish(settings={"TRAINYARD_FETCH_PVC_DIR": ""}, output_path="pvc://team/models/out")

    assert "platform stores its own files" in str(done.failures)
    assert not (node.data_dir / "models").exists()


@pytest.mark.long
def test_model_is_published_to_a_bucket(publish, s3):
    settings = {
        "TRAINYARD_FETCH_OBS_ENDPOINT": s3.url,
        "TRAINYARD_FETCH_OBS_KEY": KEY,
        "TRAINYARD_FETCH_OBS_SECRET": SECRET,
    }
    s3.client.put_object(Bucket=BUCKET, Key="models/out/README.md", Body=b"theirs")

    done = publish(settings=settings, output_path=f"obs://{BUCKET}/models/out")

    assert (done.failures, done.uri, done.beside) == ([], f"obs://{BUCKET}/models/out/{JOB}", True)
    stored = s3.files(f"models/out/{JOB}/")
    assert json.loads(stored.pop(MARKER))["complete"]
    assert stored == FILES


@pytest.mark.long
def test_logs_of_an_attempt_are_published_to_a_bucket_of_logs(node, order, s3):
    obs = {"ENDPOINT": s3.url, "KEY": KEY, "SECRET": SECRET}
    settings = node.settings(**{f"TRAINYARD_FETCH_OBS_{name}": value for name, value in obs.items()})
    work = node.work(log_path=f"obs://{BUCKET}/logs/", output_path=f"obs://{BUCKET}/models")

    check_output(settings, work)
    done = Publication(settings, work, order, options=log_options(work, "job-1/attempt-1")).carry_out()

    assert (done.failures, done.uri) == ([], f"obs://{BUCKET}/logs/job-1/attempt-1")
    assert {name for name in s3.files("logs/job-1/attempt-1/") if name != MARKER} == {*FILES}
    assert s3.files("models/") == {}


def test_a_bucket_that_jobs_may_not_use(publish, s3):
    done = publish(settings={"TRAINYARD_FETCH_S3_BUCKETS": "other"}, output_path=f"s3://{BUCKET}/out")

    assert "is none of those that jobs may use" in done.failures[0]
    assert s3.files("") == {}


def test_model_is_published_to_a_drive_with_the_users_token(publish, share):
    settings = {"TRAINYARD_FETCH_SCAIDRIVE_URL": share.url}
    share.broken = [0, 0, 503]

    done = publish({"forwarded.scaidrive": USER_TOKEN}, settings, output_path="scaidrive://mine/my models/out")

    assert (done.failures, done.uri) == ([], "scaidrive://mine/my models/out")
    assert {path: data for path, data in share.below("mine/my models/out").items() if path != MARKER} == FILES


def test_drive_without_a_token_is_refused(publish, share):
    done = publish(settings={"TRAINYARD_FETCH_SCAIDRIVE_URL": share.url}, output_path="scaidrive://mine/out")

    assert "X-ScaiDrive-Token" in done.failures[0]
    assert share.files == {}


# ---- places that are not writable


def test_places_of_the_platform_and_outside_the_roots_are_refused(node, tmp_path):
    (node.root / "way-out").symlink_to(tmp_path)
    (node.root / "inside").symlink_to(node.data_dir / "files")
    (node.claims / "default/team/way-out").symlink_to(tmp_path)
    (node.claims / "default/team/inside").symlink_to(node.data_dir)
    (node.claims / "other/team").mkdir(parents=True)
    (node.root / "claims").symlink_to(node.claims)
    settings = node.settings()
    refused = [
        str(tmp_path / "out"),
        "/etc/out",
        f"{node.root}/way-out/out",
        f"{node.root}/inside/out",
        "../out",
        str(node.data_dir),
        f"{node.data_dir}/files/jobs/x",
        "inside/jobs/x",
        "pvc://team/way-out/out",
        "pvc://team/inside/x",
        "pvc://unknown/x",
        "pvc://other/team/x",
        "pvc://default/team/x",
        str(node.claims / "other/team/x"),
        "claims/default/team/x",
        "pvc://team/../x",
    ]

    for location in refused:
        with pytest.raises(NotPublished):
            destination(settings, "default", location)


def test_the_storage_in_a_bucket_is_the_platforms_own(node):
    settings = node.settings(
        TRAINYARD_STORAGE_URL="s3://company/trainyard", TRAINYARD_FETCH_OBS_ENDPOINT="https://obs.example.com"
    )

    for location in ("s3://company/trainyard", "s3://company/trainyard/jobs/x", "obs://company/trainyard/x"):
        with pytest.raises(NotPublished, match="own files"):
            destination(settings, "default", location)
    assert (
        destination(settings, "default", "s3://company/trainyard-results/x").uri == "s3://company/trainyard-results/x"
    )


# ---- the hub


def test_a_push_makes_a_private_repository_in_one_commit_and_none_when_repeated(publish, hub):
    for _ in range(2):
        done = publish({"output_config.hub_token": TOKEN}, **PUSH)
        assert (done.failures + done.passing, done.hub_url) == ([], f"{hub.url}/{REPOSITORY}")

    assert hub.files(REPOSITORY) == FILES
    assert hub.head(REPOSITORY).message == f"Trained by job {JOB} (tiny)"
    assert hub.repository(REPOSITORY).private
    assert len(hub.asked("POST .*/commit/")) == 1


@pytest.mark.long
def test_a_push_by_the_nodes_own_token_into_a_public_repository(publish, hub, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    hub.fail("POST /api/repos/create", 500)
    hub.fail("PUT /upload/", 503)

    done = publish(**PUSH, hub_private=False)

    assert done.failures + done.passing == []
    assert not hub.repository(REPOSITORY).private
    assert hub.files(REPOSITORY) == FILES


def test_a_push_that_is_not_allowed_fails_at_once_and_the_copy_is_made_all_the_same(publish, hub, node):
    done = publish({"output_config.hub_token": STRANGER_TOKEN}, **PUSH, output_path="out")

    assert tree(node.root / "out") == FILES
    assert len(done.failures) == 1
    assert done.failures[0].startswith("push_to_hub: acme/tiny: the hub answers 403")
    assert len(hub.asked("POST /api/repos/create")) == 1


@pytest.mark.long
def test_a_hub_behind_a_proxy_is_pushed_to(publish, hub, monkeypatch):
    hub.url = hub.url.replace("127.0.0.1", "hub.example.org")
    monkeypatch.setenv("HF_ENDPOINT", hub.url)
    with company_proxy() as proxy:
        done = publish({"output_config.hub_token": TOKEN}, {"TRAINYARD_FETCH_PROXY": proxy.url}, **PUSH)
    assert (done.failures + done.passing, hub.files(REPOSITORY)) == ([], FILES)


# ---- children that hang or die


@pytest.mark.long
def test_an_upload_that_hangs_is_ended_and_begun_again(publish, hub):
    hub.stall("POST .*/preupload/")

    done = publish({"output_config.hub_token": TOKEN}, {"TRAINYARD_PUBLISH_STALLED_SECONDS": "4"}, **PUSH)

    assert done.failures + done.passing == []
    assert hub.files(REPOSITORY) == FILES


def uploading() -> list[int]:
    return [
        pid
        for pid in processes.descendants(processes.own_identity().pid)
        if b"workers.publishing" in Path(f"/proc/{pid}/cmdline").read_bytes()
    ]


def test_a_child_that_is_killed_is_followed_by_another_and_never_shows_the_token(node, order, hub):
    hub.stall("POST .*/commit/")
    work = node.work({"output_config.hub_token": TOKEN}, **PUSH)
    done = threading.Event()
    publication = Publication(node.settings(), work, order, on_done=done.set)
    publication.start()
    assert hub.stalled.wait(20)
    (child,) = uploading()
    assert TOKEN.encode() not in Path(f"/proc/{child}/cmdline").read_bytes()
    assert TOKEN.encode() not in Path(f"/proc/{child}/environ").read_bytes()

    processes.kill([child])
    assert done.wait(20)
    publication.stop()

    assert publication.result is not None
    assert publication.result.failures + publication.result.passing == []
    assert hub.files(REPOSITORY) == FILES


def test_a_publication_that_is_stopped_leaves_no_process(node, order, hub):
    hub.stall("POST .*/preupload/")
    publication = Publication(node.settings(), node.work({"output_config.hub_token": TOKEN}, **PUSH), order)
    publication.start()
    assert hub.stalled.wait(20)

    publication.stop()

    assert publication.result is None
    assert uploading() == []


# ---- before the training


def test_what_cannot_work_is_found_out_before_anything_is_trained(node, hub, share):
    (node.root / "file").write_text("a file")
    drive = {"TRAINYARD_FETCH_SCAIDRIVE_URL": share.url}

    def refusal(secrets: dict[str, str] | None = None, **output: Any) -> str:
        with pytest.raises(AttemptFailed) as failed:
            check_output(node.settings(**drive), node.work(secrets, **output))
        assert failed.value.error_type == "INVALID_CONFIG"
        return failed.value.message

    assert "name a directory" in refusal(output_path="file/out")
    assert "own" in refusal(output_path=str(node.data_dir))
    assert refusal(log_path="file/logs").startswith("log_path file/logs: ")
    assert "is read-only" in refusal({"output_config.hub_token": READ_TOKEN}, **PUSH)
    assert "token" in refusal({"forwarded.user": "stale"}, output_path="scaidrive://mine/out")


def test_no_later_attempt_is_given_up_for_its_logs(node):
    (node.root / "file").write_text("a file")

    check_output(node.settings(), replace(node.work(log_path="file/logs"), attempt=2))

    with pytest.raises(AttemptFailed, match="output_path"):
        check_output(node.settings(), replace(node.work(output_path="file/out"), attempt=2))


def test_what_works_is_left_as_it_was(node, hub, caplog):
    hub.fail("GET /api/whoami", 503)  # a hub that is away now may be back when the training ends
    check_output(node.settings(), node.work({"output_config.hub_token": TOKEN}, **PUSH, output_path="a/b"))
    check_output(node.settings(), node.work())

    assert list(node.root.iterdir()) == []
    assert caplog.text.count("could not be published now") == 1
    assert len(hub.asked("GET /api/whoami")) == 1
