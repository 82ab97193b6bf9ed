"""Code of one's own on the real system: a directory that the command line uploads, and what else is uploaded."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from tests.systems.commands import run
from tests.systems.system import System

SCRIPT = """
import os, pathlib, subprocess
from lib.words import WORD

here = pathlib.Path(__file__).resolve()
print("says", WORD, os.environ["WHO"], pathlib.Path("data.txt").exists())
print("program", subprocess.run([here.parent.parent / "tool.sh"], capture_output=True, text=True).stdout.strip())
print("ignored", (here.parent.parent / "big.bin").exists())
pathlib.Path(os.environ["TRAINYARD_OUTPUT_DIR"], "answer.txt").write_text(WORD)
"""
DOCUMENT = {
    "name": "bundled",
    "training_config": {
        "training_type": "SFT",
        "base_model": {"model_id": "none"},
        "framework": {"type": "CUSTOM", "custom_script_path": "src/train.py"},
        "environment": {"WHO": "${WHO_SUBMITS}"},
    },
    "data_config": {"sources": []},
    "resource_config": {"gpu_count": 1, "device_type": "cpu"},
}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A directory of code, as a user has it."""
    root = tmp_path / "project"
    (root / "src" / "lib").mkdir(parents=True)
    (root / "src" / "train.py").write_text(SCRIPT)
    (root / "src" / "lib" / "words.py").write_text("WORD = 'hello'\n")
    (root / "tool.sh").write_text("#!/bin/sh\necho a tool\n")
    (root / "tool.sh").chmod(0o755)
    (root / ".gitignore").write_text("*.bin\n")
    (root / "big.bin").write_bytes(b"x" * 1000)
    (root / ".git").mkdir()
    (root / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    return root


@pytest.fixture
def system(shared_system: System, monkeypatch: pytest.MonkeyPatch) -> System:
    monkeypatch.setenv("TRAINYARD_URL", f"http://127.0.0.1:{shared_system.port}")
    monkeypatch.setenv("TRAINYARD_API_KEY", shared_system.key)
    monkeypatch.setenv("WHO_SUBMITS", "a user")
    return shared_system


def submitted(tmp_path: Path, document: dict[str, Any], *arguments: str) -> Result:
    file = tmp_path / "job.json"
    file.write_text(json.dumps(document))
    return run("submit", str(file), *arguments)


def files_of(system: System) -> list[dict[str, Any]]:
    _, answer = system.call("GET", "/v1/files?purpose=directory")
    return list(answer["data"])


@pytest.mark.long
def test_code_is_uploaded_once_and_run(system: System, project: Path, tmp_path: Path) -> None:
    before = len(files_of(system))
    dry = submitted(tmp_path, DOCUMENT, "--code", str(project), "--dry-run")
    assert (dry.exit_code, "it would be uploaded" in dry.stderr) == (0, True), dry.output
    assert "does not exist" not in dry.stderr
    assert len(files_of(system)) == before

    first = submitted(tmp_path, DOCUMENT, "--code", str(project), "--set", "labels.of=tests")
    assert first.exit_code == 0, first.output
    job = system.wait_for_status(first.stdout.strip(), "COMPLETED", "FAILED")

    lines = system.log_lines(job["job_id"])
    assert job["status"] == "COMPLETED", (job["error_message"], lines)
    assert lines == ["says hello a user False", "program a tool", "ignored False"]
    assert job["labels"] == {"of": "tests"}
    assert job["training_config"]["framework"]["custom_script_path"] == "src/train.py"
    assert system.download(f"/v1/jobs/{job['job_id']}/artifacts/answer.txt") == b"hello"
    stored = files_of(system)
    assert len(stored) == before + 1
    assert job["training_config"]["framework"]["custom_code_dir"] == stored[0]["id"]

    (project / "src" / "lib" / "words.py").touch()
    again = submitted(tmp_path, DOCUMENT, "--code", str(project))
    assert again.exit_code == 0, again.output
    assert "the server has it" in again.stderr
    assert [file["id"] for file in files_of(system)] == [file["id"] for file in stored]
    assert system.wait_for_status(again.stdout.strip(), "COMPLETED", "FAILED")["status"] == "COMPLETED"


@pytest.mark.long
def test_code_that_a_job_needs_is_kept(system: System, project: Path, tmp_path: Path) -> None:
    (project / "src" / "train.py").write_text("import time\nprint('runs')\ntime.sleep(60)\n")
    job_id = submitted(tmp_path, DOCUMENT, "--code", str(project)).stdout.strip()
    file_id = system.job(job_id)["training_config"]["framework"]["custom_code_dir"]

    status, answer = system.call("DELETE", f"/v1/files/{file_id}")
    assert (status, "has not ended" in json.dumps(answer)) == (409, True)

    system.call("POST", f"/v1/jobs/{job_id}/cancel", {})
    system.wait_for_status(job_id, "CANCELLED")
    assert system.call("DELETE", f"/v1/files/{file_id}")[0] == 200


@pytest.mark.long
def test_pushed_data_is_a_source(system: System, tmp_path: Path) -> None:
    folder = tmp_path / "records"
    folder.mkdir()
    (folder / "a.jsonl").write_text('{"text": "one"}\n')
    (folder / "b.jsonl").write_text('{"text": "two"}\n')
    directory, file = run("data", "push", str(folder)), run("data", "push", str(folder / "a.jsonl"))
    again = run("data", "push", str(folder))
    assert directory.exit_code == file.exit_code == again.exit_code == 0, directory.output + file.output
    assert (directory.stdout, "nothing was sent" in again.stderr) == (again.stdout, True)

    (system.inputs / "list.py").write_text(
        "import json, os, pathlib\n"
        "spec = json.loads(pathlib.Path(os.environ['TRAINYARD_RUN_DIR'], 'spec.json').read_text())\n"
        "for path in map(pathlib.Path, spec['data_paths']):\n"
        "    print(sorted(p.name for p in path.iterdir()) if path.is_dir() else path.read_text().strip())\n"
    )
    document = json.loads(json.dumps(DOCUMENT))
    document["training_config"]["framework"]["custom_script_path"] = "list.py"
    document["data_config"]["sources"] = [{"path": directory.stdout.strip()}, {"path": file.stdout.strip()}]
    answer = submitted(tmp_path, document)
    assert answer.exit_code == 0, answer.output
    job = system.wait_for_status(answer.stdout.strip(), "COMPLETED", "FAILED")

    lines = system.log_lines(job["job_id"])
    assert lines == ["['a.jsonl', 'b.jsonl']", '{"text": "one"}'], job["error_message"]
    assert job["data_config"]["sources"][0]["path"] == directory.stdout.strip().removeprefix("upload://")


@pytest.mark.long
def test_pushed_directory_is_not_the_upload_of_code_that_expires(system: System, project: Path, tmp_path: Path) -> None:
    (project / "big.bin").unlink()
    (project / ".gitignore").unlink()
    submitted(tmp_path, DOCUMENT, "--code", str(project))

    pushed = [run("data", "push", str(project)) for _ in range(2)]

    assert [each.exit_code for each in pushed] == [0, 0], pushed[0].output
    assert pushed[0].stdout == pushed[1].stdout
    (file,) = (each for each in files_of(system) if each["id"] == pushed[0].stdout.strip().removeprefix("upload://"))
    assert file["expires_at"] is None


@pytest.mark.long
def test_dry_run_inspects_the_data(system: System, tmp_path: Path) -> None:
    document = json.loads(json.dumps(DOCUMENT))
    document["training_config"]["framework"] = {"type": "CUSTOM", "custom_command": ["true"]}
    document["data_config"]["sources"] = [{"path": "data.jsonl"}]
    (system.inputs / "empty.jsonl").write_text("")

    good = submitted(tmp_path, document, "--dry-run")
    bad = submitted(tmp_path, document, "--dry-run", "--set", "data_config.sources.0.path=empty.jsonl")
    as_json = submitted(tmp_path, document, "--dry-run", "--json")

    assert (good.exit_code, "Not checked: the records: a script" in good.stderr) == (0, True), good.output
    assert "No record of the data was checked." in good.stdout
    assert (bad.exit_code, "empty.jsonl is empty" in bad.stderr) == (1, True), bad.output
    answer = json.loads(as_json.stdout)
    assert (answer["valid"], answer["data"]["valid"]) == (True, True)
