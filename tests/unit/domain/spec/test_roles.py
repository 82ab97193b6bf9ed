"""The roles of a job: what their rules refuse, what an instance is asked for, and which secrets are masked."""

from typing import Any

import pytest
from marshmallow import ValidationError

from app.domain.errors import InvalidRequest
from app.domain.scheduling.resources import request_of
from app.domain.spec.document import images, locations
from app.domain.spec.model import JobDocument, ResourceConfig
from app.domain.spec.role_documents import document_of, with_image_of
from app.domain.spec.roles import JobRole
from app.domain.spec.secrets import MASK, secret_variables, with_secrets
from app.schemas.jobs import SubmitJobSchema
from app.services.attempts.placed_instances import ranks_of_role
from tests.builders.submitted import custom, refusal, spec_of

TRAINER = {"role": "trainer", "resource_config": {"gpu_count": 4, "device_type": "cuda"}}
ROLLOUT = {"role": "rollout", "count": 2, "training_config": {"custom_command": ["serve", "--port", "1"]}}


def document(*tasks: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """A job with these roles; ``a__b`` stands for the path a.b."""
    paths = [(path.replace("__", "."), value) for path, value in changes.items()]
    return custom(("resource_config", {}), ("tasks", list(tasks)), *paths)


def refused(*tasks: dict[str, Any], **changes: Any) -> tuple[str, str]:
    error = refusal(document(*tasks, **changes))
    return error.field or "", error.message


def loaded(*tasks: dict[str, Any]) -> JobDocument:
    given = {"name": "a", "training_config": {"framework": {"type": "CUSTOM"}}, "resource_config": {}}
    found: JobDocument = SubmitJobSchema().load({**given, "tasks": list(tasks)})
    return found


def test_a_job_with_roles_is_stored_as_it_was_given() -> None:
    found = spec_of(document(TRAINER, ROLLOUT)).document
    assert found.to_json()["tasks"] == [TRAINER, ROLLOUT]
    assert spec_of(found.to_json()).document == found


@pytest.mark.parametrize(
    ("tasks", "changes", "field", "says"),
    [
        ([TRAINER, TRAINER], {}, "tasks.1.role", "two roles trainer"),
        ([{"role": f"r{n}"} for n in range(17)], {}, "tasks", "at most 16 roles"),
        ([{"role": "a", "count": 40}, {"role": "b", "count": 25}], {}, "tasks", "65 instances"),
        ([{"role": "a", "sidecar": True}], {}, "tasks.0.sidecar", "every role is a sidecar"),
        ([{"role": "a"}, {"role": "b", "world": "job"}], {}, "tasks.1.world", "give job to a second role"),
        ([{"role": "a", "depends_on": ["b"]}], {}, "tasks.0.depends_on.0", "there is no role 'b'; known: a"),
        ([{"role": "a", "depends_on": ["a"]}], {}, "tasks.0.depends_on", "a → a"),
        (
            [{"role": "x"}, {"role": "a", "depends_on": ["x", "b"]}, {"role": "b", "depends_on": ["a"]}],
            {},
            "tasks.1.depends_on",
            "a → b → a",
        ),
        ([TRAINER], {"resource_config__gpu_count": 2}, "resource_config.gpu_count", "give it to each role"),
        ([TRAINER], {"resource_config__node_count": 2}, "resource_config.node_count", "use count of a role"),
        ([TRAINER], {"resource_config__gpu_fraction": 0.5}, "resource_config.gpu_fraction", "whole devices"),
        ([TRAINER], {"resource_config__ram_min_mb": 5}, "resource_config.ram_min_mb", "per instance"),
        ([TRAINER], {"resource_config__network": "gate"}, "resource_config.network", "leave network out"),
        (
            [TRAINER],
            {"training_config__framework__distributed": {"world_size": 4}},
            "training_config.framework.distributed.world_size",
            "a world of its own",
        ),
        (
            [TRAINER],
            {"training_config__framework__config": {"launcher": "mpi"}},
            "training_config.framework.config.launcher",
            "roles differ",
        ),
        (
            [{"role": "a", "resource_config": {"gpu_count": 0}}],
            {},
            "tasks.0.resource_config.gpu_count",
            "must be at least 1",
        ),
        (
            [TRAINER, {"role": "a", "training_config": {"custom_script_path": "/etc/x.py"}}],
            {},
            "tasks.1.training_config.custom_script_path",
            "",
        ),
        (
            [{"role": "a", "training_config": {"custom_command": ["x"], "custom_arguments": ["y"]}}],
            {},
            "tasks.0.training_config.custom_arguments",
            "arguments in itself",
        ),
        (
            [{"role": "a", "training_config": {"environment": {"LD_PRELOAD": "x"}}}],
            {},
            "tasks.0.training_config.environment.LD_PRELOAD",
            "LD_PRELOAD",
        ),
        (
            [{"role": "a", "training_config": {"config": {"num_proc_per_node": "cpu"}}}],
            {},
            "tasks.0.training_config.config.num_proc_per_node",
            "cpu_cores",
        ),
        (
            [{"role": "a", "training_config": {"packages": {"requirements": ["a==1", "a==2"]}}}],
            {},
            "tasks.0.training_config.packages.requirements.1",
            "named twice",
        ),
    ],
)
def test_what_breaks_a_rule_is_refused_with_its_field(
    tasks: list[dict[str, Any]], changes: dict[str, Any], field: str, says: str
) -> None:
    found, message = refused(*tasks, **changes)
    assert found == field
    assert says in message


def test_a_role_without_a_program_is_refused() -> None:
    field, message = refused(TRAINER, training_config__framework__custom_script_path=None)
    assert field == "training_config.framework.custom_script_path"
    assert "framework CUSTOM needs" in message


SPREAD, BESIDE = {"role": "a", "where": "other_nodes"}, {"role": "a", "where": "same_node"}


@pytest.mark.parametrize(
    ("tasks", "field", "says"),
    [
        ([{"role": "a", "affinity": [{"role": "b"}]}], "tasks.0.affinity.0.role", "there is no role 'b'; known: a"),
        ([{"role": "a", "affinity": [SPREAD, BESIDE]}], "tasks.0.affinity.1.role", "a is named twice"),
        (
            [{"role": "a"}, *({"role": f"r{n}", "affinity": [{**SPREAD, "required": False}]} for n in range(9))],
            "tasks.9.affinity.0.required",
            "at most 8 affinities",
        ),
        (
            [{"role": "a", "affinity": [{"role": "b", "where": "other_nodes"}]}, {"role": "b", "affinity": [BESIDE]}],
            "tasks.1.affinity",
            "every node of b would have a and b, and a may not share a node with b",
        ),
        (
            [
                {"role": "a", "affinity": [{"role": "c", "where": "other_nodes"}]},
                {"role": "b", "affinity": [BESIDE]},
                {"role": "c", "affinity": [{"role": "b", "where": "same_node"}]},
            ],
            "tasks.2.affinity",
            "a may not share a node with c",
        ),
        (
            [{"role": "a"}, {"role": "b", "count": 2, "affinity": [BESIDE, {"role": "b", "where": "other_nodes"}]}],
            "tasks.1.affinity",
            "with an instance of a, which is on at most 1",
        ),
        (
            [
                {"role": "a", "count": 4, "affinity": [BESIDE]},
                {"role": "b", "count": 2, "affinity": [BESIDE, {"role": "b", "where": "other_nodes"}]},
            ],
            "tasks.1.affinity",
            "with an instance of a, which is on at most 1",
        ),
    ],
)
def test_an_affinity_that_no_placement_could_keep_is_refused(
    tasks: list[dict[str, Any]], field: str, says: str
) -> None:
    found, message = refused(*tasks)
    assert found == field
    assert says in message


def test_an_affinity_is_part_of_what_a_role_asks_for() -> None:
    tasks = [{"role": "a", "affinity": [SPREAD]}, {"role": "b", "affinity": [{**BESIDE, "required": False}]}]
    found = spec_of(document(*tasks)).document
    assert found.to_json()["tasks"] == tasks
    asked = request_of(found, has_gpus=False).roles
    assert [[(each.role, each.where, each.required) for each in role.affinity] for role in asked] == [
        [("a", "other_nodes", True)],
        [("a", "same_node", False)],
    ]


@pytest.mark.parametrize(
    ("given", "field"), [({"where": "near"}, "where"), ({"required": 1}, "required"), ({"nodes": 2}, "nodes")]
)
def test_an_affinity_has_no_other_fields_or_values(given: dict[str, Any], field: str) -> None:
    with pytest.raises(ValidationError) as refused_:
        loaded({"role": "a", "affinity": [{"role": "a", **given}]})
    assert field in str(refused_.value.messages)


@pytest.mark.parametrize(
    ("port", "field", "says"),
    [
        ({"role": "b"}, "ports.1.role", "there is no role 'b'; known: trainer, rollout"),
        ({"role": "rollout", "index": 2}, "ports.1.index", "index is 2, and the role rollout has 2 instances, 0 to 1"),
        ({"role": "trainer", "index": 1}, "ports.1.index", "has one instance, 0"),
        ({"index": 0}, "ports.1.index", "give role, too"),
        ({"role": "rollout", "port": 80}, "ports.1.port", "port 80 is given twice"),
    ],
)
def test_a_port_is_that_of_an_instance_that_there_is(port: dict[str, Any], field: str, says: str) -> None:
    ports = [{"name": "one", "port": 80, "role": "rollout"}, {"name": "two", "port": 81, **port}]
    found, message = refused(TRAINER, ROLLOUT, interactive_config={"ports": ports})
    assert found == f"interactive_config.{field}"
    assert says in message


def test_the_same_port_of_two_instances_may_be_named() -> None:
    ports = [{"name": f"web-{n}", "port": 80, "role": "rollout", "index": n} for n in (0, 1)]
    config = {"ports": ports, "readiness_probe": {"port": 80}}
    found = spec_of(document(TRAINER, ROLLOUT, interactive_config=config)).document
    assert found.to_json()["interactive_config"] == config
    assert found.interactive_config.probed == found.interactive_config.ports[0]


def test_a_port_of_a_job_without_roles_names_none() -> None:
    ports = [{"name": "web", "port": 80, "role": "trainer"}]
    error = refusal(custom(("interactive_config", {"ports": ports})))
    assert (error.field, "the job has no tasks" in error.message) == ("interactive_config.ports.0.role", True)


def test_roles_are_for_scripts_alone() -> None:
    built_in = document(TRAINER, training_config__framework={"type": "HF_TRAINER"})
    assert refusal(built_in).field == "tasks"


@pytest.mark.parametrize(
    ("task", "field"),
    [
        ({"role": "Trainer"}, "role"),
        ({"role": "x" * 31}, "role"),
        ({"role": "a", "count": 0}, "count"),
        ({"role": "a", "restart": "never"}, "restart"),
        ({"role": "a", "resource_config": {"gpu_fraction": 0.5}}, "resource_config"),
        ({"role": "a", "resource_config": {"image": {"pull_policy": "daily"}}}, "resource_config"),
    ],
)
def test_the_schema_refuses_what_a_role_can_not_have(task: dict[str, Any], field: str) -> None:
    with pytest.raises(ValidationError) as error:
        loaded(task)
    assert field in error.value.normalized_messages()["tasks"][0]


def image(reference: str) -> dict[str, Any]:
    return {"resource_config": {"image": {"reference": reference}}}


def test_a_role_has_the_jobs_image_unless_it_has_its_own() -> None:
    given = loaded({"role": "same"}, {"role": "other", **image("a.example/b:c")}).changed(
        resource_config=ResourceConfig.from_json(image("a.example/a:1")["resource_config"])
    )
    assert [document_of(given, role).resource_config.image.reference for role in given.tasks] == [
        "a.example/a:1",
        "a.example/b:c",
    ]
    on_nodes = [with_image_of(given, names).resource_config.image.reference for names in ({"same"}, {"other"}, ())]
    assert on_nodes == ["a.example/a:1", "a.example/b:c", "a.example/a:1"]
    assert [field for _, field in images(given)] == [
        "resource_config.image.reference",
        "tasks.1.resource_config.image.reference",
    ]


@pytest.mark.parametrize(
    ("own", "field", "says"),
    [
        (image("no image"), "tasks.1.resource_config.image.reference", "is no reference to an image"),
        (image("a.example/b:c"), "tasks.1.resource_config.image.reference", "name another one"),
        (
            {**image("oci:/srv/x"), "training_config": {"packages": {"requirements": ["a==1"]}}},
            "tasks.1.training_config.packages",
            "has the image's packages",
        ),
        (
            {**image("oci:/srv/x"), "affinity": [{"role": "trainer"}]},
            "tasks.1.affinity",
            "rollout and trainer, whose images differ",
        ),
    ],
)
def test_an_image_of_a_role_that_it_can_not_have_is_refused(own: dict[str, Any], field: str, says: str) -> None:
    found, message = refused(TRAINER, {"role": "rollout", **own})

    assert found == field
    assert says in message


def test_an_image_of_the_job_that_no_role_has_is_refused() -> None:
    roles = [{"role": "a", **image("oci:/srv/a")}, {"role": "b", **image("oci:/srv/b")}]
    for reference in ("127.0.0.1:9/never/asked:1", "oci:/srv/none"):
        field, message = refused(*roles, resource_config__image={"reference": reference})
        assert (field, "no role has this one; leave it out" in message) == ("resource_config.image", True)

        stored = loaded(*roles).changed(resource_config=ResourceConfig.from_json(image(reference)["resource_config"]))
        assert [field for _, field in images(stored)] == [f"tasks.{n}.resource_config.image.reference" for n in (0, 1)]
        assert [place for place, _ in locations(stored)] == ["/srv/a", "/srv/b"]


def test_packages_of_a_job_are_not_those_of_a_role_with_an_image() -> None:
    roles = [TRAINER, {"role": "judge", **image("oci:/srv/a")}]
    field, message = refused(*roles, training_config__packages={"requirements": ["a==1"]})
    assert (field, "to the roles without an image" in message) == ("training_config.packages", True)


def test_a_role_has_the_jobs_program_unless_it_has_its_own() -> None:
    given = JobDocument.from_json(
        document(
            {"role": "same"},
            {"role": "other", "training_config": {"custom_command": ["serve"], "config": {"num_proc_per_node": 3}}},
            training_config__framework__custom_arguments=["--fast"],
            training_config__environment={"A": "1", "B": "2"},
        )
    )
    same, other = (document_of(given, role).training_config.framework for role in given.tasks)
    assert (same.custom_script_path, same.custom_arguments) == ("/srv/train.py", ("--fast",))
    assert (other.custom_script_path, other.custom_command, other.custom_arguments) == (None, ("serve",), ())
    assert [ranks_of_role(given, name) for name in ("same", "other")] == [range(1), range(1, 4)]
    with pytest.raises(InvalidRequest, match="known: same, other"):
        ranks_of_role(given, "third")


def test_environment_and_labels_of_job_and_role_are_added_up() -> None:
    given = JobDocument.from_json(
        document(
            {
                "role": "a",
                "training_config": {"environment": {"B": "3"}},
                "resource_config": {"required_node_labels": ["fast"]},
            },
            training_config__environment={"A": "1", "B": "2"},
            resource_config__required_node_labels=["ssd"],
        )
    )
    found = document_of(given, given.tasks[0])
    assert found.training_config.environment == {"A": "1", "B": "3"}
    assert found.resource_config.required_node_labels == ("ssd", "fast")


def test_the_request_counts_all_instances() -> None:
    given = JobDocument.from_json(document(TRAINER, {**ROLLOUT, "resource_config": {"device_type": "cpu"}}))
    found = request_of(given, has_gpus=True)
    assert (found.device_kind, found.amount, found.amounts) == ("cuda", 4, {"cuda": 4, "cpu": 2})
    assert found.is_gang
    assert [(role.role, role.count, role.each.device_count) for role in found.roles] == [
        ("trainer", 1, 4),
        ("rollout", 2, 1),
    ]


def test_auto_is_resolved_for_each_role() -> None:
    given = JobDocument.from_json(document({"role": "a"}, {"role": "b", "resource_config": {"gpu_type": "h100"}}))
    kinds = [role.each.device_kind for role in request_of(given, has_gpus=False).roles]
    assert kinds == ["cpu", "cuda"]


def test_secrets_of_roles_are_masked_and_put_back() -> None:
    tasks = [TRAINER, {"role": "a", "training_config": {"environment": {"MY_TOKEN": "s3cret", "MODE": "x"}}}]
    spec = spec_of(document(*tasks))
    path = "tasks.1.training_config.environment.MY_TOKEN"
    assert spec.secrets[path] == "s3cret"
    assert spec.document.tasks[1].training_config.environment == {"MY_TOKEN": MASK, "MODE": "x"}
    restored = with_secrets(spec.document, spec.secrets)
    assert restored.tasks[1].training_config.environment["MY_TOKEN"] == "s3cret"
    assert secret_variables(spec.secrets) == ["MY_TOKEN"]
    assert "s3cret" not in repr(restored)


def test_a_masked_secret_of_a_role_is_refused() -> None:
    task = {"role": "a", "training_config": {"environment": {"MY_TOKEN": MASK}}}
    assert refused(task)[0] == "tasks.0.training_config.environment.MY_TOKEN"


def test_a_role_has_one_device_by_default() -> None:
    assert loaded({"role": "a"}).tasks[0] == JobRole(role="a")


def test_world_of_a_role_is_one_of_three() -> None:
    with pytest.raises(ValidationError, match="role, job, instance"):
        loaded({"role": "a", "world": "node"})
    assert [each.world for each in loaded({"role": "a"}, {"role": "b", "world": "instance"}).tasks] == [
        "role",
        "instance",
    ]
