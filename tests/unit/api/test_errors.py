"""Every error class has a status, and none says too much."""

import pytest
from sqlalchemy.exc import DataError, OperationalError

from app.domain import errors
from app.domain.errors import LimitExceeded, TrainyardError
from app.http.errors import STATUSES, problem_of


def every_class(root: type[Exception]) -> list[type[Exception]]:
    return [root, *(found for child in root.__subclasses__() for found in every_class(child))]


@pytest.mark.parametrize(
    ("name", "status"),
    [
        ("InvalidRequest", 400),
        ("BadSpec", 400),
        ("NotSupportedYet", 400),
        ("UnknownQueue", 400),
        ("CannotFit", 400),
        ("CredentialsMissing", 401),
        ("CredentialsInvalid", 401),
        ("Forbidden", 403),
        ("NotFound", 404),
        ("NotYours", 404),
        ("Conflict", 409),
        ("IllegalTransition", 409),
        ("StaleJob", 409),
        ("IdempotencyConflict", 409),
        ("LimitExceeded", 429),
        ("QuotaExceeded", 429),
        ("Unavailable", 503),
        ("TransientStorageError", 503),
    ],
)
def test_errors_of_the_domain_have_their_status(name: str, status: int) -> None:
    problem = problem_of(getattr(errors, name)("says why"))

    assert problem.status == status
    assert status >= 500 or problem.message == "says why"


def test_every_class_of_the_tree_finds_a_status() -> None:
    assert all(set(cls.__mro__) & set(STATUSES) for cls in every_class(TrainyardError))


def test_field_becomes_a_detail_and_waiting_a_retry_after() -> None:
    assert problem_of(errors.BadSpec("rule", field="a.b")).details == [("a.b", "rule")]
    assert problem_of(LimitExceeded("slow", retry_after_seconds=7)).retry_after == 7


def test_a_value_that_the_database_refuses_is_the_callers_fault() -> None:
    problem = problem_of(DataError("SELECT secret", {}, Exception("integer out of range")))

    assert (problem.status, problem.code) == (400, "INVALID_ARGUMENT")
    assert "secret" not in problem.message


@pytest.mark.parametrize(
    "error",
    [
        ValueError("/etc/secret"),
        TrainyardError("/etc/secret"),
        errors.TransientStorageError("/etc/secret"),
        OperationalError("SELECT secret", {}, Exception("secret")),
    ],
)
def test_internal_errors_reveal_no_internals(error: Exception) -> None:
    problem = problem_of(error)

    assert problem.status in (500, 503)
    assert "secret" not in problem.message
