"""Make a small language model and real text for it, without any download.

    python -m examples.build_demo_assets --out DIR

The text is Python's own: every documented function of the standard library gives one record, its
signature as the prompt and the first sentence of its docstring as the completion. The same records
are written in every shape and format that jobs read. A byte-level BPE tokenizer is trained on
them, and a Llama of about a million random weights is made for it. Everything is deterministic. A
directory that is already complete is left as it is. Prints one line of JSON: {"model": …,
"train": …, "validation": …, … , "prompt": …}, a path for each file.
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
from collections.abc import Iterator, Sequence
from pathlib import Path

from examples.demo_data import FILES, Documented, write

PROMPT = 'def get_name(self, default=None):\n    """'
MODEL = "model"
_SEED = 7
_VOCABULARY = 1024
_SPECIAL_TOKENS = ("<pad>", "<s>", "</s>")
_LONGEST_CHARACTERS = 80
_SKIPPED = frozenset({"test", "tests", "idlelib", "lib2to3", "site-packages", "dist-packages", "turtledemo"})

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def main() -> None:
    """Build what is missing and say where it lies."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True, type=Path, help="directory to build in, kept for the next time")
    out = parser.parse_args().out.resolve()
    places = {name: out / file for name, file in {MODEL: MODEL, **FILES}.items()}
    if not all(place.exists() for place in places.values()):
        if out.is_dir() and any(out.iterdir()) and not places[MODEL].is_dir():
            parser.error(f"{out} holds something else; name a new or an empty directory")
        build(out)
    print(json.dumps({**{name: str(place) for name, place in places.items()}, "prompt": PROMPT}))


def build(out: Path) -> None:
    """Everything into a neighbour of `out` first, so that `out` is complete once it exists."""
    out.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=".demo-", dir=out.parent))
    try:
        functions, classes = documented()
        random.Random(_SEED).shuffle(functions)
        write(draft, functions, classes)
        build_model(draft / MODEL, [each.prompt + each.completion for each in functions])
        draft.chmod(0o755)
        _put(draft, out)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def documented() -> tuple[list[Documented], list[Documented]]:
    """Functions and classes of the standard library, read and never imported; each text once, sorted."""
    library = Path(sysconfig.get_path("stdlib"))
    functions: dict[tuple[str, str], Documented] = {}
    classes: dict[tuple[str, str], Documented] = {}
    for path in sorted(library.rglob("*.py")):
        if _SKIPPED.isdisjoint(path.relative_to(library).parts):
            for node, found in _definitions(path, path.relative_to(library).parts[0].removesuffix(".py")):
                kind = classes if isinstance(node, ast.ClassDef) else functions
                kind.setdefault((found.prompt, found.completion), found)
    return sorted(functions.values()), sorted(classes.values())


def build_model(directory: Path, texts: Sequence[str]) -> None:
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


def _put(draft: Path, out: Path) -> None:
    with contextlib.suppress(OSError):  # another process was faster; what it built is the same
        draft.rename(out)
        return
    for path in draft.iterdir():  # an earlier version built less
        if not (out / path.name).exists():
            path.rename(out / path.name)


def _definitions(path: Path, module: str) -> Iterator[tuple[Definition, Documented]]:
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"))
    except (SyntaxError, UnicodeDecodeError):
        return
    for node in ast.walk(tree):
        if isinstance(node, Definition):
            signature, sentence = _signature(node), _first_sentence(ast.get_docstring(node) or "")
            if sentence and max(len(signature), len(sentence)) <= _LONGEST_CHARACTERS:
                yield node, Documented(f'{signature}\n    """', f'{sentence}"""', module)


def _signature(node: Definition) -> str:
    if isinstance(node, ast.ClassDef):
        return f"class {node.name}({', '.join(map(ast.unparse, node.bases))}):"
    return f"def {node.name}({ast.unparse(node.args)}):"


def _first_sentence(docstring: str) -> str:
    paragraph = " ".join(docstring.partition("\n\n")[0].split())
    sentence = paragraph.partition(". ")[0].rstrip(".")
    return f"{sentence}." if len(sentence) > 15 and sentence.isascii() else ""


if __name__ == "__main__":
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    main()
