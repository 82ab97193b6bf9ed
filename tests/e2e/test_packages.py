"""Packages of scripts on the real system: what a node announces, what a coordinator resolves, and ModelArts' file."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.systems.installations import counting_job, running_system
from tests.systems.package_index import Index, package_index
from tests.systems.system import System

PRINTS = "import greeting; print('version', greeting.__version__, flush=True)"
MISSING = "nowhere-to-be-found"


@pytest.fixture(scope="module")
def index() -> Iterator[Index]:
    with package_index() as found:
        found.add("greeting", "1.2.3")
        yield found


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory, owned_pids: set[int], index: Index) -> Iterator[System]:
    """Its installation has an index of its own."""
    settings = {"TRAINYARD_PACKAGES_INDEX_URL": index.url}
    with running_system(tmp_path_factory.mktemp("packages") / "system", owned_pids, "n1", **settings) as made:
        yield made


def code_in(directory: Path) -> Path:
    directory.mkdir()
    (directory / "train.py").write_text(PRINTS)
    return directory


def job(code: Path, **packages: Any) -> dict[str, Any]:
    framework = {"type": "CUSTOM", "custom_code_dir": str(code), "custom_script_path": str(code / "train.py")}
    training = {"base_model": {"model_id": "none"}, "framework": framework, "packages": packages}
    return counting_job(training_config=training)


@pytest.mark.long
def test_packages_are_announced_resolved_and_installed(system: System, index: Index) -> None:
    code = code_in(system.inputs / "code")
    (node,) = system.get("/v1/nodes")["nodes"]
    assert "packages" in node["capabilities"]

    lacking = system.wait_for_status(system.submit(job(code, requirements=[MISSING])), "FAILED")
    having = system.wait_for_status(system.submit(job(code, requirements=["greeting"])), "COMPLETED", "FAILED")

    assert (lacking["error_type"], lacking["attempt"]) == ("PACKAGES_FAILED", 0)  # it never took a device
    assert f"{MISSING} can't be installed" in lacking["error_message"]
    assert having["status"] == "COMPLETED", having["error_message"]
    assert system.log_lines(having["job_id"]) == ["version 1.2.3"]
    assert "the index has the packages" in system.story(having["job_id"])


@pytest.mark.long
def test_modelarts_job_has_the_packages_of_its_code(system: System) -> None:
    code = code_in(system.inputs / "code-of-modelarts")
    (code / "pip-requirements.txt").write_text("greeting>=1\n")
    algorithm = {"code_dir": f"file://{code}", "boot_file": f"file://{code}/train.py"}
    body = {"kind": "job", "metadata": {"name": "installs"}, "algorithm": algorithm}

    status, made = system.call("POST", "/v2/default/training-jobs", body)
    assert status == 201, made
    done = system.wait_for_status(f"job-{made['metadata']['id']}", "COMPLETED", "FAILED")

    assert done["status"] == "COMPLETED", done["error_message"]
    assert system.log_lines(done["job_id"]) == ["version 1.2.3"]
    _, shown = system.call("GET", f"/v2/default/training-jobs/{made['metadata']['id']}")
    assert "requirements" not in str(shown)
