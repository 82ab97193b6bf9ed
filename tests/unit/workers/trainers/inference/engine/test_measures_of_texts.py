"""Likelihoods, scores and vectors: equal to those of plain forward passes of each text alone."""

import json

import numpy as np
import pytest
import torch
from transformers import AutoModel, AutoModelForSequenceClassification

from app.domain.spec.inference import InferenceTask
from tests.builders.engine_specs import engine_spec, loaded_engine
from workers.trainers.failures import InvalidConfig
from workers.trainers.inference.engine.embedding import chosen_pooling
from workers.trainers.inference.engine.interface import Continuation, Pooling

CLOSE = 1e-4
ENCODER = {"type_vocab_size": 2}


def test_likelihoods_are_those_of_the_text_alone(engine, prompts):
    requests = [Continuation(context=tokens[:4], tokens=tokens[4:9]) for tokens in prompts]

    found = engine.likelihoods(requests)

    for request, each in zip(requests, found, strict=True):
        ids = torch.tensor([[*request.context, *request.tokens]])
        logprobs = engine.model(ids).logits[0, 3:-1].log_softmax(dim=-1)
        expected = logprobs.gather(1, ids[0, 4:].unsqueeze(1)).sum().item()
        assert (each.logprob, each.tokens) == (pytest.approx(expected, abs=CLOSE), len(request.tokens))
        assert each.is_greedy == (logprobs.argmax(dim=-1).tolist() == ids[0, 4:].tolist())


def test_the_likeliest_continuation_is_greedy(engine, prompts):
    likeliest = int(engine.model(torch.tensor([prompts[0]])).logits[0, -1].argmax())

    tokens = (likeliest, likeliest - 1)
    found = engine.likelihoods([Continuation(context=prompts[0], tokens=[token]) for token in tokens])

    assert [each.is_greedy for each in found] == [True, False]


def test_what_is_read_alike_is_computed_once(engine, prompts, monkeypatch):
    rows, forward = [], engine.model.forward
    requests = [Continuation(context=tokens, tokens=[token]) for tokens in prompts for token in (7, 8, 9)]
    requests.append(Continuation(context=prompts[0][:3], tokens=[*prompts[0][3:], 7]))
    alone = [engine.likelihoods([each])[0] for each in requests]

    def counted(*given, **options):
        rows.append(len(options["input_ids"]))
        return forward(*given, **options)

    monkeypatch.setattr(engine.model, "forward", counted)
    found = engine.likelihoods(requests)

    assert sum(rows) == len({tuple(tokens) for tokens in prompts})
    assert [each.logprob for each in found] == pytest.approx([each.logprob for each in alone], abs=1e-5)
    assert [(each.is_greedy, each.tokens) for each in found] == [(each.is_greedy, each.tokens) for each in alone]


def test_a_text_without_context_follows_the_beginning_of_sequence_token(engine):
    bare, with_start, explicit = engine.likelihoods(
        [
            Continuation(context=[], tokens=[7, 8]),
            Continuation(context=[], tokens=[1, 7, 8]),
            Continuation(context=[1], tokens=[7, 8]),
        ]
    )

    assert bare == with_start == explicit
    assert bare.tokens == 2


def test_texts_that_do_not_fit_are_refused(engine):
    # Nothing follows the last token, which therefore needs no place among the model's 128.
    found = engine.likelihoods([Continuation(context=[5] * 100, tokens=[6] * count) for count in (30, 29)])

    assert [getattr(each, "code", "") for each in found] == ["CONTEXT_TOO_LONG", ""]
    assert [each.tokens for each in found[1:]] == [29]


def test_a_reward_model_gives_a_number_for_each_text(save_model, prompts):
    directory = save_model("reward", of=AutoModelForSequenceClassification, num_labels=1)
    model = AutoModelForSequenceClassification.from_pretrained(directory).eval()

    found = loaded_engine(engine_spec(directory, "score")).scores(prompts)

    expected = [model(torch.tensor([tokens])).logits.item() for tokens in prompts]
    assert [each.value for each in found] == pytest.approx(expected, abs=CLOSE)


def test_a_classifier_gives_a_probability_for_each_label(save_model, prompts):
    labels = {0: "good", 1: "bad", 2: "neither"}
    directory = save_model("labels", "bert", AutoModelForSequenceClassification, id2label=labels, **ENCODER)
    model = AutoModelForSequenceClassification.from_pretrained(directory).eval()

    found = loaded_engine(engine_spec(directory, "score")).scores(prompts[:4])

    for tokens, each in zip(prompts, found, strict=False):
        expected = model(torch.tensor([tokens])).logits[0].softmax(dim=-1).tolist()
        assert each.probabilities == pytest.approx(dict(zip(labels.values(), expected, strict=True)), abs=CLOSE)
        assert each.probabilities[each.label] == max(each.probabilities.values())


def test_a_model_without_a_head_gives_no_scores(llama):
    with pytest.raises(InvalidConfig, match="no head that gives scores"):
        loaded_engine(engine_spec(llama, "score"))


@pytest.mark.parametrize("kind", ["llama", "bert"])
def test_vectors_are_those_of_the_text_alone(save_model, prompts, kind):
    directory = save_model(f"vectors-{kind}", kind, AutoModel, **(ENCODER if kind == "bert" else {}))
    model = AutoModel.from_pretrained(directory).eval()
    engine = loaded_engine(engine_spec(directory, "embed"))

    def expected(tokens, layer):
        states = model(torch.tensor([tokens]), output_hidden_states=True).hidden_states[layer][0].detach()
        return {"mean": states.mean(0), "last": states[-1], "cls": states[0], "max": states.amax(0), "none": states}

    for layer in (-1, 1):
        for pooling in ("mean", "last", "cls", "max", "none"):
            found = engine.embeddings(prompts, Pooling(kind=pooling, layer=layer))
            for tokens, vector in zip(prompts, found, strict=True):
                np.testing.assert_allclose(vector, expected(tokens, layer)[pooling].numpy(), atol=CLOSE)


def test_normalized_vectors_have_length_one(engine, prompts):
    found = engine.embeddings(prompts, Pooling(normalize=True))

    assert [float(np.linalg.norm(each)) for each in found] == pytest.approx([1.0] * len(prompts), abs=1e-6)


def test_a_layer_that_the_model_lacks_is_refused(engine, prompts):
    with pytest.raises(InvalidConfig, match=r"task\.layer 3 is not one of the model's: 0"):
        engine.embeddings(prompts, Pooling(layer=3))


def test_folders_of_sentence_transformers_set_the_pooling(tmp_path):
    modules = [
        {"type": f"sentence_transformers.models.{name}", "path": f"1_{name}"} for name in ("Transformer", "Pooling")
    ]
    (tmp_path / "modules.json").write_text(json.dumps([*modules, {"type": "sentence_transformers.models.Normalize"}]))
    (tmp_path / "1_Pooling").mkdir()
    (tmp_path / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode_cls_token": True}))

    assert chosen_pooling(InferenceTask(), tmp_path) == Pooling(kind="cls", normalize=True)
    assert chosen_pooling(InferenceTask(pooling="max", normalize=False), tmp_path) == Pooling(kind="max")

    (tmp_path / "modules.json").write_text(json.dumps([{"type": "sentence_transformers.models.Dense"}]))
    with pytest.raises(InvalidConfig, match="module Dense"):
        chosen_pooling(InferenceTask(), tmp_path)
