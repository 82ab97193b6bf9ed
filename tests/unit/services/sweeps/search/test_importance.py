"""Importances by a process of its own: what is asked, and errors that say the way out."""

import sys

import pytest

from app.domain.sweeps.draws import random_values
from app.services.sweeps.search import importance
from app.services.sweeps.search.suggestions import SearchUnavailable
from tests.builders.search_questions import PLAIN, completed, program_without, space_of

SPACE = space_of(PLAIN)
ASKED = importance.question(SPACE, [completed(i, random_values(SPACE, i), float(i)) for i in range(20)], objectives=1)


@pytest.mark.long
def test_shares_are_answered_for_parameters_that_vary():
    found = importance.answer(ASKED)

    assert found.keys() == PLAIN.keys() - {"fixed"}
    assert sum(found.values()) == pytest.approx(1.0)
    assert ASKED["share_of_best"] == 0.25


@pytest.mark.parametrize(
    ("program", "message"),
    [
        (program_without("optuna"), r"importances need optuna, .*: pip install 'trainyard\[search\]'"),
        ("raise SystemExit", "process that computes importances failed: it ended without an answer; retry later"),
        ('print(input() and \'{"id": 1, "error": "odd"}\')', "importances could not be computed: odd"),
    ],
)
def test_a_process_that_can_not_answer_is_unavailable(program, message):
    with pytest.raises(SearchUnavailable, match=message):
        importance.answer(ASKED, command=(sys.executable, "-c", program))
