"""Exported models: read again and compared to the last bit, whatever is wrong with the files is EXPORT_FAILED."""

import shutil

import pytest
import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

from workers.rank.run_context import RunSpec
from workers.trainers.bitwise import bitwise_equal
from workers.trainers.failures import ExportFailed
from workers.trainers.hf_trainer.model import verify_export
from workers.trainers.hf_trainer.model.export import export_adapter, export_merged, export_model
from workers.trainers.hf_trainer.model.model_card import RunModelCard

pytestmark = pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning")


@pytest.fixture
def model():
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=1024,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        tie_word_embeddings=True,
    )
    return LlamaForCausalLM(config)


@pytest.fixture
def tokenizer(assets):
    return AutoTokenizer.from_pretrained(assets / "model")


@pytest.fixture
def card(tmp_path):
    spec = RunSpec(
        run_dir=tmp_path,
        framework="HF_TRAINER",
        training_type="LORA",
        hyperparameters={},
        model_path="",
        data_paths=("/private/place/data.jsonl",),
    )
    return RunModelCard(spec, {"loss": 1.5}, 3)


def adapted(model):
    torch.manual_seed(1)
    made = get_peft_model(model, LoraConfig(target_modules="all-linear", init_lora_weights=False))
    return made.eval()


def test_whole_model_is_written_and_equal(tmp_path, model, tokenizer, card):
    names = export_model(model, tokenizer, card, tmp_path / "out")

    assert names == ("model.safetensors",)
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "out").iterdir()} == {0o644}
    LlamaForCausalLM.from_pretrained(tmp_path / "out")


def test_model_in_several_files_is_compared_as_well(tmp_path, model):
    model.save_pretrained(tmp_path, max_shard_size="40KB")

    assert len(list(tmp_path.glob("*.safetensors"))) > 1
    verify_export.check_model(model, tmp_path, trust_remote_code=False)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t["model.norm.weight"].view(torch.uint8).__setitem__(0, 1), "model.norm.weight is not the trained"),
        (lambda t: t.pop("model.norm.weight"), "lacks 1 tensors, the first is model.norm.weight"),
        (lambda t: t.update({"model.norm.weight": t["model.norm.weight"].double()}), "model.norm.weight is not"),
    ],
    ids=["one bit", "missing", "other precision"],
)
def test_file_that_differs_from_what_was_trained_is_refused(tmp_path, model, change, message):
    model.save_pretrained(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    change(tensors)
    save_file(tensors, tmp_path / "model.safetensors")

    with pytest.raises(ExportFailed, match=message):
        verify_export.check_model(model, tmp_path, trust_remote_code=False)


def test_adapter_is_written_and_equal(tmp_path, model, tokenizer, card):
    names = export_adapter(adapted(model), tokenizer, card, tmp_path / "out", resized=False)

    assert names == ("adapter_model.safetensors",)
    assert "PeftModel.from_pretrained" in (tmp_path / "out" / "README.md").read_text()


def test_adapter_that_differs_is_refused(tmp_path, model):
    made = adapted(model)
    made.save_pretrained(str(tmp_path))
    expected = {name: tensor + 1e-7 for name, tensor in load_file(tmp_path / "adapter_model.safetensors").items()}

    with pytest.raises(ExportFailed, match="is not the trained one"):
        verify_export.check_adapter(expected, tmp_path)


def test_merged_model_answers_as_model_and_adapter_did(tmp_path, model, tokenizer, card):
    made, ids = adapted(model), torch.arange(8)[None]
    before = made(ids).logits

    export_merged(made, tokenizer, card, tmp_path / "out")

    after = LlamaForCausalLM.from_pretrained(tmp_path / "out").eval()(ids).logits
    torch.testing.assert_close(after, before, atol=1e-5, rtol=1e-5)


def test_merged_nan_is_refused(tmp_path, model, tokenizer, card):
    made = adapted(model)
    with torch.no_grad():
        next(parameter for parameter in made.parameters() if parameter.requires_grad).fill_(float("nan"))

    with pytest.raises(ExportFailed, match="NaN"):
        export_merged(made, tokenizer, card, tmp_path / "out")


def test_place_that_is_no_directory_is_an_export_that_failed(tmp_path, model, tokenizer, card):
    (tmp_path / "out").write_text("a file")

    with pytest.raises(ExportFailed, match="could not export"):
        export_model(model, tokenizer, card, tmp_path / "out")


def test_other_tokenizer_is_refused(tmp_path, assets, tokenizer):
    tokenizer.save_pretrained(tmp_path)
    shutil.copy(assets / "model" / "config.json", tmp_path)
    tokenizer.add_special_tokens({"pad_token": "<|other|>"})

    with pytest.raises(ExportFailed, match="another vocabulary"):
        verify_export.check_tokenizer(tokenizer, tmp_path, trust_remote_code=False)


def test_weights_are_compared_bit_by_bit():
    nan, zero = torch.tensor([float("nan")]), torch.tensor([0.0])

    assert bitwise_equal(nan, nan.clone())
    assert not bitwise_equal(zero, -zero)
    assert not bitwise_equal(zero, zero.to(torch.bfloat16))
