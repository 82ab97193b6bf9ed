"""A pytest plugin for `make test-long`: which process of pytest-xdist gets which files, and in which order.

Files that share a system stay in one process, one after the other: it starts once, and not once for each of them.
Whole systems and trainings come first: at the end, when one process waits idly for the other, files take seconds.
"""

from collections import OrderedDict
from functools import cache
from pathlib import Path

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling

ROOT = Path(__file__).parents[1]
# Its conftest.py has systems for several files, by these names, and ends them before the next test of another folder.
SHARING, SHARED = "tests/e2e", ("shared_system", "two_nodes")
FIRST = ("tests/e2e", "tests/faults/", "tests/trainers/", "tests/conformance/", "tests/secrets/")


class WholeSystemsFirst(LoadFileScheduling):  # type: ignore[misc]  # pytest-xdist has no types
    """Deals out files, of a kind those with the most tests first."""

    workqueue: OrderedDict[str, dict[str, bool]]

    def schedule(self) -> None:
        super().schedule()  # the first ones are sent, the others ordered by the numbers of their tests
        self.workqueue = OrderedDict(sorted(self.workqueue.items(), key=lambda unit: not unit[0].startswith(FIRST)))

    def _split_scope(self, nodeid: str) -> str:
        file: str = super()._split_scope(nodeid)
        return SHARING if _shares_a_system(file) else file


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> WholeSystemsFirst:
    return WholeSystemsFirst(config, log)


@cache
def _shares_a_system(file: str) -> bool:
    if not file.startswith(f"{SHARING}/"):
        return False
    text = (ROOT / file).read_text(encoding="utf-8")
    return any(name in text for name in SHARED)
