"""Waiting for a job's sandbox, which may stay closed."""

from contextlib import nullcontext

import pytest

from app.domain.errors import SandboxNotOpen
from app.services.interactive.opening import endpoint_of
from tests.builders.interactive import open_job, running_job
from tests.systems.apps import Api


def test_a_sandbox_that_stays_closed_is_told(api: Api):
    job_id = running_job(api, "PREPARING")

    with pytest.raises(SandboxNotOpen, match=r"is not open after 0\.1 s"):
        endpoint_of(api.app.extensions["trainyard"].plane, job_id, rank=0, waiting=nullcontext, seconds=0.1)


def test_an_open_sandbox_takes_no_place_of_those_who_wait(api: Api):
    found = endpoint_of(api.app.extensions["trainyard"].plane, open_job(api), rank=0, waiting=_refused)

    assert found.port == 4711


def _refused() -> nullcontext[None]:
    raise AssertionError
