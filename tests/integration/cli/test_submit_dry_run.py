"""`submit --dry-run` and `validate --code` on a real server: code that is not uploaded, and what is not checked."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from app.cli.client.documents.data_report import show_report
from app.services.preflight import admission
from tests.systems.apps import Api
from tests.systems.commands import run
from tests.systems.served import serving


@pytest.fixture(autouse=True)
def _served(api: Api, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(admission, "sees_roots", lambda _rules: True)
    with serving(api) as served:
        monkeypatch.setenv("TRAINYARD_URL", served.url)
        monkeypatch.setenv("TRAINYARD_API_KEY", api.key)
        yield


def dry_run(tmp_path: Path, *arguments: str, **training: Any) -> Result:
    return run("submit", written(tmp_path, **training), "--dry-run", *arguments)


def written(tmp_path: Path, *, framework: dict[str, Any], **training: Any) -> str:
    """A job that runs train.py, of which a directory `code` has one."""
    code = tmp_path / "code"
    code.mkdir(exist_ok=True)
    (code / "train.py").write_text("print('hello')\n")
    document = {
        "name": "dry",
        "training_config": {
            "training_type": "SFT",
            "base_model": {"model_id": "none"},
            "framework": {"type": "CUSTOM", **framework},
            **training,
        },
        "data_config": {"sources": []},
        "resource_config": {"gpu_count": 1, "device_type": "cpu"},
    }
    (tmp_path / "job.json").write_text(json.dumps(document))
    return str(tmp_path / "job.json")


def test_script_of_code_that_is_not_uploaded_yet_is_looked_up_in_the_directory(tmp_path: Path) -> None:
    framework = {"custom_script_path": "train.py", "custom_arguments": ["--fast"]}

    without = dry_run(tmp_path, framework=framework)
    checked = dry_run(tmp_path, "--code", str(tmp_path / "code"), framework=framework)

    assert "custom script train.py does not exist" in without.stderr
    assert checked.exit_code == 0, checked.output
    assert "it would be uploaded" in checked.stderr
    assert "does not exist" not in checked.stderr


def test_requirements_file_is_looked_up_in_the_directory(tmp_path: Path) -> None:
    asked: dict[str, Any] = {
        "framework": {"custom_script_path": "train.py"},
        "packages": {"requirements_file": "requirements.txt"},
    }

    missing = dry_run(tmp_path, "--code", str(tmp_path / "code"), **asked)
    (tmp_path / "code" / "requirements.txt").write_text("tabulate\n")
    present = dry_run(tmp_path, "--code", str(tmp_path / "code"), **asked)

    assert (missing.exit_code, present.exit_code) == (1, 0), (missing.output, present.output)
    assert "training_config.packages.requirements_file: 'requirements.txt' is not in" in missing.stderr


def test_what_only_a_submitted_job_has_checked_is_named(tmp_path: Path) -> None:
    repository = f"git+https://example.org/a.git@{'0' * 40}"

    packages = dry_run(tmp_path, framework={"custom_command": ["true"]}, packages={"requirements": ["tabulate==99"]})
    code = dry_run(tmp_path, framework={"custom_script_path": "train.py", "custom_code_dir": repository})

    assert "Not checked: packages: whether their index has them is found out after submission" in packages.stderr
    assert "Not checked: code: whether its repository has the commit is found out after submission" in code.stderr


def test_validate_checks_code_that_is_not_uploaded(tmp_path: Path, api: Api) -> None:
    file = written(tmp_path, framework={"custom_script_path": "train.py"}, packages={"requirements": ["tabulate"]})
    code = ("--code", str(tmp_path / "code"))

    valid = run("validate", file, *code)
    no_script = run("validate", file, *code, "--set", "training_config.framework.custom_script_path=trian.py")
    bad_packages = run("validate", file, *code, "--set", 'training_config.packages.requirements=["-e ."]')
    too_large = run("validate", file, *code, "--set", "resource_config.gpu_count=999999")

    assert valid.exit_code == 0, valid.output
    assert "it would be uploaded" in valid.stderr
    assert "Not checked: packages: whether their index has them" in valid.stderr
    assert "No record of the data was checked." in valid.stdout
    assert (no_script.exit_code, "'trian.py' is not in" in no_script.stderr) == (1, True)
    assert (bad_packages.exit_code, "training_config.packages.requirements" in bad_packages.stderr) == (1, True)
    assert (too_large.exit_code, "resource_config.gpu_count" in too_large.stderr) == (1, True)
    assert (api.call("GET", "/v1/files").json or {})["data"] == []


@pytest.mark.parametrize(
    ("report", "verdict"),
    [
        ({"left_out": ["the model and the data: no hub"]}, "No record of the data was checked.\n"),
        ({"valid": False, "errors": [{"field": "data_config", "message": "it does not exist"}]}, "1 error.\n"),
        ({}, "The data is valid.\n"),
    ],
    ids=["left out", "error", "valid"],
)
def test_report_without_sources_says_no_more_than_it_knows(
    report: dict[str, Any], verdict: str, capsys: pytest.CaptureFixture[str]
) -> None:
    show_report({"valid": True, "errors": [], "warnings": [], "left_out": [], "sources": [], **report})  # type: ignore[typeddict-item]

    assert capsys.readouterr().out == verdict
