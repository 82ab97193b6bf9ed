"""Rules of interactive_config: which jobs may have ports, a probe, a notebook, and a sandbox that stays."""

from typing import Any

import pytest
from marshmallow import ValidationError

from app.domain.errors import BadSpec
from app.domain.spec.locations.paths import ReadingRules
from app.domain.spec.model import JobDocument
from app.domain.spec.rules import interactive as rules
from app.schemas.spec.interactive_config import InteractiveConfigSchema
from tests.builders.factories import make_document

PORT = {"name": "app", "port": 8080}
PROBE = {"port": 8080, "path": "/health"}
HASH = "--hash=sha256:" + "0123456789abcdef" * 4
KNOWS = ReadingRules(roots=(), knows_groups=True)


def document(framework: str = "CUSTOM", packages: dict[str, Any] | None = None, **config: Any) -> JobDocument:
    training: dict[str, Any] = {"framework": {"type": framework, "custom_script_path": "/srv/train.py"}}
    if packages is not None:
        training["packages"] = packages
    return JobDocument.from_json({**make_document(training_config=training), "interactive_config": config})


def check(found: JobDocument, allowed: ReadingRules = KNOWS) -> None:
    for rule in rules.RULES:
        rule(found)
    rules.notebook_can_be_installed(found)
    rules.check(found, allowed)


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"ports": [PORT, {"name": "a-1", "port": 1, "protocol": "tcp"}, {"name": "0", "port": 65535}]},
        {"ports": [{**PORT, "keep_prefix": True, "authorized_groups": ["cn=vision,ou=groups"]}]},
        {"readiness_probe": PROBE},
        {"readiness_probe": {"port": 1, "period_seconds": 5, "timeout_seconds": 5}},
        {"notebook": True, "keep_on_failure_seconds": 1800},
    ],
)
def test_documents_that_can_be_served(config: dict[str, Any]):
    check(JobDocument.from_json({**document().to_json(), "interactive_config": InteractiveConfigSchema().load(config)}))


@pytest.mark.parametrize(
    ("config", "field", "rule"),
    [
        ({"ports": [PORT, {**PORT, "port": 1}]}, "ports.1.name", "two ports have the name app"),
        ({"ports": [PORT, {**PORT, "name": "b"}]}, "ports.1.port", "port 8080 is given twice"),
        ({"ports": [{**PORT, "name": "notebook"}]}, "ports.0.name", "choose another name"),
        ({"ports": [{**PORT, "protocol": "tcp", "keep_prefix": True}]}, "ports.0.keep_prefix", "has protocol tcp"),
        (
            {"readiness_probe": {"port": 1, "timeout_seconds": 11}},
            "readiness_probe.timeout_seconds",
            "11 is longer than period_seconds 10",
        ),
    ],
)
def test_contradictions_name_the_field_and_the_way_out(config: dict[str, Any], field: str, rule: str):
    with pytest.raises(BadSpec, match=rule) as refused:
        check(document(**config))

    assert refused.value.field == f"interactive_config.{field}"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ports", [PORT]),
        ("readiness_probe", PROBE),
        ("notebook", True),
        ("terminal", True),
        ("keep_on_failure_seconds", 60),
    ],
)
def test_only_scripts_have_them(name: str, value: Any):
    with pytest.raises(BadSpec, match="trainyard exec JOB") as refused:
        check(document("HF_TRAINER", **{name: value}))

    assert refused.value.field == f"interactive_config.{name}"
    check(document("HF_TRAINER", notebook=False, keep_on_failure_seconds=0, ports=[]))


def test_groups_need_an_identity_provider():
    with pytest.raises(BadSpec, match="TRAINYARD_OIDC_ISSUER") as refused:
        check(document(ports=[PORT, {"name": "b", "port": 2, "authorized_groups": ["ml"]}]), ReadingRules(roots=()))

    assert refused.value.field == "interactive_config.ports.1.authorized_groups"


def test_a_lock_without_jupyterlab_has_no_notebook():
    check(document(packages={"lock": f"JupyterLab==4.4.1 {HASH}"}, notebook=True))
    check(document(packages={"requirements": ["numpy"]}, notebook=True))
    with pytest.raises(BadSpec, match="has no jupyterlab"):
        check(document(packages={"lock": f"numpy==2.1.0 {HASH}"}, notebook=True))


def test_the_packages_of_the_notebook_are_those_of_the_first_role():
    without, having = ({"packages": {"lock": f"{name}==2.1.0 {HASH}"}} for name in ("numpy", "jupyterlab"))

    def with_roles(*packages: dict[str, Any]) -> JobDocument:
        roles = [{"role": f"r{number}", "training_config": each} for number, each in enumerate(packages)]
        return JobDocument.from_json(
            {**document(notebook=True, packages=without["packages"]).to_json(), "tasks": roles}
        )

    rules.notebook_can_be_installed(with_roles(having, without))
    for packages, field in (((without, having), "tasks.0.training_config"), (({}, having), "training_config")):
        with pytest.raises(BadSpec, match="has no jupyterlab") as refused:
            rules.notebook_can_be_installed(with_roles(*packages))
        assert refused.value.field == f"{field}.packages.lock"


@pytest.mark.parametrize(
    ("config", "field"),
    [
        *(
            ({"ports": [{**PORT, "name": name}]}, "ports")
            for name in ("", "-a", "a-", "a--b", "A", "a.b", "a/b", "a" * 31)
        ),
        *(({"ports": [{**PORT, "name": name}]}, "ports") for name in ("a\n", "ä", "..", "%2e")),
        *(({"ports": [{**PORT, "port": port}]}, "ports") for port in (0, -1, 65536, "80", 80.0, True)),
        ({"ports": [{"name": "a"}]}, "ports"),
        ({"ports": [PORT] * 17}, "ports"),
        ({"ports": [{**PORT, "protocol": "udp"}]}, "ports"),
        ({"ports": [{**PORT, "authorized_users": [""]}]}, "ports"),
        *(
            ({"readiness_probe": {"port": 1, "path": path}}, "readiness_probe")
            for path in ("x", "/a b", "/a\r\nX: y", "")
        ),
        ({"readiness_probe": {}}, "readiness_probe"),
        ({"readiness_probe": {"port": 1, "period_seconds": 0}}, "readiness_probe"),
        ({"notebook": "true"}, "notebook"),
        ({"keep_on_failure_seconds": 604_801}, "keep_on_failure_seconds"),
        ({"port": []}, "port"),
    ],
)
def test_values_that_are_none_are_refused(config: dict[str, Any], field: str):
    with pytest.raises(ValidationError) as refused:
        InteractiveConfigSchema().load(config)

    assert field in refused.value.normalized_messages()
