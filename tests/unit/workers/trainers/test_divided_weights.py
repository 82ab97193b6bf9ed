"""Checkpoints that ranks have divided: whole weights under the right names, and errors that say what is wrong."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch.distributed.checkpoint.state_dict_saver import save

from tests.trainers.joined import joined, weights_in
from workers.trainers.deepspeed.whole_weights import whole_weights
from workers.trainers.failures import ModelNotFound
from workers.trainers.stored_tensors import StoredTensors
from workers.trainers.weight_files import write_adapter, write_model

WEIGHTS = {"model.norm.weight": torch.arange(5.0), "model.layers.weight": torch.arange(12).reshape(3, 4)}


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """As FSDP's of one rank."""
    directory = tmp_path / "step-4"
    moments = {"state.norm": torch.ones(5)}
    with pytest.warns(UserWarning, match="assuming the intent is to save in a single process"):
        save({"model": WEIGHTS, "optimizer": moments}, checkpoint_id=directory / "shards", no_dist=True)
    for name in ("config.json", "tokenizer.json", "manifest.json"):
        (directory / name).write_text("{}")
    (directory / "training_args.bin").touch()
    return directory


def test_weights_and_what_describes_the_model_are_put_together(checkpoint: Path, tmp_path: Path) -> None:
    found = joined("FSDP", checkpoint, tmp_path / "run")

    weights = weights_in(found)
    assert set(weights) == set(WEIGHTS)
    assert all(torch.equal(weights[name], WEIGHTS[name]) for name in WEIGHTS)
    assert {"config.json", "tokenizer.json"} <= {path.name for path in found.iterdir()}
    assert not list(found.glob("*.bin"))


def test_one_row_of_a_tensor_is_read_alone(checkpoint: Path) -> None:
    stored = StoredTensors(checkpoint / "shards")

    assert stored.row("model.model.layers.weight", 1).tolist() == [4, 5, 6, 7]


def test_checkpoint_without_a_configuration_says_how_to_get_one(checkpoint: Path, tmp_path: Path) -> None:
    (checkpoint / "config.json").unlink()

    with pytest.raises(ModelNotFound, match=r"no config\.json, as those of FSDP that an older version has saved"):
        joined("FSDP", checkpoint, tmp_path / "run")


def cut_off(part: Path) -> None:
    part.write_bytes(part.read_bytes()[:100])


def of_another_version(part: Path) -> None:
    part.write_bytes(part.read_bytes().replace(b"TensorStorageMetadata", b"TensorStorageMetadat0"))


def of_an_absent_module(part: Path) -> None:
    part.write_bytes(
        part.read_bytes().replace(b"torch.distributed.checkpoint.metadata", b"torch.distributed.checkpoint.metadat0")
    )


@pytest.mark.parametrize(
    ("damage", "part"),
    [
        *((cut_off, "*.distcp"), (Path.unlink, "*.distcp"), (cut_off, ".metadata"), (Path.unlink, ".metadata")),
        *((of_another_version, ".metadata"), (of_an_absent_module, ".metadata")),
    ],
)
def test_damaged_part_is_named_as_the_reason(
    checkpoint: Path, tmp_path: Path, damage: Callable[[Path], None], part: str
) -> None:
    (found,) = (checkpoint / "shards").glob(part)
    damage(found)

    with pytest.raises(ModelNotFound, match="the parts of the checkpoint of FSDP can't be put together"):
        joined("FSDP", checkpoint, tmp_path / "run")


class TooLarge:
    """Needs more memory than there is to be unpickled."""

    def __reduce__(self) -> tuple[type, tuple[int]]:
        return bytes, (1 << 62,)


def save_zero(directory: Path, state: object) -> Path:
    """As DeepSpeed writes a checkpoint of stages 1 and 2."""
    (directory / "step").mkdir(parents=True)
    (directory / "latest").write_text("step")
    (directory / "adapter_config.json").write_text("{}")
    torch.save(state, directory / "step" / "mp_rank_00_model_states.pt")
    return directory


@pytest.mark.long
def test_program_that_ends_without_memory_gives_its_reason_and_its_log(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoint = save_zero(tmp_path / "checkpoint", {"module": TooLarge()})

    with pytest.raises(MemoryError, match="MemoryError"):
        joined("DEEPSPEED", checkpoint, tmp_path / "run", adapter=True)

    assert "Traceback" in capsys.readouterr().err


def test_trained_weight_that_is_tied_has_both_names_and_a_frozen_one_none(tmp_path: Path) -> None:
    """Of LoRA with embeddings that are trained whole, on a base model whose head is tied to them."""
    names = {part: f"base.{part}.modules_to_save.default.weight" for part in ("embed_tokens", "lm_head")}
    frozen = {part: f"base.{part}.original_module.weight" for part in names}
    trained, base = torch.ones(3, 2), torch.zeros(3, 2)
    state = {
        "module": {**dict.fromkeys(names.values(), trained), **dict.fromkeys(frozen.values(), base)},
        "buffer_names": [],
        "param_shapes": [{names["embed_tokens"]: trained.shape}],
        "shared_params": {names["lm_head"]: names["embed_tokens"], frozen["lm_head"]: frozen["embed_tokens"]},
    }

    write_adapter(whole_weights(save_zero(tmp_path / "checkpoint", state)), tmp_path)

    found = weights_in(tmp_path)
    assert set(found) == {"base.embed_tokens.weight", "base.lm_head.weight"}
    assert all(torch.equal(each, trained) for each in found.values())


def test_files_of_weights_are_no_larger_than_asked_unless_one_weight_is(tmp_path: Path) -> None:
    weights = {name: torch.ones(size) for name, size in (("a", 2), ("b", 2), ("c", 9), ("d", 1))}

    write_model(weights.items(), tmp_path, file_bytes=16)

    index = json.loads((tmp_path / "model.safetensors.index.json").read_text())
    assert index["metadata"] == {"total_size": 4 * 14}
    first, second, third = (f"model-{number:05}.safetensors" for number in (1, 2, 3))
    assert index["weight_map"] == {"a": first, "b": first, "c": second, "d": third}
    assert set(weights_in(tmp_path)) == set(weights)


def test_weights_of_an_adapter_have_the_names_that_peft_reads(tmp_path: Path) -> None:
    names = {
        "base.q_proj.lora_A.default.weight": "base.q_proj.lora_A.weight",
        "base.embed.lora_embedding_B.default": "base.embed.lora_embedding_B",
        "base.q_proj.lora_magnitude_vector.default.weight": "base.q_proj.lora_magnitude_vector",
        "base.score.modules_to_save.default.weight": "base.score.weight",
        "base.q_proj.base_layer.bias": "base.q_proj.base_layer.bias",
    }

    others = ("base.x.original_module.weight", "base.lm_head.weight")  # of the base model
    write_adapter(((name, torch.ones(1)) for name in (*names, *others)), tmp_path)

    assert set(weights_in(tmp_path)) == set(names.values())
