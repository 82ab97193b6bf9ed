"""The pages hold what the tables in the code say."""

import pytest

from app.domain.lifecycle.states import TRANSITIONS, JobState
from scripts import generated_docs


@pytest.mark.parametrize("path", sorted(generated_docs.GENERATED))
def test_page_is_up_to_date(path):
    text = (generated_docs.ROOT / path).read_text()

    assert generated_docs.render(path, text) == text, "run: make docs"


def test_every_transition_is_marked_in_the_matrix():
    rows = generated_docs.transition_matrix().splitlines()[2:]

    assert [row.count("●") for row in rows] == [len(TRANSITIONS[before]) for before in JobState]


def test_diagram_draws_only_steps_of_the_table():
    arrows = [line.split(" --> ") for line in generated_docs.lifecycle_diagram().splitlines() if " --> " in line]
    steps = [(before.strip(), after) for before, after in arrows if "[*]" not in (before.strip(), after)]

    assert ("TRAINING", "CHECKPOINTING") in steps
    assert all(JobState(after) in TRANSITIONS[JobState(before)] for before, after in steps)


def test_page_without_a_place_for_a_part_is_refused():
    with pytest.raises(ValueError, match="diagram"):
        generated_docs.render("docs/reference/lifecycle.md", "# nothing here")
