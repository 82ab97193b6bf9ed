"""Make a small language model and real text for it, without any download.

    python -m examples.build_demo_assets --out DIR

The text is Python's own: every documented function of the standard library gives one record, its
signature as the prompt and the first sentence of its docstring as the completion. A byte-level BPE
tokenizer is trained on that text, and a Llama of about a million random weights is made for it.
Everything is deterministic. A directory that is already complete is left as it is. Prints one line
of JSON: {"model": …, "train": …, "validation": …, "chat": …, "text": …, "prompt": …}.
"""

import argparse
import ast
import contextlib
import json
import os
import random
import shutil
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path

PROMPT = 'def get_name(self, default=None):\n    """'
_SEED = 7
_VOCABULARY = 1024
_SPECIAL_TOKENS = ("<pad>", "<s>", "</s>")
_VALIDATION_RECORDS = 200
_LONGEST_CHARACTERS = 80
_SKIPPED = frozenset({"test", "tests", "idlelib", "lib2to3", "site-packages", "dist-packages", "turtledemo"})


def main() -> None:
    """Build what is missing and say where it lies."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True, type=Path, help="directory to build in, kept for the next time")
    out = parser.parse_args().out.resolve()
    if not (out / "model").is_dir():
        if out.is_dir() and any(out.iterdir()):
            parser.error(f"{out} holds something else; name a new or an empty directory")
        build(out)
    names = {"model": "model", **{name: f"{name}.jsonl" for name in ("train", "validation", "chat", "text")}}
    print(json.dumps({**{key: str(out / name) for key, name in names.items()}, "prompt": PROMPT}))


def build(out: Path) -> None:
    """Everything into a neighbour of `out` first, so that `out` is complete once it exists."""
    out.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=".demo-", dir=out.parent))
    try:
        pairs = sorted(set(documented_functions()))
        random.Random(_SEED).shuffle(pairs)
        write_records(draft, pairs)
        build_model(draft / "model", [prompt + completion for prompt, completion in pairs])
        draft.chmod(0o755)
        with contextlib.suppress(OSError):  # another process was faster; what it built is the same
            draft.rename(out)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def documented_functions() -> Iterator[tuple[str, str]]:
    """(signature, first sentence of the docstring) of the standard library, read and never imported."""
    library = Path(sysconfig.get_path("stdlib"))
    for path in sorted(library.rglob("*.py")):
        if _SKIPPED.isdisjoint(path.relative_to(library).parts):
            yield from _functions(path)


def write_records(directory: Path, pairs: list[tuple[str, str]]) -> None:
    """The same records in the three shapes that supervised fine-tuning reads."""
    records = [{"prompt": prompt, "completion": completion} for prompt, completion in pairs]
    _write(directory / "validation.jsonl", records[:_VALIDATION_RECORDS])
    records = records[_VALIDATION_RECORDS:]
    _write(directory / "train.jsonl", records)
    _write(directory / "text.jsonl", [{"text": record["prompt"] + record["completion"]} for record in records])
    _write(directory / "chat.jsonl", [_conversation(record) for record in records])


def build_model(directory: Path, texts: list[str]) -> None:
    """A tokenizer trained on `texts` and a Llama that knows nothing yet."""
    # Imported here, so that asking for what is already there costs no seconds.
    import torch  # noqa: PLC0415
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers  # noqa: PLC0415
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast  # noqa: PLC0415

    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=_VOCABULARY,
        special_tokens=list(_SPECIAL_TOKENS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    bpe.train_from_iterator(texts, trainer)
    special = dict(zip(("pad_token", "bos_token", "eos_token"), _SPECIAL_TOKENS, strict=True))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=bpe, model_max_length=512, **special)
    torch.manual_seed(_SEED)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(tokenizer),
            hidden_size=128,
            intermediate_size=384,
            num_hidden_layers=4,
            num_attention_heads=4,
            num_key_value_heads=4,
            max_position_embeddings=512,
            tie_word_embeddings=True,
            pad_token_id=tokenizer.pad_token_id,
            bos_token_id=tokenizer.bos_token_id,
            eos_token_id=tokenizer.eos_token_id,
        )
    )
    model.save_pretrained(directory)
    tokenizer.save_pretrained(directory)
    for path in directory.iterdir():
        path.chmod(0o644)


def _functions(path: Path) -> Iterator[tuple[str, str]]:
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"))
    except (SyntaxError, UnicodeDecodeError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            signature = f"def {node.name}({ast.unparse(node.args)}):"
            sentence = _first_sentence(ast.get_docstring(node) or "")
            if sentence and max(len(signature), len(sentence)) <= _LONGEST_CHARACTERS:
                yield f'{signature}\n    """', f'{sentence}"""'


def _first_sentence(docstring: str) -> str:
    paragraph = " ".join(docstring.partition("\n\n")[0].split())
    sentence = paragraph.partition(". ")[0].rstrip(".")
    return f"{sentence}." if len(sentence) > 15 and sentence.isascii() else ""


def _conversation(record: dict[str, str]) -> dict[str, list[dict[str, str]]]:
    signature, _, _ = record["prompt"].partition("\n")
    answer = record["completion"].removesuffix('"""')
    turns = (("user", f"What does this function do?\n{signature}"), ("assistant", answer))
    return {"messages": [{"role": role, "content": content} for role, content in turns]}


def _write(path: Path, records: list[dict[str, str]] | list[dict[str, list[dict[str, str]]]]) -> None:
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")


if __name__ == "__main__":
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    main()
