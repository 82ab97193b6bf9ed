"""Benchmark `judge` of a tiny real model: what the judge is asked, verdicts in samples, errors, pauses."""

import json
import re
import threading
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from app.domain.evaluations import comparison, judging
from tests.trainers.evaluations import AnsweredRun, Evaluated, evaluate, records
from tests.trainers.judges import CHAT, FakeJudge
from workers.rank.run_context import RUN_ENDS, NotAnswered, Stop
from workers.trainers.failures import DataInvalid, InvalidConfig
from workers.trainers.inference.evaluation.asking_judge import JudgeUnavailable

ROWS = [
    {"prompt": prompt, "answer": ["s", str(n)], "other": f"other {n}", "level": n}
    for n, prompt in enumerate(["def open(path):", "def close(self):", "class Reader:", "def next(self):"])
]
SHORT = {"max_new_tokens": 4}


def judged(
    tmp_path: Path,
    assets: Path,
    ask: FakeJudge,
    *,
    rows: Any = ROWS,
    seed: int = 0,
    run: type[AnsweredRun] = AnsweredRun,
    **parameters: Any,
) -> Evaluated:
    given = {"service": "judge", **SHORT, **parameters}
    return evaluate(
        tmp_path / "run",
        [{"name": "judge", "dataset": 0, "parameters": given}],
        run=partial(run, answer=ask),
        inference={"seed": seed},
        model_path=str(assets / "model"),
        data_paths=(records(tmp_path / "rows.jsonl", rows),),
        data_config={"sources": [{}], "max_seq_length": 64},
    )


def by_prompt(numbers: Mapping[Any, object], key: str = "score") -> Callable[[str], str]:
    """A judge that knows the verdict for the prompt."""

    def says(text: str) -> str:
        found = next((said for name, said in numbers.items() if name in text), "none")
        return json.dumps({"reason": "so", key: found})

    return says


def test_each_answer_gets_a_score_with_the_verdict_kept(tmp_path: Path, assets: Path) -> None:
    judge = FakeJudge(by_prompt({row["prompt"]: 2 * n + 1 for n, row in enumerate(ROWS)}))

    found = judged(tmp_path, assets, judge, reference="answer", criteria="it compiles")

    samples = found.samples("judge")
    assert [each.scores for each in samples] == [{"score": 2.0 * n + 1, "unjudged": 0.0} for n in range(4)]
    verdict = {"text": '{"reason": "so", "score": 3}', "value": 3.0, "fingerprint": "fp_1"}
    assert (samples[1].more["judge"], samples[1].more["verdicts"]) == ("judge", [verdict])
    assert found.document["benchmarks"]["judge"]["metrics"].keys() == {"score", "unjudged"}
    assert found.value("judge", "score") == 4.0
    assert found.document["results"]["judge"]["score_stderr,none"] > 0
    assert found.result.final_metrics == {"bench/judge/score": 4.0, "bench/judge/unjudged": 0.0}


def test_the_judge_sees_prompt_answer_and_reference_and_has_to_write_a_verdict(tmp_path: Path, assets: Path) -> None:
    judge = FakeJudge(by_prompt({"": 5}))

    found = judged(tmp_path, assets, judge, reference="answer", criteria="it compiles", seed=7)

    sample = found.samples("judge")[2]
    (asked,) = [each for each in judge.judged if "class Reader:" in each["messages"][0]["content"]]
    text = asked["messages"][0]["content"]
    assert len(judge.asked) == 1 + len(ROWS)
    assert (asked["path"], asked["model"], asked["temperature"], asked["max_tokens"]) == (CHAT, "judge", 0, 1024)
    assert asked["response_format"]["json_schema"]["schema"]["required"] == ["reason", "score"]
    number = re.findall(r"<answer-([0-9a-f]{4})>", text)[0]
    assert f"<answer-{number}>\n{sample.answer}\n</answer-{number}>" in text
    assert f"<prompt-{number}>\nclass Reader:\n</prompt-{number}>" in text
    assert f"<reference-{number}>\ns\nor\n2\n</reference-{number}>" in text
    numbers = {re.findall(r"<answer-(.*?)>", each["messages"][0]["content"])[0] for each in judge.judged}
    assert len(numbers) == len(ROWS), "no answer can learn the number of another one"
    assert "good when it compiles." in text
    assert text.endswith('"score", a whole number from 1 (worst) to 10 (best).')
    assert len({each["seed"] for each in judge.judged}) == len(ROWS)
    assert all(0 <= each["seed"] < 2**53 for each in judge.judged)


def test_the_same_evaluation_asks_the_same_and_leaves_the_same_samples(tmp_path: Path, assets: Path) -> None:
    judges = [FakeJudge(by_prompt({"open": 3, "": 5})) for _ in range(2)]

    found = [
        judged(tmp_path / str(n), assets, judge, temperature=1.0, at_once=1 + 15 * n, seed=3)
        for n, judge in enumerate(judges)
    ]

    key = json.dumps
    assert sorted(judges[0].asked, key=key) == sorted(judges[1].asked, key=key)
    assert found[0].samples("judge") == found[1].samples("judge")
    assert judges[0].most_at_once == 1


def test_labels_pass_or_fail_and_a_template_has_columns(tmp_path: Path, assets: Path) -> None:
    judge = FakeJudge(by_prompt({"level 0": "wrong", "level 1": "nearly", "": "right"}, "label"))

    found = judged(
        tmp_path,
        assets,
        judge,
        template="level {{level}}, other {{ other }}: {{answer}}",
        labels=["right", "nearly", "wrong"],
        passing=["right", "nearly"],
    )

    assert [each.scores["passed"] for each in found.samples("judge")] == [0.0, 1.0, 1.0, 1.0]
    assert found.value("judge", "passed") == 0.75
    assert any(each["messages"][0]["content"].startswith("level 2, other other 2: ") for each in judge.judged)


def test_a_label_with_braces_is_no_column(tmp_path: Path, assets: Path) -> None:
    judge = FakeJudge(lambda _: json.dumps({"reason": "so", "label": "{{ok}}"}))

    found = judged(tmp_path, assets, judge, labels=["{{ok}}", "bad"], passing=["{{ok}}"])

    assert found.value("judge", "passed") == 1.0
    assert judge.judged[0]["messages"][0]["content"].endswith('"label", one of "{{ok}}", "bad".')


def test_a_pattern_finds_the_last_verdict_in_free_text(tmp_path: Path, assets: Path) -> None:
    judge = FakeJudge(lambda _: "Rating: [[2]]? It is right after all, so Rating: [[ 9 ]].")

    found = judged(
        tmp_path, assets, judge, template="{{prompt}} {{answer}}", pattern=r"Rating: \[\[([^\]]*)\]\]", max_tokens=50
    )

    assert found.value("judge", "score") == 9.0
    assert "response_format" not in judge.asked[0]
    assert any(each["messages"][0]["content"].startswith("def open(path): ") for each in judge.judged)


def prefers(text: str) -> str:
    """Another answer's number decides: 0 it loses, 1 it wins, 2 the first one wins, 3 a tie."""
    sides = re.search(
        r"<answer_a-.*?>\n(.*?)\n</answer_a-.*?>\n\n<answer_b-.*?>\n(.*?)\n</answer_b-.*?>", text, re.DOTALL
    )
    assert sides is not None
    place = next(n for n, side in enumerate(sides.groups()) if re.fullmatch(r"other \d", side))
    number = int(sides[place + 1][-1])
    return json.dumps({"winner": {0: "BA"[place], 1: "AB"[place], 2: "A", 3: "tie"}[number]})


def test_pairs_are_asked_with_both_orders_and_the_position_is_measured(tmp_path: Path, assets: Path) -> None:
    judge = FakeJudge(lambda text: prefers(text) if "<answer_a-" in text else "")

    found = judged(tmp_path, assets, judge, baseline="other")

    samples = found.samples("judge")
    assert [each.scores["win_rate"] for each in samples] == [1.0, 0.0, 0.5, 0.5]
    assert [each.scores["consistency"] for each in samples] == [1.0, 1.0, 0.0, 1.0]
    assert [each.scores["first_share"] for each in samples] == [0.5, 0.5, 1.0, 0.5]
    assert [each["value"] for each in samples[0].more["verdicts"]] == [1.0, 0.0]
    assert samples[2].more["target"] == "other 2"
    values = {name: found.value("judge", name) for name in ("win_rate", "ties", "consistency", "first_share")}
    assert values == {"win_rate": 0.5, "ties": 0.5, "consistency": 0.75, "first_share": 0.625}
    assert len(judge.judged) == 2 * len(ROWS)


def test_two_models_are_compared_on_the_verdicts_of_the_same_samples(tmp_path: Path, assets: Path) -> None:
    before, after = (
        judged(
            tmp_path / str(n), assets, FakeJudge(by_prompt({"open": "none" if n else 4, "": 5 + n})), max_share=0.25
        ).samples("judge")
        for n in range(2)
    )

    pairs = comparison.paired(before, after)
    by_name = {each.name: comparison.compare(each, pairs) for each in judging.metrics_of({})}

    score, unjudged = by_name["score"], by_name["unjudged"]
    assert score is not None
    assert (score.difference, score.interval, score.n) == (1.0, (1.0, 1.0), 3)
    assert unjudged is not None
    assert (unjudged.difference, unjudged.changes, unjudged.n) == (0.25, 1, 4)
    assert comparison.notes(before, after) == []


@pytest.mark.parametrize(
    ("said", "max_share", "message"),
    [
        (
            "I refuse",
            0.05,
            r"record 0 \(.*line 1\): judge gave no verdict: no JSON object with score in 'I refuse'; of",
        ),
        ('{"score": 0}', 0.05, r"score '0' is not a whole number from 1 \(worst\) to 10 \(best\) in"),
        ("I refuse", 1, "of 4 samples 4 have none"),
        (NotAnswered("the prompt is too long", 400), 0.05, r"the request was refused: the prompt is too long \(400\);"),
        (NotAnswered("its answer is not finite", 500), 0.05, r"is not finite \(500\)"),
    ],
)
def test_too_many_samples_without_verdict_end_the_evaluation_with_the_first(
    tmp_path: Path, assets: Path, said: str | NotAnswered, max_share: float, message: str
) -> None:
    judge = FakeJudge(lambda text: said if "<prompt-" in text else "")

    with pytest.raises(DataInvalid, match=f"benchmark judge: .*{message}"):
        judged(tmp_path, assets, judge, max_share=max_share)


def test_a_few_samples_without_verdict_are_counted_and_left_out_of_the_mean(tmp_path: Path, assets: Path) -> None:
    judge = FakeJudge(by_prompt({"class": "?", "": 6}), finish_reason="length")

    found = judged(tmp_path, assets, judge, max_share=0.25)

    (lost,) = [each for each in found.samples("judge") if "score" not in each.scores]
    assert (found.value("judge", "score"), found.value("judge", "unjudged")) == (6.0, 0.25)
    assert (lost.index, lost.scores) == (2, {"unjudged": 1.0})
    assert lost.more["verdicts"][0]["problem"].endswith("(best), cut off at max_tokens")


@pytest.mark.parametrize(
    ("status", "failure", "error_type"),
    [
        (404, InvalidConfig, "INVALID_CONFIG"),
        (400, InvalidConfig, "INVALID_CONFIG"),
        (503, JudgeUnavailable, "NETWORK_ERROR"),
        (500, JudgeUnavailable, "NETWORK_ERROR"),
        (429, JudgeUnavailable, "NETWORK_ERROR"),
    ],
)
def test_a_judge_that_cannot_be_asked_is_found_before_any_answer(
    tmp_path: Path, assets: Path, status: int, failure: type[Exception], error_type: str
) -> None:
    judge = FakeJudge(lambda _: NotAnswered("there is no model judge", status))

    with pytest.raises(
        failure, match=f"benchmark judge: judge can't judge: there is no model judge .{status}."
    ) as caught:
        judged(tmp_path, assets, judge)

    assert caught.value.error_type == error_type  # type: ignore[attr-defined]
    assert len(judge.asked) == 1


def test_a_judge_that_is_lost_meanwhile_ends_the_attempt(tmp_path: Path, assets: Path) -> None:
    judge = FakeJudge(lambda text: NotAnswered("gone", 503) if "class" in text else '{"score": 3}')

    with pytest.raises(JudgeUnavailable, match="gone"):
        judged(tmp_path, assets, judge)


@pytest.mark.parametrize(
    ("row", "parameters", "message"),
    [
        ({"prompt": "p"}, {"reference": "answer"}, "record 1 .* has no column answer; it has none beside the prompt"),
        ({"prompt": "p"}, {"template": "{{answer}} {{level}}"}, "record 1 .* has no column level"),
        ({"prompt": "p", "other": 1}, {"baseline": "other"}, "record 1 .* column other must be a text: the other"),
        ({"prompt": "p"}, {"template": "{{answer}}", "pattern": "x"}, "the pattern has no group"),
        ({"prompt": "p"}, {"template": "{{answer}}", "pattern": "(x"}, "benchmark judge: pattern .*RE2"),
    ],
)
def test_what_can_not_be_judged_is_named_before_the_judge_is_asked(
    tmp_path: Path, assets: Path, row: dict[str, Any], parameters: dict[str, Any], message: str
) -> None:
    judge = FakeJudge(lambda _: "")

    with pytest.raises((DataInvalid, InvalidConfig), match=message):
        judged(tmp_path, assets, judge, rows=[ROWS[0], row], **parameters)

    assert judge.asked == []


class StoppedRun(AnsweredRun):
    """Stops once ``requested`` is set."""

    requested: threading.Event

    @property
    def stop(self) -> Stop | None:
        return Stop(kind="requeue", save_checkpoint=True) if self.requested.is_set() else None


@pytest.fixture
def stopped_run() -> type[StoppedRun]:
    class Run(StoppedRun):
        requested = threading.Event()

    return Run


@pytest.mark.parametrize("hangs_at", ["<prompt-", "Reply with anything."])
def test_a_stop_does_not_wait_for_the_judge(
    tmp_path: Path, assets: Path, stopped_run: type[StoppedRun], hangs_at: str
) -> None:
    over = threading.Event()

    def says(text: str) -> str:
        if hangs_at in text:
            stopped_run.requested.set()
            assert over.wait(60)
        return ""

    found = judged(tmp_path, assets, FakeJudge(says), run=stopped_run)

    assert not over.is_set()
    over.set()
    assert (found.result.stopped, found.result.step) == ("requeue", 0)


def test_a_run_that_ends_is_stopped_and_not_failed(tmp_path: Path, assets: Path, stopped_run: type[StoppedRun]) -> None:
    def says(text: str) -> str | NotAnswered:
        if "<prompt-" not in text:
            return ""
        stopped_run.requested.set()
        return NotAnswered("the run ends", RUN_ENDS)

    found = judged(tmp_path, assets, FakeJudge(says), run=stopped_run)

    assert (found.result.stopped, found.result.step) == ("requeue", 0)
