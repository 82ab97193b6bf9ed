"""Logins of registries in job documents: which are refused, and how they are stored."""

from typing import Any

import pytest

from app.domain.errors import BadSpec
from app.domain.spec.locations.images import closest, parse
from app.domain.spec.model import JobDocument
from app.domain.spec.rules.registry_logins import logins_open_images
from app.domain.spec.secrets import take_secrets, with_secrets
from app.domain.sweeps.rules.paths import kind_of
from tests.builders.factories import make_document

GOOD = {"registry": "hub.example:5000", "username": "team", "password": "hunter2"}


def document(*logins: dict[str, str], image: str = "hub.example:5000/team/tool:v1") -> JobDocument:
    return JobDocument.from_json(
        make_document(
            training_config={"base_model": {"model_id": "none"}, "framework": {"type": "CUSTOM"}},
            resource_config={"gpu_count": 1, "image": {"reference": image}, "registry_logins": [*logins]},
        )
    )


def test_passwords_are_taken_out_and_put_back() -> None:
    given = document(GOOD)

    stored, secrets = take_secrets(given)

    assert stored.to_json()["resource_config"]["registry_logins"] == [{**GOOD, "password": "***"}]
    assert secrets == {"resource_config.registry_logins.0.password": "hunter2"}
    assert with_secrets(stored, secrets) == given
    assert "hunter2" not in repr(given)
    with pytest.raises(BadSpec, match="stands for a secret") as caught:
        take_secrets(stored)
    assert caught.value.field == "resource_config.registry_logins.0.password"


@pytest.mark.parametrize(
    ("change", "field", "says"),
    [
        ({"registry": "https://hub.example:5000"}, "registry", "without https://"),
        ({"registry": "hub.example:5000/team/tool:v1"}, "registry", "is no registry"),
        ({"registry": "hub.example:5000/"}, "registry", "is no registry"),
        ({"registry": "team"}, "registry", "'team' is no registry"),
        ({"registry": "https://team:hunter2@hub.example:5000"}, "registry", "this is no registry"),
        ({"registry": "hub.example"}, "registry", "no image of the job is read with the login of hub.example;"),
        ({"registry": "hub.example:5000/tea"}, "registry", "no image of the job"),
        ({"username": "a:b"}, "username", "no colon"),
        ({"username": "a\nb"}, "username", "without line breaks"),
        ({"password": "a\0b"}, "password", "without line breaks"),
    ],
)
def test_login_that_opens_nothing_is_refused(change: dict[str, str], field: str, says: str) -> None:
    with pytest.raises(BadSpec) as caught:
        logins_open_images(document({**GOOD, **change}))

    assert caught.value.field == f"resource_config.registry_logins.0.{field}"
    assert says in caught.value.message
    assert "hunter2" not in caught.value.message


def test_login_is_given_once_and_only_for_images_of_registries() -> None:
    logins_open_images(document(GOOD))
    logins_open_images(document())
    for given in (
        document(GOOD, GOOD),
        document(GOOD, {**GOOD, "registry": "hub.example:5000/team"}),  # the longer one alone is used
        document(GOOD, image="oci:/srv/image"),
    ):
        with pytest.raises(BadSpec, match=r"given twice|no image of the job"):
            logins_open_images(given)


def test_image_has_the_login_of_the_longest_part_of_its_name() -> None:
    reference = parse("hub.example/team/tool:v1")

    assert closest(reference, ["hub.example", "hub.example/team", "hub.example/tea", "hub.example:443"]) == 1
    assert closest(reference, ["example", "evil.example", "hub.example.evil"]) is None
    assert closest(parse("tool"), ["docker.io/library"]) == 0


def test_logins_do_not_vary_between_trials() -> None:
    job: dict[str, Any] = document(GOOD).to_json()

    with pytest.raises(BadSpec, match="may not vary"):
        kind_of("resource_config.registry_logins.0.password", job)
