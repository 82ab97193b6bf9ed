"""References to images: as registries, Docker and the tools that read them take them, and from where they may come."""

import pytest

from app.domain.errors import BadSpec
from app.domain.spec.locations.images import parse, why_not_from

DIGEST = "sha256:" + "0123456789abcdef" * 4


@pytest.mark.parametrize(
    ("text", "name", "tag", "digest"),
    [
        ("debian", "docker.io/library/debian", "latest", ""),
        ("debian:12", "docker.io/library/debian", "12", ""),
        ("pytorch/pytorch:2.9", "docker.io/pytorch/pytorch", "2.9", ""),
        ("docker.io/debian", "docker.io/library/debian", "latest", ""),
        ("docker://ghcr.io/a/b/c:v1", "ghcr.io/a/b/c", "v1", ""),
        ("localhost/a:1", "localhost/a", "1", ""),
        ("registry:5000/a", "registry:5000/a", "latest", ""),
        (f"ghcr.io/a@{DIGEST}", "ghcr.io/a", "", DIGEST),
        (f"ghcr.io/a:v1@{DIGEST}", "ghcr.io/a", "v1", DIGEST),
        ("a__b/c.d-e", "docker.io/a__b/c.d-e", "latest", ""),
    ],
)
def test_reference_to_a_registry_is_completed_as_docker_does(text, name, tag, digest):
    found = parse(text)

    assert (found.name, found.tag, found.digest, found.is_local) == (name, tag, digest, False)
    assert parse(str(found)) == found


@pytest.mark.parametrize(
    ("text", "transport", "name", "tag"),
    [
        ("oci:/srv/image", "oci", "/srv/image", ""),
        ("oci:images/one:v1", "oci", "images/one", "v1"),
        ("oci-archive:/srv/image.tar", "oci-archive", "/srv/image.tar", ""),
        ("docker-archive:image.tar", "docker-archive", "image.tar", ""),
    ],
)
def test_reference_to_a_file_names_its_path(text, transport, name, tag):
    found = parse(text)

    assert (found.transport, found.name, found.tag, found.host, found.is_local) == (transport, name, tag, "", True)
    assert str(found) == text


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", "Debian", "a/B", "a:", "a::b", "a@sha256:00", f"a@sha512:{'0' * 128}", "a//b", "/a", "a/", "../a"),
        *(
            "http://ghcr.io/a",
            "ghcr.io/a?b",
            "a b",
            "--help",
            "oci:",
            "oci:/a:b:c",
            "oci:/a:",
            "oci-archive:/a:b",
            "a\n",
        ),
        "dir:/srv",
    ],
)
def test_other_text_is_refused_with_the_forms_that_are_taken(text):
    with pytest.raises(BadSpec) as caught:
        parse(text)

    assert caught.value.field == "resource_config.image.reference"
    assert "write" in caught.value.message


@pytest.mark.parametrize(
    ("name", "sources", "may"),
    [
        ("ghcr.io/team/tool", ("ghcr.io",), True),
        ("ghcr.io/team/tool", ("ghcr.io/team/",), True),
        ("ghcr.io/team/tool", ("ghcr.io/team/tool",), True),
        ("ghcr.io/teammate/tool", ("ghcr.io/team",), False),
        ("ghcr.io.example/tool", ("ghcr.io",), False),
        ("ghcr.io:5000/tool", ("ghcr.io",), False),
        ("ghcr.io/tool", (), False),
    ],
)
def test_image_comes_from_a_source_that_the_operator_has_named(name, sources, may):
    why = why_not_from(parse(name), sources, require_digest=False)

    assert (why == "") is may
    assert may or "TRAINYARD_IMAGES_SOURCES" in why


def test_digest_may_be_demanded_and_files_need_neither():
    assert "@sha256:" in why_not_from(parse("ghcr.io/a:v1"), ["ghcr.io"], require_digest=True)
    assert why_not_from(parse(f"ghcr.io/a@{DIGEST}"), ["ghcr.io"], require_digest=True) == ""
    assert why_not_from(parse("oci:/srv/image"), [], require_digest=True) == ""
