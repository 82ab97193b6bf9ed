"""What the hostile soak calls slow, refused and hurt, and which attack it names."""

from benchmarks.hostile_api import Answer
from benchmarks.hostile_projects import Ran, expected_answer, unexpected
from benchmarks.hostile_report import NOTHING, figures, is_good, spread

BOMB = Ran("fork-bomb", "job-1", 10.0, 20.0, "COMPLETED", "COMPLETED", ["attack: forks refused: True"])
DAEMON = Ran("daemon", "job-2", 30.0)  # not ended yet
WAITING = Ran("many-files", "job-3")


def test_answers_are_ascribed_to_the_attacks_that_ran_at_some_moment_of_them():
    before, across, after = (Answer("list", began, 2.0, 200) for began in (1.0, 9.0, 40.0))

    found = figures([before, across, after], [BOMB, DAEMON, WAITING])

    assert found["slow"] == [
        "list: 2.00 s, after 0 s, with none",
        "list: 2.00 s, after 8 s, with fork-bomb",
        "list: 2.00 s, after 39 s, with daemon",
    ]
    assert [found["attacks"][attack]["count"] for attack in ("fork-bomb", "daemon", "many-files")] == [1, 1, 0]
    assert found["quiet"]["count"] == 1


def test_slowest_answer_of_each_kind_names_the_attack():
    found = figures(
        [Answer("job", 12.0, 0.5, 200), Answer("job", 25.0, 0.1, 200), Answer("log", 25.0, 0.2, 200)], [BOMB]
    )

    assert found["answers"]["job"] == {"count": 2, "p50": 0.1, "p99": 0.5, "most": 0.5, "during": "fork-bomb"}
    assert found["answers"]["log"]["during"] == NOTHING


def test_answer_that_is_refused_or_does_not_come_breaks_the_goal():
    sound: dict[str, list[str]] = {"hurt": [], "unexpected": [], "left": []}
    good = figures([Answer("job", 1.0, 0.9, 200)], [BOMB])
    bad = figures([Answer("job", 1.0, 0.1, 0), Answer("submit", 15.0, 0.1, 503)], [BOMB])

    assert is_good({**good, **sound})
    assert not is_good({**good, **sound, "hurt": ["job-9: attempts 2, not 1"]})
    assert bad["refused"] == ["job: 0, with none", "submit: 503, with fork-bomb"]
    assert not is_good({**bad, **sound})


def test_nothing_measured_is_no_success():
    assert not is_good({**figures([], []), "hurt": [], "unexpected": [], "left": []})


def test_spread_takes_the_value_that_99_of_100_do_not_exceed():
    assert spread(range(1, 201)) == {"count": 200, "p50": 100, "p99": 198, "most": 200}
    assert spread([]) == {"count": 0, "p50": None, "p99": None, "most": None}


def test_attack_must_end_as_its_kind_should_and_have_done_what_it_is_for():
    silent = Ran("port-scanner", "job-4", 1.0, 2.0, "COMPLETED", "COMPLETED", ["attack: open ports: [29500]"])

    assert unexpected([BOMB], unlimited=False) == []
    assert len(unexpected([BOMB], unlimited=True)) == 1  # no fork may be refused there
    assert len(unexpected([silent, DAEMON], unlimited=False)) == 2


def test_innocent_job_is_expected_to_have_met_nobody():
    assert expected_answer()["strangers"] == 0
