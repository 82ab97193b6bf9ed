"""export_format gguf: one file with weights, configuration and tokenizer, written and verified with the gguf package.

Names follow the GGUF specification (github.com/ggml-org/ggml, docs/gguf.md). float32 and bfloat16 are stored unchanged:
nothing is rounded.
"""

from collections.abc import Iterator
from pathlib import Path

import gguf
import numpy as np
import torch
from safetensors import safe_open
from transformers import AutoConfig, PretrainedConfig, PreTrainedTokenizerBase

from workers.trainers.failures import ExportFailed
from workers.trainers.hf_trainer.formats.convert import weights
from workers.trainers.hf_trainer.formats.gguf_rules import (
    ARCHITECTURES,
    GgufUnsupported,
    check,
    pre_tokenizer,
    tokenizer_json,
)

FILE = "model.gguf"
_ENDS = (".weight", ".bias")


def convert(directory: Path, tokenizer: PreTrainedTokenizerBase) -> None:
    """Raises ExportFailed."""
    config = AutoConfig.from_pretrained(directory)
    try:
        check(config, tokenizer)
        writer = gguf.GGUFWriter(directory / FILE, ARCHITECTURES[config.model_type], use_temp_file=True)
        _describe(writer, config)
        _add_tokenizer(writer, config, tokenizer)
    except GgufUnsupported as error:
        raise ExportFailed(str(error)) from error
    kinds = set()
    for name, values, kind in _tensors(directory, config):
        kinds.add(kind)
        writer.add_tensor(name, values, raw_dtype=kind)
    whole = gguf.LlamaFileType.MOSTLY_BF16 if gguf.GGMLQuantizationType.BF16 in kinds else gguf.LlamaFileType.ALL_F32
    writer.add_file_type(whole)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    _verify(directory, config)


def _describe(writer: gguf.GGUFWriter, config: PretrainedConfig) -> None:
    heads = config.num_attention_heads
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // heads
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(heads)
    writer.add_head_count_kv(getattr(config, "num_key_value_heads", None) or heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_rope_dimension_count(head_dim)
    writer.add_key_length(head_dim)
    writer.add_value_length(head_dim)
    writer.add_vocab_size(config.vocab_size)


def _add_tokenizer(writer: gguf.GGUFWriter, config: PretrainedConfig, tokenizer: PreTrainedTokenizerBase) -> None:
    """Raises GgufUnsupported."""
    names = {number: token for token, number in tokenizer.get_vocab().items()}
    added = tokenizer.added_tokens_decoder
    tokens, kinds = [], []
    for number in range(config.vocab_size):
        tokens.append(names.get(number, f"[PAD{number}]"))
        if number not in names:
            kinds.append(gguf.TokenType.UNUSED)
        elif number in added:
            kinds.append(gguf.TokenType.CONTROL if added[number].special else gguf.TokenType.USER_DEFINED)
        else:
            kinds.append(gguf.TokenType.NORMAL)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre_tokenizer(tokenizer))
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    merges = tokenizer_json(tokenizer)["model"]["merges"]
    writer.add_token_merges([merge if isinstance(merge, str) else " ".join(merge) for merge in merges])
    for name in ("bos", "eos", "pad"):
        number = getattr(tokenizer, f"{name}_token_id")
        if number is not None:
            getattr(writer, f"add_{name}_token_id")(number)
    begins = tokenizer("a")["input_ids"][:1] == [tokenizer.bos_token_id]
    writer.add_add_bos_token(bool(begins))
    if isinstance(tokenizer.chat_template, str):
        writer.add_chat_template(tokenizer.chat_template)


def _tensors(directory: Path, config: PretrainedConfig) -> Iterator[tuple[str, np.ndarray, gguf.GGMLQuantizationType]]:
    """(name, bytes in GGUF layout, GGUF type) of each tensor, one in memory at a time."""
    architecture = gguf.MODEL_ARCH[ARCHITECTURES[config.model_type].upper()]
    known = gguf.get_tensor_name_map(architecture, config.num_hidden_layers)
    for file in weights(directory):
        with safe_open(file, framework="pt") as opened:
            for name in opened.keys():  # noqa: SIM118  (it is no dict)
                tensor = opened.get_tensor(name)
                given = known.get_name(name, try_suffixes=_ENDS)
                if given is None:
                    raise ExportFailed(f"GGUF has no name for the tensor {name}; use export_format safetensors")
                yield given, *_values(_ordered(tensor, name, config))


def _ordered(tensor: torch.Tensor, name: str, config: PretrainedConfig) -> torch.Tensor:
    """In GGUF a llama's rotary dimensions are interleaved within each head."""
    heads = {
        "q_proj.weight": config.num_attention_heads,
        "k_proj.weight": getattr(config, "num_key_value_heads", None) or config.num_attention_heads,
    }.get(name.rpartition("self_attn.")[2])
    if config.model_type != "llama" or heads is None:
        return tensor
    rows, columns = tensor.shape
    return tensor.reshape(heads, 2, rows // heads // 2, columns).swapaxes(1, 2).reshape(rows, columns)


def _values(tensor: torch.Tensor) -> tuple[np.ndarray, gguf.GGMLQuantizationType]:
    values = np.ascontiguousarray(tensor.float().numpy())
    # Readers compute norms and biases in float32.
    is_whole = tensor.dtype != torch.bfloat16 or tensor.ndim == 1
    kind = gguf.GGMLQuantizationType.F32 if is_whole else gguf.GGMLQuantizationType.BF16
    return gguf.quantize(values, kind), kind


def _verify(directory: Path, config: PretrainedConfig) -> None:
    read = {tensor.name: tensor for tensor in gguf.GGUFReader(directory / FILE).tensors}
    for name, values, kind in _tensors(directory, config):
        found = read.pop(name, None)
        if found is None or found.tensor_type != kind or not np.array_equal(found.data, values):
            raise ExportFailed(f"the tensor {name} in {FILE} is not the trained one: read again, it differs")
    if read:
        raise ExportFailed(f"{FILE} has {len(read)} tensors too many, the first is {next(iter(read))}")
