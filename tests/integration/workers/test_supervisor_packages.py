"""Jobs with package environments: what their scripts import, what is kept and shared, and how installing fails."""

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from app.domain.lifecycle.events import EventType
from app.domain.lifecycle.states import JobState
from app.models import Attempt
from app.services.access import projects
from tests.builders.factories import make_document, make_job
from tests.systems.package_index import Index, package_index, source
from tests.systems.supervising import World

# Of a source distribution: its module tells what the build could see.
BACKEND = """
import base64, hashlib, json, os, socket, zipfile

def get_requires_for_build_wheel(config_settings=None):
    return []

def build_wheel(directory, config_settings=None, metadata_directory=None):
    secrets = [name for name in os.environ if name.startswith("TRAINYARD_") or "PASSWORD" in name]
    try:
        socket.create_connection(("127.0.0.1", PORT), 1)
        direct = True
    except OSError:
        direct = False
    seen = json.dumps({"secrets": secrets, "data_dir": os.path.exists("DATABASE"), "direct": direct})
    name = "made-1-py3-none-any.whl"
    files = {
        "made.py": "SEEN = " + repr(seen),
        "made-1.dist-info/METADATA": "Metadata-Version: 2.1\\nName: made\\nVersion: 1\\n",
        "made-1.dist-info/WHEEL": "Wheel-Version: 1.0\\nGenerator: t\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n",
    }
    files["made-1.dist-info/RECORD"] = "".join(f"{path},,\\n" for path in [*files, "made-1.dist-info/RECORD"])
    with zipfile.ZipFile(os.path.join(directory, name), "w") as archive:
        for path, text in files.items():
            archive.writestr(path, text)
    return name
"""
PRINTS = "import greeting; print('version', greeting.__version__, flush=True)"


@pytest.fixture
def index() -> Iterator[Index]:
    with package_index() as found:
        found.add("greeting", "1.2.3")
        yield found


@pytest.fixture
def node(make_world: Callable[..., World], index: Index) -> World:
    return make_world(TRAINYARD_FETCH_ALLOW="127.0.0.1")


def submit(
    world: World,
    index: Index,
    script: str = PRINTS,
    *,
    project: str = "default",
    device: int = 0,
    command: list[str] | None = None,
    environment: dict[str, str] | None = None,
    beside: dict[str, str] | None = None,
    **packages: Any,
) -> str:
    """``beside``: texts of files beside the script."""
    path = world.directory / "mine" / f"script-{time.monotonic_ns()}" / "train.py"
    path.parent.mkdir()
    path.write_text(script)
    for name, text in (beside or {}).items():
        (path.parent / name).write_text(text)
    runs = {"custom_command": command} if command else {"custom_script_path": str(path)}
    asked = make_document(
        training_config={
            "base_model": {"model_id": "none"},
            "framework": {"type": "CUSTOM", **runs},
            "environment": environment or {},
            "packages": {"index_url": index.url, **packages},
        },
        data_config={"sources": [{"path": str(world.directory / "mine/data.jsonl")}]},
        resource_config={"gpu_count": 1},
    )
    with world.db.write() as session:
        projects.ensure(session, project, actor="test")
        job_id = make_job(session, document=asked, project=project).id
    world.take_up(job_id, first_device=device)
    return job_id


def lines(world: World, index: Index, script: str = PRINTS, **more: Any) -> list[str]:
    """What a job prints that completes."""
    job_id = submit(world, index, script, **more)
    assert world.wait_for_end(job_id, 60).state is JobState.COMPLETED, world.describe(job_id)
    return world.log(job_id)


def failure(world: World, index: Index, script: str = PRINTS, **more: Any) -> Attempt:
    job_id = submit(world, index, script, **more)
    assert world.wait_for_end(job_id, 60).state in (JobState.FAILED, JobState.QUEUED), world.describe(job_id)
    return world.attempt(job_id)


def environments(world: World) -> list[Path]:
    return sorted(path.parent for path in (world.data_dir / "cache" / "packages").glob("*/packages.json"))


@pytest.mark.long
def test_script_imports_its_packages(node: World, index: Index) -> None:
    assert "version 1.2.3" in lines(node, index, requirements=["greeting==1.2.3"])


@pytest.mark.long
def test_second_job_uses_what_the_first_one_installed(node: World, index: Index) -> None:
    first = submit(node, index, requirements=["greeting"])
    node.wait_for_end(first, 60)
    asked = len(index.asked)

    second = submit(node, index, requirements=["greeting"])
    node.wait_for_end(second, 60)

    notes = [e.data for job in (first, second) for e in node.events(job) if e.type == EventType.PACKAGES]
    assert [note["packages"] for note in notes] == [["greeting==1.2.3"]] * 2
    assert notes[0]["seconds"] > 0 == notes[1]["seconds"]
    assert len(index.asked) == asked
    assert "version 1.2.3" in node.log(second)


@pytest.mark.long
def test_jobs_at_the_same_time_build_once(node: World, index: Index) -> None:
    jobs = [submit(node, index, requirements=["greeting"], device=device) for device in range(3)]
    for job_id in jobs:
        assert node.wait_for_end(job_id, 60).state is JobState.COMPLETED, node.describe(job_id)

    assert index.asked.count("/simple/greeting/") == 1
    assert len(environments(node)) == 1


@pytest.mark.long
def test_lock_installs_what_its_hashes_say(node: World, index: Index) -> None:
    lock = index.add("greeting", "1.2.3") + index.add("parting", "2.0")
    assert "version 1.2.3" in lines(node, index, requirements=["greeting"], lock=lock)


@pytest.mark.long
def test_other_content_than_the_locked_one_fails(node: World, index: Index) -> None:
    lock = index.add("greeting", "1.2.3")
    index.add("greeting", "1.2.3", "__version__ = 'forged'\n")

    failed = failure(node, index, lock=lock)

    assert failed.cause == "PACKAGES_FAILED"
    assert "greeting" in str(failed.end_reason)
    assert "hash" in str(failed.end_reason).lower()


@pytest.mark.long
def test_missing_package_is_named_and_not_retried(node: World, index: Index) -> None:
    job_id = submit(node, index, requirements=["nowhere-to-be-found==1.0"])

    job = node.wait_for_end(job_id, 60)

    assert (job.state, job.error_type) == (JobState.FAILED, "PACKAGES_FAILED")
    assert str(job.error_message).startswith(
        "training_config.packages: nowhere-to-be-found can't be installed. uv says:"
    )


@pytest.mark.long
def test_index_that_does_not_answer_is_retried(node: World, index: Index) -> None:
    index.status = 503
    job_id = submit(node, index, requirements=["greeting"])

    assert node.wait_for_end(job_id, 120).state is JobState.QUEUED, node.describe(job_id)
    assert node.attempt(job_id).cause == "NETWORK_ERROR"


def test_private_index_is_refused_where_the_operator_does_not_allow_it(
    make_world: Callable[..., World], index: Index
) -> None:
    failed = failure(make_world(), index, requirements=["greeting"])

    assert failed.cause == "INVALID_CONFIG"
    assert "TRAINYARD_FETCH_ALLOW" in str(failed.end_reason)
    assert index.asked == []


@pytest.mark.long
def test_name_that_leads_to_a_private_address_is_refused(make_world: Callable[..., World], index: Index) -> None:
    """The submission can't know it: a name like any other."""
    url = index.url.replace("127.0.0.1", "localhost4.localdomain4")
    failed = failure(make_world(), index, requirements=["greeting"], index_url=url)

    assert failed.cause in ("PACKAGES_FAILED", "NETWORK_ERROR")  # where the name does not resolve
    assert index.asked == []


@pytest.mark.long
def test_size_is_limited(make_world: Callable[..., World], index: Index) -> None:
    index.add("heavy", "1", filler=30 << 20)
    world = make_world(TRAINYARD_FETCH_ALLOW="127.0.0.1", TRAINYARD_PACKAGES_MAX_BYTES=str(8 << 20))

    failed = failure(world, index, requirements=["heavy"])

    assert failed.cause == "PACKAGES_FAILED"
    assert "TRAINYARD_PACKAGES_MAX_BYTES" in str(failed.end_reason)
    assert environments(world) == []


@pytest.mark.long
def test_time_is_limited(make_world: Callable[..., World], index: Index) -> None:
    index.files["slow-1.tar.gz"] = source("slow", "1", "import time; time.sleep(60)")
    world = make_world(TRAINYARD_FETCH_ALLOW="127.0.0.1", TRAINYARD_PACKAGES_BUILD_SECONDS="4")

    failed = failure(world, index, requirements=["slow"], allow_source_builds=True)

    assert failed.cause == "PACKAGES_FAILED"
    assert "TRAINYARD_PACKAGES_BUILD_SECONDS" in str(failed.end_reason)


@pytest.mark.long
def test_projects_share_locked_environments_only(node: World, index: Index) -> None:
    lock = index.add("greeting", "1.2.3")
    for project in ("one", "two"):
        lines(node, index, requirements=["greeting"], project=project)
    assert len(environments(node)) == 2

    for project in ("one", "two"):
        lines(node, index, lock=lock, project=project)
    assert len(environments(node)) == 3


@pytest.mark.long
def test_scripts_can_not_change_their_environment(node: World, index: Index) -> None:
    script = "import greeting, os; print(os.access(os.path.dirname(greeting.__file__), os.W_OK), flush=True)"
    assert "False" in lines(node, index, script, requirements=["greeting"])


@pytest.mark.long
def test_torch_and_hooks_are_those_of_the_node(node: World, index: Index) -> None:
    """The package needs torch, and the index has none."""
    index.add("trains", "1", needs=["torch>=1", "greeting"])
    script = """
import json, os, sys, torch, trains, greeting
from trainyard import hooks
run = hooks.init()
run.log_metrics({"loss": 1.0}, step=3)
facts = {"torch": torch.__file__, "greeting": greeting.__file__}
facts |= {"venv": os.environ["VIRTUAL_ENV"], "exe": sys.executable}
print(json.dumps(facts), flush=True)
"""
    facts = json.loads(next(line for line in lines(node, index, script, requirements=["trains"]) if line[:1] == "{"))

    (stored,) = environments(node)
    assert facts["venv"] == str(stored / "env")
    assert facts["greeting"].startswith(facts["venv"])
    assert not facts["torch"].startswith(facts["venv"])
    assert facts["exe"] == f"{facts['venv']}/bin/python"


@pytest.mark.long
def test_package_that_needs_another_torch_is_refused(node: World, index: Index) -> None:
    index.add("ahead", "1", needs=["torch>=99"])

    failed = failure(node, index, requirements=["ahead"])

    assert "ahead 1 needs torch>=99, and the node has torch" in str(failed.end_reason)


@pytest.mark.long
def test_own_version_wins_over_that_of_the_node(node: World, index: Index) -> None:
    index.add("marshmallow", "99")
    script = "import marshmallow; print('version', marshmallow.__version__, flush=True)"

    assert "version 99" in lines(node, index, script, requirements=["marshmallow==99"])


@pytest.mark.long
def test_command_finds_programs_of_the_environment_and_of_the_node(node: World, index: Index) -> None:
    script = "import sys; print('prefix', sys.prefix, flush=True)"
    path = node.directory / "mine" / "ranks.py"
    path.write_text(script)
    command = ["sh", "-c", f"torchrun --nproc_per_node 1 {path} && python {path}"]

    said = [
        line for line in lines(node, index, command=command, requirements=["greeting"]) if line.startswith("prefix")
    ]

    (stored,) = environments(node)
    assert said == [f"prefix {stored}/env"] * 2


def test_version_that_the_node_does_not_have_lists_those_it_has(node: World, index: Index) -> None:
    failed = failure(node, index, requirements=["greeting"], python="3.1")

    assert failed.cause == "PACKAGES_FAILED"
    assert "this node has no Python 3.1, only 3." in str(failed.end_reason)
    assert index.asked == []


@pytest.mark.long
def test_sources_are_built_only_where_the_job_says_so(node: World, index: Index) -> None:
    backend = BACKEND.replace("PORT", str(index.port)).replace("DATABASE", str(node.directory / "mine"))
    index.files["made-1.tar.gz"] = source("made", "1", backend)

    assert failure(node, index, requirements=["made"]).cause == "PACKAGES_FAILED"

    script = "import made; print(made.SEEN, flush=True)"
    said = lines(node, index, script, requirements=["made"], allow_source_builds=True)
    seen = json.loads(next(line for line in said if line.startswith("{")))
    assert seen["secrets"] == []
    assert seen["data_dir"] is False
    assert seen["direct"] is False


@pytest.mark.long
def test_login_of_an_index_comes_from_the_environment(node: World, index: Index) -> None:
    index.login = "me:secret-word"
    refused = failure(node, index, requirements=["greeting"])
    assert "UV_INDEX_PASSWORD" in str(refused.end_reason)

    variables = {"UV_INDEX_USERNAME": "me", "UV_INDEX_PASSWORD": "secret-word"}
    assert "version 1.2.3" in lines(node, index, requirements=["greeting"], environment=variables)


@pytest.mark.long
def test_least_recently_used_environment_goes_first(make_world: Callable[..., World], index: Index) -> None:
    index.add("parting", "1")
    world = make_world(TRAINYARD_FETCH_ALLOW="127.0.0.1", TRAINYARD_PACKAGES_CACHE_BYTES="1")

    for name in ("greeting", "parting"):
        lines(world, index, f"import {name}; print('ok')", requirements=[name])

    (left,) = environments(world)
    assert json.loads((left / "packages.json").read_text())["packages"] == ["parting==1"]


@pytest.mark.long
def test_without_a_sandbox_it_works_as_well(make_world: Callable[..., World], index: Index) -> None:
    world = make_world(TRAINYARD_FETCH_ALLOW="127.0.0.1", TRAINYARD_NODE_SANDBOX="process")
    assert "version 1.2.3" in lines(world, index, requirements=["greeting"])


@pytest.mark.long
def test_requirements_file_of_the_code_is_installed(node: World, index: Index) -> None:
    said = lines(node, index, beside={"pins.txt": "# pins\ngreeting==1.2.3\n"}, requirements_file="pins.txt")
    assert "version 1.2.3" in said


@pytest.mark.long
def test_requirements_file_with_hashes_is_a_lock(node: World, index: Index) -> None:
    lock = index.add("greeting", "1.2.3")
    index.add("greeting", "1.2.3", "__version__ = 'forged'\n")

    failed = failure(node, index, beside={"pins.txt": lock}, requirements_file="pins.txt")

    assert failed.cause == "PACKAGES_FAILED"
    assert "hash" in str(failed.end_reason).lower()


def test_job_runs_without_a_requirements_file_that_it_does_not_require(node: World, index: Index) -> None:
    optional = {"requirements_file": "pip-requirements.txt", "requirements_file_required": False}

    said = lines(node, index, "print('alone', flush=True)", **optional)

    assert "alone" in said
    assert environments(node) == []
    assert index.asked == []


def test_wrong_line_of_a_requirements_file_is_quoted(node: World, index: Index) -> None:
    failed = failure(node, index, beside={"pins.txt": "greeting\n-e .\n"}, requirements_file="pins.txt")

    assert failed.cause == "INVALID_CONFIG"
    assert str(failed.end_reason).startswith(
        "training_config.packages.requirements_file: 'pins.txt': '-e .' is no requirement"
    )
    assert index.asked == []


def test_twice_named_package_is_found_in_document_and_file(node: World, index: Index) -> None:
    failed = failure(
        node, index, beside={"pins.txt": "Greeting\n"}, requirements_file="pins.txt", requirements=["greeting==1.2.3"]
    )

    assert "requirements_file: 'pins.txt': 'Greeting': greeting is named twice" in str(failed.end_reason)
