"""A pytest plugin for `make matrix`: chooses what is known of each pair, and ends with a table, pair by pair.

``python -m pytest -p tests.matrix tests/conformance tests/trainers tests/e2e/test_examples.py``
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from app.domain.spec.hyperparameters.rlhf import method_of
from tests.builders.example_jobs import DOCUMENTS, SOMEWHERE, filled_in, pair_of
from tests.trainers.in_process import RAN

COLUMNS = ("conformance", "resumes", "examples")
RESUMES = "test_stopped_run_goes_on_bit_by_bit"
_PAIR = "pair"
_TESTS = Path(__file__).parent


@dataclass
class Cell:
    """What is known of one pair in one column; `ran` has the seconds of what several tests look at together."""

    passed: int = 0
    failed: int = 0
    seconds: float = 0.0
    ran: dict[str, float] = field(default_factory=dict)

    def __str__(self) -> str:
        if not self.passed + self.failed:
            return "–"
        seconds = sum(self.ran.values()) or self.seconds
        failed = f", {self.failed} FAILED" if self.failed else ""
        return f"{self.passed} passed{failed} in {seconds:.0f} s"


_cells: dict[tuple[str, str], Cell] = defaultdict(Cell)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what speaks of no pair."""
    of_pairs = [item for item in items if _place_of(item)]
    config.hook.pytest_deselected(items=[item for item in items if item not in set(of_pairs)])
    items[:] = of_pairs


def pytest_runtest_setup(item: pytest.Item) -> None:
    item.user_properties.append((_PAIR, _place_of(item)))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    properties: dict[str, Any] = dict(report.user_properties)
    if _PAIR not in properties:
        return
    pair, column = properties[_PAIR]
    cell = _cells[pair, column]
    cell.seconds += report.duration
    if RAN in properties:
        name, seconds = properties[RAN]
        cell.ran[name] = seconds
    cell.failed += report.failed
    cell.passed += report.when == "call" and report.passed


def pytest_terminal_summary(terminalreporter: Any) -> None:
    terminalreporter.section("matrix")
    pairs = dict.fromkeys(pair for pair, _ in sorted(_cells))
    rows = [(pair, *(str(_cells[pair, column]) for column in COLUMNS)) for pair in pairs]
    for line in _aligned([("", *COLUMNS), *rows]):
        terminalreporter.line(line)


def _aligned(rows: list[tuple[str, ...]]) -> Iterable[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()


def _place_of(item: pytest.Item) -> tuple[str, str] | None:
    """Of which pair a test speaks, and in which column."""
    if not isinstance(item, pytest.Function) or not hasattr(item, "callspec"):
        return None
    parameters: dict[str, Any] = item.callspec.params
    if item.path.is_relative_to(_TESTS / "conformance"):
        return "/".join(parameters["pair"]), "conformance"
    if item.path == _TESTS / "e2e" / "test_examples.py":
        return _EXAMPLES[parameters["name"]], "examples"
    if item.originalname == RESUMES:
        training_type, values, *_ = item.module.METHODS[parameters["method"]]
        return f"{item.module.FRAMEWORK}/{method_of(training_type, values)}", "resumes"
    return None


_EXAMPLES = {path.stem: "/".join(pair_of(filled_in(path, SOMEWHERE))) for path in DOCUMENTS}
