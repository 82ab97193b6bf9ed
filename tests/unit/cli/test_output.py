"""Tables, durations and ages as commands print them."""

from datetime import UTC, datetime, timedelta

import pytest

from app.cli.client.job_facts import amount, facts
from app.cli.client.job_views import BarView
from app.cli.output import age, duration, print_fields, print_json, print_table, printable
from trainyard.client import Job


def test_a_table_is_as_wide_as_its_ids_and_has_no_trailing_blanks(capsys: pytest.CaptureFixture[str]) -> None:
    identifier = "job-" + "0" * 200

    print_table(("id", "name"), [(identifier, "[red]x"), ("b", "")], empty="none")

    lines = capsys.readouterr().out.splitlines()
    assert lines[1] == f"{identifier}  [red]x"
    assert lines == [line.rstrip() for line in lines]


def test_empty_table_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("id",), [], empty="no jobs")

    assert capsys.readouterr().out == "no jobs\n"


def test_fields_without_a_value_are_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    print_fields({"a": 1, "b": None, "c": "", "metrics": {"loss": 1.23456}, "nodes": ["x", "y"]})

    assert capsys.readouterr().out.splitlines() == ["a        1", "metrics  loss=1.235", "nodes    x, y"]


def test_objects_inside_objects_are_in_brackets(capsys: pytest.CaptureFixture[str]) -> None:
    print_fields({"quota": {"gpus": {"deserved": 1, "limit": 2}, "running": 3, "slots": {}}})

    assert capsys.readouterr().out == "quota  gpus=(deserved=1, limit=2), running=3, slots=\n"


def test_json_has_times_as_the_api_writes_them(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"at": datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)})

    assert '"2026-01-02T03:04:05.678Z"' in capsys.readouterr().out


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0:00"), (61, "1:01"), (3599.6, "1:00:00"), (7384, "2:03:04"), (None, "–")]
)
def test_durations_are_shown_in_readable_units(seconds: float | None, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(("seconds", "text"), [(5, "5s"), (65, "1m"), (7300, "2h"), (200_000, "2d")])
def test_ages_are_shown_in_readable_units(seconds: int, text: str) -> None:
    moment = datetime.now(UTC) - timedelta(seconds=seconds)

    assert age(moment.isoformat().replace("+00:00", "Z")) == text


def test_the_bar_shows_state_step_loss_and_time_left(capsys: pytest.CaptureFixture[str]) -> None:
    view = BarView()
    values = {"progress": 0.5, "current_step": 5, "total_steps": 10, "eta_seconds": 61, "latest_metrics": {"loss": 2.5}}
    view.show(Job.of({"job_id": "job-1", "status": "TRAINING", "attempt": 1, "node_names": ["local"], **values}))
    view.close()

    shown = capsys.readouterr().out
    assert "TRAINING  attempt 1 on local" in shown
    assert "50%" in shown
    assert "step 5/10  loss 2.500  1:01 left" in shown


@pytest.mark.parametrize(
    ("status", "shown"), [("SERVING", "3 in flight  0 waiting  1,240 tokens/s"), ("PREPARING", ""), ("COMPLETED", "")]
)
def test_facts_of_a_replica_are_what_it_answers(status: str, shown: str) -> None:
    metrics = {"in_flight": 3.0, "waiting": 0.0, "tokens_per_second": 1240.2}
    job = Job.of({"job_id": "job-1", "kind": "replica", "status": status, "latest_metrics": metrics})

    assert facts(job) == shown
    assert amount(job) == ("drained" if status == "COMPLETED" else "not drained")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain\ttext\nline é", "plain\ttext\nline é"),
        ("\x1b[32mgreen\x1b[0m", "\x1b[32mgreen\x1b[0m\x1b[0m"),
        ("\x1b]52;c;cm0gLXJmIH4=\x07copied", "copied"),
        ("\x1b]0;title\x1b\\after", "after"),
        ("\x1b]8;;http://x\x07link\x1b]8;;\x07", "link"),
        ("\x1b]unfinished", ""),
        ("\x1b[2J\x1b[1;1Hover\x1b[?1049h", "over"),
        ("\x1bPq payload\x1b\\\x1bcreset\x1b(0", "reset"),
        ("bar\rover\x08\x7f\x9b31m\x00", "barover31m"),
        ("ends with \x1b", "ends with "),
    ],
)
def test_terminal_gets_colours_of_jobs_and_no_other_commands(
    monkeypatch: pytest.MonkeyPatch, text: str, shown: str
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)

    assert printable(text) == shown


def test_programs_get_what_jobs_wrote() -> None:
    assert printable("\x1b]0;title\x07\x00") == "\x1b]0;title\x07\x00"


def test_names_of_columns_are_texts_and_no_markup(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(["m[/x]", "n"], [[1, 2]], empty="")

    assert capsys.readouterr().out.splitlines()[0].split() == ["m[/x]", "n"]
