"""What each task reads from a record, asks of the engine and writes."""

from pathlib import Path
from typing import Any

import pytest

from tests.unit.workers.trainers.inference.runs import lines_of, make_spec, run, write_lines
from tests.unit.workers.trainers.inference.stand_in_engine import LABELS, word_tokenizer
from workers.trainers.failures import InvalidConfig
from workers.trainers.inference.seeds import sample_seed
from workers.trainers.inference.tokens import TaskTokens, Unanswerable

TEMPLATE = "{% for m in messages %}{{ m['content'] }} {% endfor %}{% if add_generation_prompt %}w40{% endif %}"


def rows_of(tmp_path: Path, task: dict[str, Any], *records: dict[str, Any], **values: Any) -> list[dict[str, Any]]:
    data = write_lines(tmp_path / "data.jsonl", records)
    section = {"task": {"max_new_tokens": 4, **task}, "on_error": {"max_share": 1.0}}
    run(make_spec(tmp_path, data, section, **values))
    return lines_of(tmp_path / "run" / "output")


def tokens_of(tmp_path: Path, task: dict[str, Any], **data_config: Any) -> TaskTokens:
    """The model's context is 12 tokens."""
    spec = make_spec(tmp_path, tmp_path / "none", {"task": task}, data_config=data_config)
    return TaskTokens(word_tokenizer(), spec, 12)


def test_samples_of_a_record_differ_in_their_seeds(tmp_path: Path) -> None:
    (row,) = rows_of(tmp_path, {"n": 3, "seed": 5, "temperature": 1.0, "logprobs": True}, {"prompt": "w1 w2"})

    assert row.keys() == {"index", "outputs", "prompt_tokens", "completion_tokens"}
    words = [f"w{sample_seed(5, 0, sample) % 50}" for sample in range(3)]
    assert [each["output"].split()[1] for each in row["outputs"]] == words
    assert row["outputs"][0]["logprobs"] == [-0.5, -0.25]
    assert (row["prompt_tokens"], row["completion_tokens"]) == (2, 6)


def test_seeds_depend_on_the_job_the_record_and_the_sample() -> None:
    seeds = {sample_seed(job, index, sample) for job in range(3) for index in range(3) for sample in range(3)}

    assert len(seeds) == 27
    assert all(0 <= seed < 2**63 for seed in seeds)


def test_messages_are_answered_after_the_template_of_the_job(tmp_path: Path) -> None:
    tokens = tokens_of(tmp_path, {}, preprocess={"chat_template": TEMPLATE})

    found = tokens.prompt({"prompt": [{"role": "user", "content": "w1 w2"}]})

    assert word_tokenizer().convert_ids_to_tokens(found) == ["w1", "w2", "w40"]


def test_last_answer_of_messages_is_left_out(tmp_path: Path) -> None:
    messages = [{"role": "user", "content": "w1"}, {"role": "assistant", "content": "w2"}]

    (row,) = rows_of(tmp_path, {}, {"messages": messages}, data_config={"preprocess": {"chat_template": TEMPLATE}})

    assert row["prompt_tokens"] == 2  # w1 w40


def test_mapped_column_is_the_prompt(tmp_path: Path) -> None:
    mapping = {"preprocess": {"field_mapping": {"prompt": "question"}}}

    (row,) = rows_of(tmp_path, {}, {"question": "w1", "prompt": "w1 w2 w3"}, data_config=mapping)

    assert row["prompt_tokens"] == 1


def test_likelihood_of_a_completion_and_of_a_text(tmp_path: Path) -> None:
    one, other = rows_of(
        tmp_path, {"type": "loglikelihood"}, {"prompt": "w1 w2 ", "completion": "w3"}, {"text": "w1 w2 w3"}
    )

    assert (one["logprob"], one["tokens"], one["is_greedy"], one["prompt_tokens"]) == (-1.0, 1, False, 3)
    assert one["perplexity"] == pytest.approx(2.718, abs=1e-3)
    assert (other["logprob"], other["tokens"], other["is_greedy"]) == (-3.0, 3, True)


def test_likelihood_reads_no_messages(tmp_path: Path) -> None:
    (row,) = rows_of(tmp_path, {"type": "loglikelihood"}, {"messages": [{"role": "user", "content": "w1"}]})

    assert "neither prompt and completion, nor text" in row["error"]["message"]


def test_score_is_the_number_of_a_reward_model(tmp_path: Path) -> None:
    text, pair = rows_of(tmp_path, {"type": "score"}, {"text": "w1 w2"}, {"prompt": "w1 ", "completion": "w2"})

    assert text["score"] == pair["score"] == 4 + 5
    assert "label" not in text


def test_score_of_a_classifier_is_a_label_with_probabilities(tmp_path: Path) -> None:
    config = {"base_model": {"model_id": "small", "model_kwargs": {LABELS: ["good", "bad"]}}}

    (row,) = rows_of(tmp_path, {"type": "score"}, {"text": "w1"}, training_config=config)

    assert (row["label"], row["probabilities"]) == ("good", {"good": 0.5, "bad": 0.5})


def test_embedding_takes_a_text_or_a_prompt(tmp_path: Path) -> None:
    rows = rows_of(tmp_path, {"type": "embed"}, {"text": "w0", "prompt": "w9"}, {"prompt": "w0"})

    assert [row["embedding"] for row in rows] == [[3.0, 6.0, 9.0, 12.0]] * 2


def test_long_record_is_refused_with_its_numbers(tmp_path: Path) -> None:
    with pytest.raises(Unanswerable, match=r"has 5 tokens, task.max_tokens is 3; raise it, or set task.truncate"):
        tokens_of(tmp_path, {"max_tokens": 3}).prompt({"prompt": "w1 " * 5})


@pytest.mark.parametrize(("side", "kept"), [("right", ["w1", "w2", "w3"]), ("left", ["w3", "w4", "w5"])])
def test_truncation_keeps_the_side_that_the_tokenizer_keeps(tmp_path: Path, side: str, kept: list[str]) -> None:
    spec = make_spec(tmp_path, tmp_path, {"task": {"max_tokens": 3, "truncate": True, "max_new_tokens": 4}})
    tokenizer = word_tokenizer()
    tokenizer.truncation_side = side

    found = TaskTokens(tokenizer, spec, 12).prompt({"prompt": "w1 w2 w3 w4 w5"})

    assert tokenizer.convert_ids_to_tokens(found) == kept


def test_truncated_prompt_leaves_room_for_its_answer(tmp_path: Path) -> None:
    tokens = tokens_of(tmp_path, {"truncate": True, "max_new_tokens": 4})

    assert len(tokens.prompt({"prompt": "w1 " * 20})) == 12 - 4
    assert len(tokens.whole({"text": "w1 " * 20})) == 12


def test_truncated_context_keeps_what_precedes_the_completion(tmp_path: Path) -> None:
    tokens = tokens_of(tmp_path, {"type": "loglikelihood", "truncate": True, "max_tokens": 3})

    found = tokens.continuation({"prompt": "w1 w2 w3 w4 ", "completion": "w5"})

    assert word_tokenizer().convert_ids_to_tokens([*found.context, *found.tokens]) == ["w3", "w4", "w5"]


def test_special_tokens_are_added_where_the_document_says_so(tmp_path: Path) -> None:
    tokens = tokens_of(tmp_path, {}, preprocess={"add_bos_token": True, "add_eos_token": True})

    assert word_tokenizer().convert_ids_to_tokens(tokens.whole({"text": "w1"})) == ["<s>", "w1", "</s>"]
    assert word_tokenizer().convert_ids_to_tokens(tokens.prompt({"prompt": "w1"})) == ["<s>", "w1"]


def test_record_without_tokens_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Unanswerable, match="has no tokens"):
        tokens_of(tmp_path, {}).whole({"text": "  "})


def test_unknown_task_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match=r"task.type 'guess' is not one of generate, loglikelihood, score, embed"):
        rows_of(tmp_path, {"type": "guess"}, {"text": "w1"})
