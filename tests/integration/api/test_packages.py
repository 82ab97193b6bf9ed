"""Jobs with packages over HTTP: which nodes they may run on, and what is refused at submission."""

from typing import Any

import pytest

from tests.builders.factories import make_document, make_node
from tests.systems.apps import Api

pytestmark = pytest.mark.both_databases

FIELD = "training_config.packages"


def script(**packages: Any) -> dict[str, Any]:
    framework = {"type": "CUSTOM", "custom_script_path": "/srv/code/train.py"}
    return make_document(training_config={"framework": framework, "packages": packages})


def nodes(api: Api, **capabilities: list[str]) -> None:
    with api.db.write() as session:
        for name, offered in capabilities.items():
            make_node(session, name, capabilities=offered)


def placed(api: Api, document: dict[str, Any]) -> list[str]:
    answer = api.data(api.post("/v1/jobs?dry_run=true", document))
    return sorted(node["name"] for node in answer["plan"]["candidate_nodes"])


def test_job_is_placed_where_its_environment_can_be_made(api: Api) -> None:
    nodes(api, bare=[], old=["packages", "python:3.11"], new=["packages", "python:3.11", "python:3.13"])

    assert placed(api, script(requirements=["einops"])) == ["new", "old"]
    assert placed(api, script(requirements=["einops"], python="3.13")) == ["new"]
    assert placed(api, script(requirements_file="requirements.txt")) == ["new", "old"]
    assert placed(api, script(requirements_file="r.txt", requirements_file_required=False)) == ["bare", "new", "old"]


@pytest.mark.parametrize(
    ("offered", "says"),
    [
        ([], "a node offers it when its worker finds uv"),
        (
            ["packages", "python:3.11"],
            "offered: packages, python:3.11. training_config.packages.python needs python:3.13",
        ),
    ],
)
def test_job_that_no_node_could_install_is_refused_with_what_to_do(api: Api, offered: list[str], says: str) -> None:
    nodes(api, bare=offered)

    problem = api.problem(api.post("/v1/jobs", script(requirements=["einops"], python="3.13")), 400)

    assert says in problem["message"]


@pytest.mark.parametrize("name", ["../r.txt", "/etc/passwd", "a/../../r.txt"])
def test_requirements_file_outside_of_the_code_is_refused(api: Api, name: str) -> None:
    problem = api.problem(api.post("/v1/jobs", script(requirements_file=name)), 400)

    assert problem["details"][0]["field"] == f"{FIELD}.requirements_file"
    assert "name it by its path there" in problem["message"]
