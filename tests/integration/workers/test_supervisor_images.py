"""Jobs in container images: what they see, what they may change, which images they may have, and hostile ones."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from app.domain.lifecycle.events import EventType
from app.domain.lifecycle.states import JobState
from app.host.overlays import lack_of_overlays
from app.host.own_users import lack_of_own_users, record_verdict
from app.models import Attempt, Checkpoint
from app.services.access import projects
from tests.builders.factories import make_document, make_job
from tests.systems import images
from tests.systems.people import open_sandbox, run
from tests.systems.supervising import World

pytestmark = pytest.mark.long

UIDS = "3100000-3100007"
PASSWD = b"root:x:0:0::/:/bin/sh\napp:x:4321:55:App:/app:/bin/sh\n"


@pytest.fixture(scope="module", autouse=True)
def _a_kernel_with_overlays(tmp_path_factory: pytest.TempPathFactory) -> None:
    if lack := lack_of_overlays(tmp_path_factory.mktemp("overlays")):
        pytest.skip(f"the kernel mounts no overlay for this user: {lack}")


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A registry."""
    with images.registry(tmp_path_factory.mktemp("registry") / "public") as host:
        yield host


@pytest.fixture
def node(make_world: Callable[..., World], host: str) -> World:
    return make_world(TRAINYARD_IMAGES_SOURCES=f"{host}/team", TRAINYARD_IMAGES_PLAIN_HTTP=host)


def submit(
    world: World, reference: str, command: str = "", *, project: str = "default", device: int = 0, **document: Any
) -> str:
    """A job with a shell command, or with the image's own."""
    image = {"reference": reference, **document.pop("image", {})}
    framework: dict[str, Any] = {"type": "CUSTOM", **document.pop("framework", {})}
    if command:
        framework["custom_command"] = ["sh", "-c", command]
    asked = make_document(
        training_config={"base_model": {"model_id": "none"}, "framework": framework, **document.pop("training", {})},
        data_config={"sources": [{"path": str(world.directory / "mine/data.jsonl")}]},
        resource_config={"gpu_count": 1, "image": image, **document.pop("resources", {})},
        **document,
    )
    with world.db.write() as session:
        projects.ensure(session, project, actor="test")
        job_id = make_job(session, document=asked, project=project).id
    world.take_up(job_id, first_device=device)
    return job_id


def lines(world: World, reference: str, command: str = "", **more: Any) -> list[str]:
    """What a job prints that completes."""
    job_id = submit(world, reference, command, **more)
    assert world.wait_for_end(job_id).state is JobState.COMPLETED, world.describe(job_id)
    return world.log(job_id)


def failure(world: World, reference: str, command: str = "true", **more: Any) -> Attempt:
    job_id = submit(world, reference, command, **more)
    assert world.wait_for_end(job_id).state in (JobState.FAILED, JobState.QUEUED), world.describe(job_id)
    return world.attempt(job_id)


def local(world: World, name: str, *layers: Any, **config: Any) -> str:
    """A reference to a new image in the storage root."""
    images.make_image(world.directory / "mine" / name, *layers, **config)
    return f"oci:{world.directory}/mine/{name}:v1"


def test_job_has_the_files_the_environment_and_the_user_of_its_image(node: World) -> None:
    files = [("etc", None), ("etc/passwd", PASSWD), ("data.txt", b"of the image")]
    config = {"Env": ["GREETING=hello", "PATH=/bin:/opt/bin"], "User": "app", "WorkingDir": "/srv/new"}
    image = local(node, "image", files, **config)

    found = lines(
        node,
        image,
        "id; pwd; echo $GREETING $PATH $MODE; cat /data.txt; echo; ls /; echo $USER; readlink -f /proc/self/exe; "
        "cat $TRAINYARD_DATA_0; echo ours > $TRAINYARD_OUTPUT_DIR/model.txt",
        training={"environment": {"MODE": "fast"}},
    )

    assert found[:4] == ["uid=4321(app) gid=55(app)", "/srv/new", "hello /bin:/opt/bin fast", "of the image"]
    assert not {"usr", "lib", "home", "root"} & set(found)  # of the machine's own root
    assert {"bin", "data.txt", "app", "/bin/busybox", '{"text": "hello"}'} <= set(found)


def test_user_of_the_document_takes_the_place_of_the_images(node: World) -> None:
    image = local(node, "image", [("etc", None), ("etc/passwd", PASSWD)], User="root")

    def user_of(**user: int) -> list[str]:
        return lines(node, image, "id; echo $USER", resources={"user": user})

    assert user_of() == ["uid=1000(job) gid=1000(job)", "job"]
    assert user_of(uid=4321) == ["uid=4321(app) gid=55(app)", "app"]
    assert user_of(uid=77, gid=5) == ["uid=77(job) gid=5(job)", "job"]


def test_group_that_no_process_may_have_is_not_taken_from_the_image(node: World) -> None:
    passwd = b"app:x:4321:99999999999:App:/app:/bin/sh\n"
    image = local(node, "image", [("etc", None), ("etc/passwd", passwd)])

    assert lines(node, image, "id -u; id -g", resources={"user": {"uid": 4321}}) == ["4321", "4321"]


def test_file_of_the_document_lies_beside_those_of_the_image(node: World) -> None:
    image = local(node, "image", [("opt", None), ("opt/kept", b"of the image")])
    files = [{"name": "tuning.yaml", "content": "of the document"}]
    mount = {"path": "/opt/own.yaml", "type": "files", "files": files, "sub_path": "tuning.yaml"}

    found = lines(node, image, "ls /opt; cat /opt/kept /opt/own.yaml | wc -c", resources={"mounts": [mount]})

    assert found == ["kept", "own.yaml", str(len("of the image") + len("of the document"))]


def test_files_of_an_image_can_be_read_only(node: World) -> None:
    image = local(node, "image", [("opt", None)], WorkingDir="/srv/new")
    attempts = (
        "for each in /new /opt/new /srv/new/x /tmp/x $TRAINYARD_OUTPUT_DIR/x; do echo x > $each; done; pwd; ls /opt"
    )

    found = lines(node, image, f"({attempts}) 2>&1; true", image={"read_only": True})

    assert [line.partition("create ")[2] for line in found if "Read-only" in line] == [
        "/new: Read-only file system",
        "/opt/new: Read-only file system",
        "/srv/new/x: Read-only file system",
    ]
    assert found[-1] == "/srv/new"


def test_program_of_the_image_runs_where_the_document_names_none(node: World) -> None:
    image = local(node, "image", Entrypoint=["sh", "-c", 'echo "$0 $@"'], Cmd=["of", "the image"])

    assert lines(node, image) == ["of the image"]
    assert lines(node, image, framework={"custom_arguments": ["of", "the", "document"]}) == ["of the document"]
    assert failure(node, local(node, "none"), "").end_reason == (
        "resource_config.image: it has neither an entrypoint nor a command; set "
        "training_config.framework.custom_command"
    )


def test_jobs_may_write_everywhere_and_none_sees_it(node: World) -> None:
    image = local(node, "image", [("opt", None), ("opt/kept", b"as it was")])
    change = "echo changed > /opt/kept && echo more > /new && rm /bin/env && cat /opt/kept /new && ls /bin/env"

    first = submit(node, image, f"{change}; true")
    assert node.wait_for_end(first).state is JobState.COMPLETED, node.describe(first)

    assert node.log(first)[:2] == ["changed", "more"]
    assert "No such file" in node.log(first)[2]
    assert lines(node, image, "cat /opt/kept; echo; ls /; ls /bin/env")[0] == "as it was"
    assert "new" not in lines(node, image, "ls /")


def test_what_an_attempt_wrote_goes_with_it_and_counts_as_its_files(make_world: Callable[..., World]) -> None:
    world = make_world(TRAINYARD_NODE_MAX_STORAGE_MB="20")
    image = local(world, "image")

    lines(world, image, "echo small > /new")
    found = failure(world, image, "for n in 1 2 3 4 5 6; do cat /bin/busybox > /$n; done; cat /? > /all; sleep 60")

    assert found.cause == "DISK_LIMIT_EXCEEDED"
    assert not list((world.data_dir / "run" / "jobs").glob("*/*/image/upper/*"))


def test_same_tag_is_the_same_image_until_the_registry_is_asked(node: World, host: str, tmp_path: Path) -> None:
    for text in (b"one", b"two"):
        images.make_image(tmp_path / text.decode(), [("text", text)])
    name = f"{host}/team/tagged:v1"
    assert "no image" in str(failure(node, name).end_reason)

    images.push(tmp_path / "one", name)
    assert lines(node, name, "cat /text") == ["one"]
    images.push(tmp_path / "two", name)

    assert lines(node, name, "cat /text") == ["one"]
    assert lines(node, name, "cat /text", image={"pull_policy": "always"}) == ["two"]
    assert lines(node, name, "cat /text", image={"pull_policy": "never"}) == ["two"]


def test_history_names_the_digest_and_a_digest_names_the_image(node: World, host: str, tmp_path: Path) -> None:
    digest = images.make_image(tmp_path / "image", [("text", b"exactly")])
    images.push(tmp_path / "image", f"{host}/team/exact:v1")
    exact = f"{host}/team/exact@{digest}"

    job_id = submit(node, exact, "cat /text")
    assert node.wait_for_end(job_id).state is JobState.COMPLETED, node.describe(job_id)

    (event,) = (event for event in node.events(job_id) if event.type == EventType.IMAGE)
    assert event.data["digest"] == digest
    assert event.message.startswith(f"{exact} is the image {digest}, fetched in ")
    other = failure(node, f"{host}/team/exact@sha256:{'0' * 64}")
    assert (other.cause, "there is no image" in str(other.end_reason)) == ("INVALID_CONFIG", True)


def test_digest_that_the_registry_does_not_keep_to_is_refused(node: World, host: str, tmp_path: Path) -> None:
    digest = images.make_image(tmp_path / "image", [("text", b"of no other test")])  # a registry keeps equal blobs once
    images.push(tmp_path / "image", f"{host}/team/false:v1")
    stored = next((tmp_path.parent).parent.rglob(f"files/**/blobs/sha256/*/{digest.removeprefix('sha256:')}/data"))
    stored.write_bytes(stored.read_bytes().replace(b'"schemaVersion": 2', b'"schemaVersion":  2'))

    found = failure(node, f"{host}/team/false@{digest}")

    assert found.cause in ("INVALID_CONFIG", "STORAGE_ERROR")
    assert "digest" in str(found.end_reason)


def test_image_of_a_private_registry_is_for_projects_with_a_login(
    make_world: Callable[..., World], tmp_path: Path
) -> None:
    with images.registry(tmp_path / "private", private=True) as host:
        world = make_world(
            TRAINYARD_IMAGES_SOURCES=f"{host}/{{project}},{host}/shared",
            TRAINYARD_IMAGES_PLAIN_HTTP=host,
            TRAINYARD_IMAGES_AUTH_FILE=str(tmp_path / "logins" / "{project}.json"),
        )
        (tmp_path / "logins").mkdir()
        (tmp_path / "logins" / "red.json").write_text(images.logins(host))
        images.make_image(tmp_path / "image", [("text", b"private")])
        images.push(tmp_path / "image", f"{host}/shared/tool:v1", images.LOGIN)

        assert lines(world, f"{host}/shared/tool:v1", "cat /text", project="red") == ["private"]
        refused = failure(world, f"{host}/shared/tool:v1", project="blue")  # though the node has it
        foreign = failure(world, f"{host}/red/tool:v1", project="blue")

    assert refused.cause == "INVALID_CONFIG"
    assert f"read from {tmp_path}/logins/blue.json" in str(refused.end_reason)
    assert "TRAINYARD_IMAGES_SOURCES" in str(foreign.end_reason)


@pytest.mark.parametrize(
    ("members", "says"),
    [
        ([("etc", "../../../../../../../OUTSIDE")], "/etc is a link in the image, where the sandbox needs /etc/passwd"),
        ([("etc", "/OUTSIDE"), ("etc/passwd", b"root::0:0::/:/bin/sh\n")], "/etc is a link in the image"),
        ([("proc", "/OUTSIDE")], "/proc is a link in the image, where the sandbox needs /proc"),
        ([("dev", b"a file")], "/dev is a file in the image"),
        ([(".trainyard", "/OUTSIDE")], "/.trainyard is a link in the image"),
        ([("../../escaped", b"x")], None),
        ([("a", "/OUTSIDE"), ("a/escaped", b"x")], None),
    ],
)
def test_links_out_of_an_image_lead_nowhere(
    node: World, tmp_path: Path, members: list[images.Member], says: str | None
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    real = [
        (path, what.replace("OUTSIDE", str(outside)[1:]) if isinstance(what, str) else what) for path, what in members
    ]
    image = local(node, "image", real)

    if says is None:
        lines(node, image, "ls /")
    else:
        found = failure(node, image)
        assert found.cause == "INVALID_CONFIG"
        assert f"resource_config.image: {says}" in str(found.end_reason)

    assert list(outside.iterdir()) == []
    assert not list(node.data_dir.rglob("escaped")) or says is None


def test_image_that_unpacks_to_too_much_is_given_up(make_world: Callable[..., World]) -> None:
    world = make_world(TRAINYARD_IMAGES_MAX_BYTES=str(100 << 20))
    image = local(world, "bomb", zeros=400 << 20)

    found = failure(world, image)

    assert found.cause == "INVALID_CONFIG"
    assert "takes more than 104857600 bytes" in str(found.end_reason)
    assert not list((world.data_dir / "cache" / "images").glob("*/root"))


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({"User": "nobodyhere"}, "its user is nobodyhere"),
        ({"machine": "s390x"}, "it is for linux/s390x, and this node"),
        ({"Env": ["A=a\0b"]}, "its description can't be read"),
        ({"Entrypoint": ["sh", 1]}, "1 is no text of a command line"),
    ],
)
def test_image_that_cannot_run_here_is_named(node: World, config: dict[str, Any], says: str) -> None:
    found = failure(node, local(node, "image", **config))

    assert (found.cause, says in str(found.end_reason)) == ("INVALID_CONFIG", True)


@pytest.mark.parametrize("transport", ["oci-archive", "docker-archive"])
def test_image_may_be_one_file(node: World, transport: str) -> None:
    images.make_image(node.directory / "mine" / "image", [("text", b"of the file")], WorkingDir="srv/./here")
    archive = f"{transport}:{node.directory}/mine/image.tar"
    images.copy(node.directory / "mine" / "image", archive)

    assert lines(node, archive, "cat /text; echo; pwd") == ["of the file", "/srv/here"]


def test_program_that_the_image_lacks_is_named(node: World) -> None:
    job_id = submit(node, local(node, "image"), framework={"custom_command": ["python3", "train.py"]})

    assert node.wait_for_end(job_id).state is JobState.FAILED, node.describe(job_id)
    assert node.attempt(job_id).end_reason == "rank 0 ended with exit code 127"
    assert node.log(job_id) == ["python3: No such file or directory: the rank can't be started"]


def test_least_recently_used_images_go_first_and_none_that_is_used(make_world: Callable[..., World]) -> None:
    world = make_world(TRAINYARD_IMAGES_CACHE_BYTES=str(5 << 20))  # two of them
    first, second, third = (local(world, str(n), [("n", str(n).encode())]) for n in range(3))
    kept = world.data_dir / "cache" / "images"

    sleeping = submit(world, first, "echo up; sleep 60")
    world.wait(lambda: "up" in world.log(sleeping), 30, sleeping)
    lines(world, second, "cat /n", device=1)
    lines(world, third, "cat /n", device=1)

    texts = {path.read_text() for path in kept.glob("*/root/n")}
    assert texts == {"0", "2"}
    assert len(list(kept.glob("*/image.json"))) == 2


def test_mounts_lie_at_their_paths_in_an_image(node: World) -> None:
    image = local(node, "image", [("var", None), ("var/run", "/elsewhere"), ("data", None)])
    mounts = [{"path": "/data/in.jsonl", "type": "data"}, {"path": "/workspace/out", "type": "output"}]

    assert lines(node, image, "cat /data/in.jsonl; touch /workspace/out/x", resources={"mounts": mounts}) == [
        '{"text": "hello"}'
    ]
    for path, kind, says in (
        ("/var/run/out", "output", "would replace a file in the image"),
        ("/data", "data", "is a directory in the image"),
    ):
        found = failure(node, image, resources={"mounts": [{"path": path, "type": kind}]})
        assert f"resource_config.mounts: {path} {says}" in str(found.end_reason)


def test_files_of_a_command_are_its_checkpoints_in_an_image_too(node: World) -> None:
    image = local(node, "image", WorkingDir="/elsewhere")
    job_id = submit(node, image, "pwd; echo state > state-7", framework={"config": {"checkpoint_glob": "state-*"}})

    assert node.wait_for_end(job_id).state is JobState.COMPLETED, node.describe(job_id)

    assert node.log(job_id) == [f"{node.data_dir}/run/jobs/{job_id}/1/work"]
    with node.db.read() as session:
        (checkpoint,) = session.query(Checkpoint).filter_by(job_id=job_id).all()
    assert checkpoint.step == 7


def test_people_reach_what_the_image_shows_to_its_job(node: World) -> None:
    files = [("etc", None), ("etc/passwd", PASSWD), ("data.txt", b"of the image")]
    image = local(node, "image", files, Env=["PATH=/bin", "GREETING=hello"], User="app", WorkingDir="/srv/new")
    job_id = submit(node, image, "echo ready; sleep 120")
    node.wait_for_line(job_id, "ready")

    said, code = run(node, open_sandbox(node, job_id), "sh", "-c", "id -u; pwd; echo $GREETING; cat /data.txt")

    assert (said.split("\n"), code) == (["4321", "/srv/new", "hello", "of the image"], 0)
    node.request(job_id, "cancel")
    assert node.wait_for_end(job_id).state is JobState.CANCELLED


@pytest.mark.parametrize("uids", ["", UIDS], ids=["worker", "own"])
def test_claims_and_parts_of_them_lie_at_their_paths_in_an_image(
    make_world: Callable[..., World], tmp_path: Path, uids: str
) -> None:
    if uids and (lack := lack_of_own_users(uids, tmp_path / "tried")):
        pytest.skip(f"here no attempt has a user of its own: {lack}")
    (claim := tmp_path / "claims" / "default" / "scratch").joinpath("part").mkdir(parents=True)
    node = make_world(TRAINYARD_FETCH_PVC_DIR=str(tmp_path / "claims"), TRAINYARD_NODE_UIDS=uids)
    record_verdict(node.data_dir, "")
    whole = {"path": "/scratch", "type": "claim", "claim": "scratch"}
    part = {**whole, "path": "/part", "sub_path": "part", "read_only": True}

    found = lines(
        node,
        local(node, "image", [("etc", None)]),
        "echo new > /scratch/part/file; cat /part/file; echo x > /part/x || echo refused; chmod 4755 /scratch/part/file"
        " || echo refused",
        resources={"mounts": [whole, part]},
    )

    assert [line for line in found if ":" not in line] == ["new", "refused", "refused"]
    assert (claim / "part/file").stat().st_uid == os.geteuid()
