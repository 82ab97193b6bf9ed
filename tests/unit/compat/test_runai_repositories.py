"""Git volumes of Run:ai: the code of a job where they name a commit, else directories of the operator."""

from typing import Any

import pytest

from app.compat.runai.repositories import repository_of
from app.domain.errors import BadSpec
from app.http.request_body import validated
from app.schemas.jobs import SubmitJobSchema
from app.services.access.secret_files import Reference
from tests.unit.compat.test_runai import divided, ignored_fields, translated

IN_CODE = 'cd "$0" && exec "$@"'
COMMIT = "0123456789abcdef0123456789abcdef01234567"
LOCATION = f"git+https://git.example.org/team/code.git@{COMMIT}"


def volume(**changes: Any) -> dict[str, Any]:
    found = {"repository": "https://git.example.org/team/code.git", "revision": COMMIT, "path": "/src", **changes}
    return {name: value for name, value in found.items() if value is not None}


def storage(*volumes: dict[str, Any]) -> dict[str, Any]:
    return {"storage": {"git": list(volumes)}}


@pytest.mark.parametrize(
    ("working", "command"),
    [
        ({}, ["python", "$(TRAINYARD_RUN_DIR)/code/train.py"]),
        ({"workingDir": "/src/"}, ["python", "$(TRAINYARD_RUN_DIR)/code/train.py"]),
        (
            {"workingDir": "/src/a/b"},
            [
                "sh",
                "-c",
                'cd "$0" && exec "$@"',
                "$(TRAINYARD_RUN_DIR)/code/a/b",
                "python",
                "$(TRAINYARD_RUN_DIR)/code/train.py",
            ],
        ),
    ],
)
def test_commit_is_cloned_as_the_jobs_code(working: dict[str, str], command: list[str]) -> None:
    variables = [{"name": "CONFIG", "value": "/src/a.yaml"}]
    native = translated(
        {
            "command": "python /src/train.py",
            "environmentVariables": variables,
            **working,
            **storage(volume(branch="main")),
        }
    )

    framework = native.document["training_config"]["framework"]
    assert (framework["custom_code_dir"], framework["custom_command"]) == (LOCATION, command)
    assert native.document["resource_config"]["mounts"] == [{"path": "/src", "type": "code", "required": False}]
    assert native.document["training_config"]["environment"] == {"CONFIG": "$(TRAINYARD_RUN_DIR)/code/a.yaml"}
    assert native.document["data_config"]["sources"] == []
    assert native.warnings == []
    validated(SubmitJobSchema(), native.document)


def test_all_ranks_have_the_code() -> None:
    native = divided(
        {"command": "python train.py", "numWorkers": 2, **storage(volume())}, masterSpec={"command": "./lead"}
    )

    assert native.document["training_config"]["framework"]["custom_code_dir"] == LOCATION
    validated(SubmitJobSchema(), native.document)


@pytest.mark.parametrize(
    ("more", "changes", "named"),
    [
        ({}, {"revision": "main", "passwordSecret": "a"}, ["passwordSecret", "revision"]),
        ({}, {"revision": None, "branch": "main", "secretRef": {"name": "a"}}, ["branch", "secretRef"]),
        ({}, {"repository": "git@git.example.org:team/code.git"}, ["revision"]),
        ({}, {"path": "/usr/src"}, ["usr.path", "revision"]),
        ({"workingDir": "/elsewhere"}, {}, ["revision"]),
    ],
)
def test_what_is_not_cloned_is_a_directory_of_the_operator(more: Any, changes: Any, named: list[str]) -> None:
    native = divided({"command": "python train.py", **more, **storage(volume(name="usr", **changes))})

    assert native.document["data_config"]["sources"] == [{"path": "git/git.example.org/team/code"}]
    assert sorted(each for each in ignored_fields(native) if "git" in each) == sorted(
        f"spec.storage.git.{each}" for each in named
    )


def test_second_repository_is_a_directory_of_the_operator() -> None:
    other = volume(repository="https://git.example.org/team/more.git", path="/more")
    native = divided({"command": "true", **storage(volume(path="/out", exclude=True), volume(), other)})

    assert native.document["training_config"]["framework"]["custom_code_dir"] == LOCATION
    assert native.document["data_config"]["sources"] == [{"path": "git/git.example.org/team/more"}]
    assert ignored_fields(native) == ["spec.storage.git.revision"]


@pytest.mark.parametrize(
    ("changes", "keys"),
    [
        ({}, None),
        ({"passwordSecret": "s"}, ("username", "password")),
        ({"passwordSecret": "s", "secretKeyOfUser": "u", "secretKeyOfPassword": "p"}, ("u", "p")),
        (
            {"secretRef": {"name": "s", "authenticationMethod": "password", "secretKeyOfPassword": "p"}},
            ("username", "p"),
        ),
    ],
)
def test_secret_of_a_volume_opens_it(changes: Any, keys: tuple[str, str] | None) -> None:
    found = repository_of(storage(volume(name="own", **changes)))

    assert found is not None
    expected = {} if keys is None else dict(zip(("username", "password"), keys, strict=True))
    assert found.login == {part: Reference("s", key, "spec.storage.git.own") for part, key in expected.items()}


def test_keys_of_ssh_are_refused() -> None:
    with pytest.raises(BadSpec, match="cloned by HTTPS") as refused:
        repository_of(storage(volume(secretRef={"name": "s", "authenticationMethod": "ssh-key"})))

    assert refused.value.field == "spec.storage.git.0.secretRef.authenticationMethod"
