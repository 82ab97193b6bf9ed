"""What we make of records is what trl's trainers make of them with their default settings."""

from copy import deepcopy
from typing import Any, cast

import pytest
import torch
from datasets import Dataset, disable_progress_bars
from huggingface_hub import constants
from transformers import LlamaConfig, LlamaForCausalLM
from trl.chat_template_utils import qwen2_5_chat_template
from trl.trainer.dpo_config import DPOConfig
from trl.trainer.dpo_trainer import DPOTrainer
from trl.trainer.sft_config import SFTConfig
from trl.trainer.sft_trainer import SFTTrainer

from workers.trainers.data import templates
from workers.trainers.data.datasets import load
from workers.trainers.hf_trainer.loop.collator import preference_collator

LONGEST = 90
CHATML = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def user(text):
    return {"role": "user", "content": text}


def assistant(text):
    return {"role": "assistant", "content": text}


CHATS = [
    {"messages": [user("What is 2 + 2?"), assistant("It is 4.")]},
    {
        "messages": [
            {"role": "system", "content": "Be brief."},
            user("dog?"),
            assistant("fox"),
            user("x" * 9),
            assistant("y"),
        ]
    },
    {"messages": [user("the lazy dog " * 30), assistant("cut away")]},
    {"messages": [user("a"), assistant("over " * 90)]},
]
PAIRS = [
    {"prompt": "2 + 2 =", "completion": " 4"},
    {"prompt": "The quick", "completion": " brown fox</s>"},
    {"prompt": "merge acr", "completion": "oss the border ü"},
    {"prompt": "the lazy dog " * 30, "completion": "cut away"},
]
CHAT_PAIRS = [
    {"prompt": [user("What is 2 + 2?")], "completion": [assistant("It is 4.")]},
    {"prompt": [user("a"), assistant("b"), user("c")], "completion": [assistant("dog " * 90)]},
]
TEXTS = [{"text": "The quick brown fox"}, {"text": "ends itself</s>"}, {"text": "long " * 99}, {"text": "日本 \n\t"}]
PREFERENCES = [
    {"prompt": "2 + 2 =", "chosen": " 4", "rejected": " five"},
    {"prompt": "merge acr", "chosen": "oss the border ü", "rejected": " it</s>"},
    {"prompt": "the lazy dog " * 30, "chosen": "cut", "rejected": "away"},
    {"prompt": "a", "chosen": "over " * 90, "rejected": "b"},
]
CHAT_PREFERENCES = [
    {"prompt": [user("What is 2 + 2?")], "chosen": [assistant("It is 4.")], "rejected": [assistant("five")]},
    {
        "prompt": [user("a"), assistant("b"), user("c")],
        "chosen": [assistant("dog " * 90)],
        "rejected": [assistant("d")],
    },
]
WHOLE_CHATS = [{name: each["prompt"] + each[name] for name in ("chosen", "rejected")} for each in CHAT_PREFERENCES]


@pytest.fixture(autouse=True)
def quiet(monkeypatch):
    """Trl tells its makers of every trainer, which tests may not."""
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_TELEMETRY", True)
    disable_progress_bars()


@pytest.fixture(scope="module")
def model():
    config = LlamaConfig(
        vocab_size=320, hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1, use_cache=False
    )
    return LlamaForCausalLM(config)


@pytest.fixture
def made_by_trl(model, tmp_path):
    """(input_ids, labels) of each record that trl keeps."""

    def made(records, tokenizer, **options):
        arguments = SFTConfig(
            output_dir=str(tmp_path / "trl"),
            use_cpu=True,
            bf16=False,
            report_to=[],
            max_length=LONGEST,
            activation_checkpointing=False,
            **options,
        )
        trainer = SFTTrainer(model, arguments, train_dataset=Dataset.from_list(records), processing_class=tokenizer)
        return [(row["input_ids"], row["labels"]) for row in cast("Dataset", trainer.train_dataset)]

    return made


@pytest.fixture
def batch_of_trl(model, tmp_path):
    """What trl's collator makes of all pairs that trl keeps: it cuts them only then."""

    def made(records, tokenizer):
        arguments = DPOConfig(
            output_dir=str(tmp_path / "trl"),
            use_cpu=True,
            bf16=False,
            report_to=[],
            max_length=LONGEST,
            activation_checkpointing=False,
        )
        data = Dataset.from_list(records)
        trainer = DPOTrainer(model, deepcopy(model), arguments, train_dataset=data, processing_class=tokenizer)
        columns = ["prompt_ids", "chosen_ids", "rejected_ids"]
        rows = cast("Dataset", trainer.train_dataset).select_columns(columns)
        batch = cast("Any", trainer.data_collator)(list(rows))
        return {name: values.tolist() for name, values in batch.items()}

    return made


@pytest.fixture
def run(tmp_path, write, make_spec):
    """What we make of the same."""

    def loaded(records, tokenizer, hyperparameters):
        spec = make_spec(write(*records), hyperparameters=hyperparameters, max_seq_length=LONGEST)
        return load(spec, tokenizer, tmp_path / "cache")

    return loaded


@pytest.mark.parametrize("adds_bos", [False, True])
@pytest.mark.parametrize(
    ("records", "template", "options"),
    [
        (TEXTS, None, {}),
        (PAIRS, None, {}),
        (PAIRS, None, {"completion_only_loss": False}),
        (CHATS, templates.DEFAULT, {"assistant_only_loss": True}),
        (CHATS, templates.DEFAULT, {"assistant_only_loss": False}),
        (CHATS, qwen2_5_chat_template, {"assistant_only_loss": True}),
        (CHATS, CHATML, {"assistant_only_loss": False}),
        (CHAT_PAIRS, templates.DEFAULT, {}),
        (CHAT_PAIRS, qwen2_5_chat_template, {}),
    ],
)
def test_ids_and_labels_are_those_of_trl(run, made_by_trl, make_tokenizer, records, template, options, adds_bos):
    theirs = made_by_trl(records, make_tokenizer(adds_bos=adds_bos, chat_template=template), **options)

    splits = run(records, make_tokenizer(adds_bos=adds_bos, chat_template=template), options)

    assert [(row["input_ids"], row["labels"]) for row in splits.train] == theirs
    assert 0 < len(theirs) <= len(records)
    assert splits.statistics["truncated_share"] > 0


@pytest.mark.parametrize(
    ("records", "template"),
    [
        (PREFERENCES, None),
        (CHAT_PREFERENCES, templates.DEFAULT),
        (CHAT_PREFERENCES, qwen2_5_chat_template),
        (WHOLE_CHATS, qwen2_5_chat_template),
    ],
)
def test_pairs_are_those_of_trl(tmp_path, batch_of_trl, write, make_spec, make_tokenizer, records, template):
    for adds_bos in (False, True):
        tokenizer = make_tokenizer(adds_bos=adds_bos, chat_template=template)
        spec = make_spec(write(*records), training_type="DPO", max_seq_length=LONGEST)
        ours = load(spec, tokenizer, tmp_path / f"cache-{adds_bos}")

        theirs = batch_of_trl(records, make_tokenizer(adds_bos=adds_bos, chat_template=template))

        found = preference_collator(spec, tokenizer)(list(ours.train))
        assert {name: values.tolist() for name, values in found.items()} == theirs
        assert len(theirs["input_ids"]) == 2 * len(ours.train) > 0
        assert ours.statistics["truncated_share"] > 0


def test_template_that_marks_nothing_is_learned_whole(run, made_by_trl, make_tokenizer):
    theirs = made_by_trl(CHATS, make_tokenizer(chat_template=CHATML))

    splits = run(CHATS, make_tokenizer(chat_template=CHATML), {"assistant_only_loss": True})

    assert [(row["input_ids"], row["labels"]) for row in splits.train] == theirs


def test_trl_takes_them_as_they_are(tmp_path, model, write, make_spec, make_tokenizer):
    tokenizer = make_tokenizer()
    splits = load(make_spec(write(*CHATS), max_seq_length=LONGEST), tokenizer, tmp_path / "cache")
    arguments = SFTConfig(
        output_dir=str(tmp_path / "trl"),
        use_cpu=True,
        bf16=False,
        report_to=[],
        max_length=None,
        activation_checkpointing=False,
    )
    trainer = SFTTrainer(model, arguments, train_dataset=splits.train, processing_class=tokenizer)
    batch = next(iter(trainer.get_train_dataloader()))

    assert cast("Dataset", trainer.train_dataset)[0] == cast("Dataset", splits.train)[0]
    assert batch["input_ids"].dtype == torch.int64
    assert batch["input_ids"].shape == batch["labels"].shape
    assert (batch["labels"] == -100).any()
