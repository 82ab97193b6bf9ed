"""The 78 attacks of the security audit, tried by jobs on whole systems, and without a sandbox."""

import errno
import os
import socket
from pathlib import Path

import pytest

from tests.sandbox.control import Report
from tests.sandbox.expectations import NUMBERS, RUNGS, UNPROVEN, expected, hole
from tests.sandbox.jobs import Attacked
from tests.sandbox.probes.files import PLANTED
from tests.sandbox.probes.probing import PROBES, REACHED

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]


def cases() -> list[object]:
    return [
        pytest.param(
            rung,
            number,
            id=f"{rung}-{number}",
            marks=[pytest.mark.xfail(reason=reason)] if (reason := hole(rung, number)) else [],
        )
        for rung in RUNGS
        for number in NUMBERS
    ]


@pytest.mark.parametrize(("rung", "number"), cases())
def test_job_gets_nothing_that_is_not_its_own(rung: str, number: int, request: pytest.FixtureRequest) -> None:
    report: Report = request.getfixturevalue(rung)

    found = report[number]

    assert found["outcome"] == expected(rung, number), f"{PROBES[number].title}: {found['saw']}"


@pytest.mark.parametrize("number", [number for number in NUMBERS if number not in UNPROVEN])
def test_probe_reaches_its_target_where_there_is_no_sandbox(number: int, control: Report) -> None:
    found = control[number]

    assert found["outcome"] == REACHED, f"{PROBES[number].title}: {found['saw']}"


def test_port_of_a_job_is_not_the_machines(of_root: Attacked) -> None:
    with socket.socket() as connection:
        assert connection.connect_ex(("127.0.0.1", of_root.others.port)) == errno.ECONNREFUSED


def test_what_a_job_writes_into_its_image_stays_in_its_overlay(image: Report, of_root: Attacked) -> None:
    assert "GOT a new file" in image[16]["saw"]

    places = [of_root.machine.data_dir, *map(Path, ("/usr/local", "/etc", "/opt", "/var/tmp"))]
    assert not any(PLANTED in names for place in places for _, _, names in os.walk(place))
    assert not any(Path(place, PLANTED).exists() for place in ("/", "/usr", "/var"))
