"""Run:ai's `security`: the user of a job, and what has no effect."""

from typing import Any

import pytest

from app.compat.runai.documents.requests import TrainingSchema
from app.compat.runai.to_native import to_native
from app.domain.errors import BadSpec
from app.http.request_body import validated

TRAINING = {"name": "a", "projectId": "default", "clusterId": "71f69d83-ba66-4822-adf5-55ce55efd210"}
IMAGE = "registry.example/team/tool:v1"


def native(security: dict[str, Any], **spec: Any) -> tuple[dict[str, Any], list[str]]:
    """`resource_config` of the document, and what warnings name."""
    asked = {**TRAINING, "spec": {"command": "true", "security": security, **spec}}
    made = to_native(validated(TrainingSchema(), asked), "a", may_read=lambda _: False, uses_images=True)
    named = [line.removeprefix("spec.security.") for line in made.warnings if line.startswith("spec.security.")]
    return made.document["resource_config"], named


def test_user_and_group_are_those_of_the_job_on_nodes_with_a_sandbox() -> None:
    assert native({"runAsUid": 500, "runAsGid": 30})[0]["user"] == {"uid": 500, "gid": 30, "required": False}
    assert native({"uidGidSource": "custom", "runAsUid": 500})[0]["user"] == {"uid": 500, "required": False}
    assert "user" not in native({"runAsNonRoot": True})[0]


def test_user_of_the_image_is_kept_where_it_is_asked_for() -> None:
    resources, named = native({"uidGidSource": "fromTheImage", "runAsUid": 500}, image=IMAGE)

    assert "user" not in resources
    assert named == ["runAsUid: uidGidSource is fromTheImage: set custom"]


def test_files_of_an_image_can_be_made_read_only() -> None:
    assert native({"readOnlyRootFilesystem": True}, image=IMAGE)[0]["image"]["read_only"] is True
    assert "read_only" not in native({"readOnlyRootFilesystem": False}, image=IMAGE)[0]["image"]


@pytest.mark.parametrize(
    ("security", "named"),
    [
        ({"readOnlyRootFilesystem": False}, "readOnlyRootFilesystem: false: without an image"),
        ({"readOnlyRootFilesystem": True}, None),
        ({"uidGidSource": "fromIdpToken"}, "uidGidSource: fromIdpToken: tokens of users"),
        ({"seccompProfileType": "Unconfined"}, "seccompProfileType: Unconfined: the system calls"),
        ({"seccompProfileType": "RuntimeDefault"}, None),
        ({"hostIpc": True}, "hostIpc: true: a job has its own"),
        ({"hostNetwork": True}, "hostNetwork: true: a job on one node has a network of its own"),
        ({"hostIpc": False, "hostNetwork": False, "allowPrivilegeEscalation": False}, None),
    ],
)
def test_values_without_an_effect_have_a_warning(security: dict[str, Any], named: str | None) -> None:
    _, warnings = native(security)

    assert len(warnings) == (named is not None)
    assert all(named is not None and line.startswith(named) for line in warnings)


def test_gain_of_permissions_is_refused() -> None:
    with pytest.raises(BadSpec, match="no program of a job gains permissions") as refused:
        native({"allowPrivilegeEscalation": True})

    assert refused.value.field == "spec.security.allowPrivilegeEscalation"
