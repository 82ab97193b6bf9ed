"""Where code is: uploaded bundles, commits of repositories, and scripts in them."""

from typing import Any

import pytest

from app.domain.errors import BadSpec
from app.domain.spec.credentials import texts_of
from app.domain.spec.frameworks.custom import below
from app.domain.spec.locations.code import GitCommit, check_bundle, git_commit, is_bundle
from app.domain.spec.locations.uploads import check_directory, without_scheme
from app.domain.spec.secrets import CODE_LOGIN
from tests.builders.submitted import changed, custom, refusal, spec_of

COMMIT = "0123456789abcdef0123456789abcdef01234567"
FILE_ID = "file-01935b5f-7c00-7abc-8def-0123456789ab"
REPOSITORY = "git+https://example.org/team/code.git"


@pytest.mark.parametrize(
    ("location", "found"),
    [
        (f"{REPOSITORY}@{COMMIT}", GitCommit(url="https://example.org/team/code.git", commit=COMMIT)),
        (
            f"git+https://example.org:8443/~me/a.b_c@{COMMIT}#subdirectory=src/train",
            GitCommit(url="https://example.org:8443/~me/a.b_c", commit=COMMIT, directory="src/train"),
        ),
    ],
)
def test_commit_of_a_repository(location: str, found: GitCommit) -> None:
    assert git_commit(location, field="f") == found
    assert is_bundle(location)
    check_bundle(location, (), field="f")


@pytest.mark.parametrize(
    ("location", "message"),
    [
        (f"{REPOSITORY}@main", "'main' is no commit.*git ls-remote https://example.org/team/code.git main"),
        (f"{REPOSITORY}@v1.0", "git ls-remote https://example.org/team/code.git v1.0"),
        (f"{REPOSITORY}@{COMMIT[:8]}", "a branch, a tag or a short id"),
        (f"{REPOSITORY}@{COMMIT.upper()}", "is no commit"),
        (REPOSITORY, "names no commit; .*git ls-remote https://example.org/team/code.git main"),
        (f"git+https://me:secret@example.org/code.git@{COMMIT}", "no user or password"),
        ("git+https://me@example.org/code.git", "no user or password"),
        (f"git+http://example.org/code.git@{COMMIT}", r"git\+http:// is not supported"),
        (f"git+ssh://git@example.org/code.git@{COMMIT}", r"git\+ssh:// is not supported"),
        (f"git+file:///srv/code.git@{COMMIT}", r"git\+file:// is not supported"),
        (f"git+https://example.org@{COMMIT}", "no user or password"),
        (f"git+https://example.org/a/../b@{COMMIT}", "malformed"),
        (f"git+https://example.org/a b@{COMMIT}", "malformed"),
        (f"git+https://example.org/a?b=c@{COMMIT}", "malformed"),
        (f"git+https://exa$mple.org/a@{COMMIT}", "host"),
        (f"git+https://127.0.0.1/a@{COMMIT}", "TRAINYARD_FETCH_ALLOW"),
        (f"git+https://localhost/a@{COMMIT}", "TRAINYARD_FETCH_ALLOW"),
        (f"{REPOSITORY}@{COMMIT}#subdirectory=../x", "subdirectory=path"),
        (f"{REPOSITORY}@{COMMIT}#subdirectory=", "subdirectory=path"),
        (f"{REPOSITORY}@{COMMIT}#egg=x", "subdirectory=path"),
        (f"git+https://--upload-pack=x/a@{COMMIT}", "host"),
    ],
)
def test_other_forms_are_refused(location: str, message: str) -> None:
    with pytest.raises(BadSpec, match=f"(?i){message}"):
        check_bundle(location, (), field="f")


@pytest.mark.parametrize("code", [FILE_ID, f"{REPOSITORY}@{COMMIT}"])
@pytest.mark.parametrize(
    ("script", "inner"),
    [
        ("train.py", "train.py"),
        ("./src//train.py", "src/train.py"),
        ("/srv/train.py", ""),
        ("../train.py", ""),
        ("a/../../train.py", ""),
        (".", ""),
        ("s3://bucket/train.py", ""),
    ],
)
def test_script_is_named_by_its_path_in_the_bundle(code: str, script: str, inner: str) -> None:
    assert below(script, code) == inner


def test_uploads_may_have_a_scheme() -> None:
    assert without_scheme(f"upload://{FILE_ID}") == without_scheme(FILE_ID) == FILE_ID
    assert without_scheme("s3://bucket/x") == "s3://bucket/x"
    with pytest.raises(ValueError, match="names no uploaded file"):
        without_scheme("upload://sha256")


def test_code_is_an_uploaded_directory() -> None:
    check_directory(FILE_ID, "directory", field="f")
    with pytest.raises(BadSpec, match="trainyard data push DIR"):
        check_directory(FILE_ID, "user_data", field="f")


def private(code: str | None, **login: str) -> dict[str, Any]:
    places = () if code is None else (("training_config.framework.custom_code_dir", code),)
    return changed(
        ("training_config.framework.custom_script_path", "train.py"), *places, (CODE_LOGIN, login), start=custom()
    )


@pytest.mark.parametrize(
    ("code", "login", "field"),
    [
        (None, {"token": "t"}, ""),
        (FILE_ID, {"token": "t"}, ""),
        (f"{REPOSITORY}@{COMMIT}", {"password": "p"}, ""),
        (f"{REPOSITORY}@{COMMIT}", {"token": "t", "username": "u", "password": "p"}, ""),
        (f"{REPOSITORY}@{COMMIT}", {"host": "example.org"}, ""),
        (f"{REPOSITORY}@{COMMIT}", {"token": "a b"}, ".token"),
        (f"{REPOSITORY}@{COMMIT}", {"token": "***"}, ".token"),
        (f"{REPOSITORY}@{COMMIT}", {"username": "a:b", "password": "p"}, ".username"),
        (f"{REPOSITORY}@{COMMIT}", {"key": "t"}, ".key"),
        (f"{REPOSITORY}@{COMMIT}", {"token": "t", "host": "other.example"}, ".host"),
    ],
)
def test_login_of_a_repository_is_whole_and_for_its_host(code: str | None, login: dict[str, str], field: str) -> None:
    assert refusal(private(code, **login)).field == CODE_LOGIN + field


def test_login_is_for_code_of_scripts() -> None:
    error = refusal(changed((CODE_LOGIN, {"token": "t"})))

    assert (error.field, "is for framework CUSTOM only" in error.message) == (CODE_LOGIN, True)


def test_login_is_taken_out_of_the_document() -> None:
    spec = spec_of(private(f"{REPOSITORY}@{COMMIT}", username="me", password="s3cret", host="example.org"))

    assert spec.secrets == {
        f"{CODE_LOGIN}.{name}": value
        for name, value in {"username": "me", "password": "s3cret", "host": "example.org"}.items()
    }
    assert sorted(texts_of(spec.secrets)) == ["me", "s3cret"], "logs may show the host"
    assert set(spec.document.training_config.framework.custom_code_credentials.values()) == {"***"}
