"""Rules of training_config.packages: where packages may come from, and what a lock must have."""

import re
from typing import Any

import pytest
from marshmallow import ValidationError

from app.domain.errors import BadSpec
from app.domain.spec.frameworks.requirements import how_to_offer, needed
from app.domain.spec.locations.paths import ReadingRules
from app.domain.spec.model import JobDocument
from app.domain.spec.packages import Packages
from app.domain.spec.rules import packages as rules
from app.domain.spec.rules.requirement_lines import MOST_REQUIREMENTS, with_lines_of
from app.schemas.spec.packages import PackagesSchema
from tests.builders.factories import make_document

HASH = "--hash=sha256:" + "0123456789abcdef" * 4
COMMIT = "0123456789abcdef0123456789abcdef01234567"


def document(framework: str = "CUSTOM", image: str = "", **packages: Any) -> JobDocument:
    script = {"custom_script_path": "/data/train.py"} if framework == "CUSTOM" else {}
    return JobDocument.from_json(
        make_document(
            training_config={"framework": {"type": framework, **script}, "packages": packages},
            resource_config={"gpu_count": 1, **({"image": {"reference": image}} if image else {})},
        )
    )


def refusal(found: JobDocument, allowed: ReadingRules | None = None) -> BadSpec:
    with pytest.raises(BadSpec) as refused:
        check(found, allowed)
    return refused.value


def check(found: JobDocument, allowed: ReadingRules | None = None) -> Packages:
    """The packages that the rules accept."""
    for rule in rules.RULES:
        rule(found)
    rules.check(found, allowed or ReadingRules(roots=()))
    accepted = rules.packages_of(found)
    assert accepted is not None
    return accepted


@pytest.mark.parametrize(
    "packages",
    [
        {"requirements": ["numpy==2.1.0", "einops>=0.8; python_version > '3.10'", "httpx[http2]"]},
        {"requirements": ["one @ https://example.com/one-1-py3-none-any.whl"]},
        {"requirements": [f"one @ git+https://example.com/one.git@{COMMIT}"], "allow_source_builds": True},
        {"requirements": ["numpy"], "index_url": "https://packages.example.com/simple"},
        {
            "lock": f"# made by uv\nnumpy==2.1.0 \\\n    {HASH} \\\n    {HASH}\n    # via a\n"
            f"Foo.Bar==1 ; x == 'y' {HASH}"
        },
        {"requirements": ["foo-bar"], "lock": f"Foo.Bar==1 {HASH}"},
        {"requirements_file": "requirements/train.txt", "requirements": ["numpy"]},
    ],
)
def test_packages_of_an_index_or_by_https_are_accepted(packages):
    found = check(document(**packages))

    assert found.to_json() == packages


@pytest.mark.parametrize(
    ("packages", "field", "says"),
    [
        ({}, "", "name packages in requirements"),
        ({"requirements_file": "/etc/passwd"}, ".requirements_file", "'/etc/passwd' does not name a file in the code"),
        ({"requirements_file": "a/../../b.txt"}, ".requirements_file", "name it by its path there"),
        ({"requirements_file": "https://h.example/a.txt"}, ".requirements_file", "does not name a file in the code"),
        ({"requirements": ["a @ http://example.com/a-1-py3-none-any.whl"]}, ".requirements.0", "come from an index"),
        ({"requirements": ["a @ file:///srv/a-1-py3-none-any.whl"]}, ".requirements.0", "come from an index"),
        ({"requirements": ["a @ /srv/a-1-py3-none-any.whl"]}, ".requirements.0", "come from an index"),
        ({"requirements": ["a[b] @ ./a-1-py3-none-any.whl"]}, ".requirements.0", "come from an index"),
        ({"requirements": ["a @ git+file:/srv/a"]}, ".requirements.0", "git+https://HOST/PATH@COMMIT"),
        ({"requirements": ["a @ https://h.example/a-1-py3-none-any.whl\n--pre"]}, ".requirements.0", "a line break"),
        ({"requirements": ["b", "a @ git+https://h.example/a@main"]}, ".requirements.1", "40 digits of the commit"),
        ({"requirements": ["a @ git+ssh://git@h.example/a@main"]}, ".requirements.0", "git+https://HOST/PATH@COMMIT"),
        ({"requirements": [f"a @ git+https://h.example/a@{COMMIT}"]}, ".requirements.0", "allow_source_builds"),
        ({"requirements": ["a @ https://h.example/a.tar.gz"]}, ".requirements.0", "allow_source_builds"),
        ({"requirements": ["a @ https://me:pw@h.example/a-1-py3-none-any.whl"]}, ".requirements.0", "credentials"),
        ({"requirements": ["a @ https://10.0.0.1/a-1-py3-none-any.whl"]}, ".requirements.0", "TRAINYARD_FETCH_ALLOW"),
        ({"requirements": ["Foo_bar", "foo-Bar==1"]}, ".requirements.1", "foo-bar is named twice"),
        ({"requirements": ["a"], "index_url": "https://me:pw@h.example/simple"}, ".index_url", "UV_INDEX_PASSWORD"),
        ({"requirements": ["a"], "index_url": "https://h.example/simple?token=1"}, ".index_url", "UV_INDEX_PASSWORD"),
        ({"requirements": ["a"], "index_url": "http://169.254.169.254/"}, ".index_url", "TRAINYARD_FETCH_ALLOW"),
        ({"requirements": ["a"], "index_url": "file:///srv/index"}, ".index_url", "https://HOST/PATH"),
        ({"lock": "numpy==2.1.0"}, ".lock", "it has no hash"),
        ({"lock": f"numpy>=2 {HASH}"}, ".lock", "NAME==VERSION"),
        ({"lock": f"--index-url https://h.example\nnumpy==2 {HASH}"}, ".lock", "name the index in index_url"),
        ({"lock": f"-r other.txt\nnumpy==2 {HASH}"}, ".lock", "options are not read"),
        ({"lock": f"# note \\\n--no-binary=src\\\nsrc==1 {HASH}"}, ".lock", "options are not read"),
        ({"lock": f"numpy==2 {HASH} --no-binary=numpy"}, ".lock", "nothing but --hash"),
        ({"lock": f"numpy==2 --pre {HASH}"}, ".lock", "NAME==VERSION"),
        ({"lock": f"a @ https://h.example/a-1-py3-none-any.whl {HASH}"}, ".lock", "NAME==VERSION"),
        ({"lock": "# nothing"}, ".lock", "it has 0 packages"),
        ({"requirements": ["einops"], "lock": f"numpy==2 {HASH}"}, ".lock", "'einops' is in requirements"),
    ],
)
def test_refusal_names_field_rule_and_way_out(packages, field, says):
    refused = refusal(document(**packages))

    assert refused.field == f"training_config.packages{field}"
    assert says in refused.message


def test_they_are_for_scripts_without_an_image():
    assert "framework CUSTOM" in refusal(document("HF_TRAINER", requirements=["a"])).message
    assert "add them to the image" in refusal(document(image="debian:12", requirements=["a"])).message


def test_installation_may_have_none():
    refused = refusal(document(requirements=["a"]), ReadingRules(roots=(), packages=False))
    assert "TRAINYARD_PACKAGES_ENABLED" in refused.message


def test_private_index_that_the_operator_allows_is_accepted():
    found = check(
        document(requirements=["a"], index_url="http://10.0.0.1:8080/simple"),
        ReadingRules(roots=(), fetch_allow=("10.0.0.0/8",)),
    )

    assert found.index_url == "http://10.0.0.1:8080/simple"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("-r requirements.txt", "options such as -r and -e are not read"),
        ("-e .", "options such as -r and -e are not read"),
        ("./here", "files of this machine"),
        ("/srv/a.whl", "files of this machine"),
        ("git+https://example.com/a@main", "NAME @ git+https://"),
        ("numpy=2.1", "'numpy=2.1' is no requirement"),
        ("numpy\n--index-url https://h.example", "no requirement"),
        ("a @ https://h.example/a.whl\n--index-url=https://h.example\nb", "no requirement"),
        ("a ;" + "(" * 900, "no requirement"),
    ],
)
def test_malformed_requirement_is_quoted_with_the_form_to_use(text, says):
    with pytest.raises(ValidationError) as refused:
        PackagesSchema().load({"requirements": [text]})

    assert says in str(refused.value.messages)


def test_number_of_requirements_is_limited():
    with pytest.raises(ValidationError):
        PackagesSchema().load({"requirements": [f"a{number}" for number in range(MOST_REQUIREMENTS + 1)]})


@pytest.mark.parametrize("text", ["2.7", "3", "python3.11", "3.11; ls", "3.11\n"])
def test_python_is_a_version(text):
    with pytest.raises(ValidationError):
        PackagesSchema().load({"requirements": ["a"], "python": text})


def test_requirements_file_needs_code():
    found = JobDocument.from_json(
        make_document(
            training_config={
                "framework": {"type": "CUSTOM", "custom_command": ["true"]},
                "packages": {"requirements_file": "requirements.txt"},
            }
        )
    )
    refused = refusal(found)

    assert refused.field == "training_config.packages.requirements_file"
    assert "set framework.custom_code_dir" in refused.message


def is_requirement(text: str) -> bool:
    return re.fullmatch(r"[a-z]\w*(?:[=>].*)?", text) is not None


def test_lines_of_a_file_join_the_requirements():
    asked = Packages(requirements=("a",), requirements_file="r.txt")

    found = with_lines_of(
        asked, "# made by hand\r\nb==1  # exactly\n\n  c>=2 ; \\\n  python_version > '3'\n", is_requirement
    )

    assert found == Packages(requirements=("a", "b==1", "c>=2 ;    python_version > '3'"))


def test_file_with_hashes_is_a_lock():
    text = f"numpy==2.1.0 \\\n    {HASH}\n"

    assert with_lines_of(Packages(requirements_file="r.txt"), text, is_requirement) == Packages(lock=text)
    with pytest.raises(BadSpec, match="keep one of them"):
        with_lines_of(Packages(requirements_file="r.txt", lock=text), text, is_requirement)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("numpy\n-r other.txt", "'r.txt': '-r other.txt' is no requirement"),
        ("--index-url https://h.example\nnumpy", "options such as -r and -e are not read"),
        ("./local.whl", "files of this machine are no packages"),
        ("\n".join(f"a{number}" for number in range(MOST_REQUIREMENTS + 1)), f"has {MOST_REQUIREMENTS + 1} req"),
        ("a" * 2000, "aaa is no requirement"),
    ],
)
def test_line_that_is_no_requirement_is_refused_with_the_name_of_the_file(text, says):
    with pytest.raises(BadSpec) as refused:
        with_lines_of(Packages(requirements_file="r.txt"), text, is_requirement)

    assert refused.value.field == "training_config.packages.requirements_file"
    assert says in refused.value.message


@pytest.mark.parametrize(
    ("packages", "capabilities"),
    [
        ({"requirements": ["a"]}, {"packages"}),
        ({"lock": f"a==1 {HASH}", "python": "3.12"}, {"packages", "python:3.12"}),
        ({"requirements_file": "r.txt"}, {"packages"}),
        ({"requirements_file": "r.txt", "requirements_file_required": False}, set()),
        ({"requirements_file": "r.txt", "requirements_file_required": False, "requirements": ["a"]}, {"packages"}),
    ],
)
def test_job_runs_on_nodes_that_can_make_its_environment(packages, capabilities):
    assert needed(document(**packages)) == capabilities
    assert all(how_to_offer(word) for word in capabilities)


def test_file_that_need_not_be_there_is_no_reason_to_refuse_a_job():
    disabled = ReadingRules(roots=(), packages=False)

    check(document(requirements_file="r.txt", requirements_file_required=False), disabled)
    assert "TRAINYARD_PACKAGES_ENABLED" in refusal(document(requirements_file="r.txt"), disabled).message
