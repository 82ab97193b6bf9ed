"""The model card (README.md) of a finished model: origin, method, metrics and how to load it."""

import itertools
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

from app.domain.spec.defaults import SPLIT
from app.domain.spec.frameworks.megatron import MEGATRON
from app.domain.spec.hyperparameters.parsing import USE_LORA
from app.domain.spec.hyperparameters.rlhf import REWARD_METHOD
from app.domain.spec.locations.published import published
from app.domain.spec.rules.model import is_drawn, is_result
from app.domain.spec.rules.output import GGUF, LORA_TYPES, ONNX
from workers.rank.run_context import RunSpec, method_of
from workers.rank.spec_sections import data_config, output_config, training_config
from workers.trainers.hf_trainer.model.tokenizer import base_model

_LIBRARIES = (
    "torch",
    "transformers",
    "trl",
    "megatron-core",
    "peft",
    "bitsandbytes",
    "accelerate",
    "datasets",
    "tokenizers",
    "safetensors",
)
_METHODS = {
    "SFT": "supervised fine-tuning of all weights",
    "FULL_FINETUNE": "supervised fine-tuning of all weights",
    "LORA": "fine-tuning of a LoRA adapter",
    "QLORA": "fine-tuning of a LoRA adapter beside a base model in 4 bits",
    "DPO": "direct preference optimization (DPO)",
    "RLHF": "reinforcement learning from feedback (RLHF)",
    REWARD_METHOD: "learning which of two answers is preferred, as a reward model: one number for each text,",
    "CONTINUED_PRETRAIN": "continued pre-training of all weights",
}
_LOAD_MODEL = """from transformers import {kind}, AutoTokenizer

model = {kind}.from_pretrained("path/to/this/directory")
tokenizer = AutoTokenizer.from_pretrained("path/to/this/directory")
"""
_LOAD_FORM = {
    GGUF: """from transformers import AutoModelForCausalLM, AutoTokenizer  # or llama.cpp, with the file alone

model = AutoModelForCausalLM.from_pretrained("path/to/this/directory", gguf_file="model.gguf")
tokenizer = AutoTokenizer.from_pretrained("path/to/this/directory")
""",
    ONNX: """import onnxruntime
from transformers import AutoTokenizer

session = onnxruntime.InferenceSession("path/to/this/directory/model.onnx")
tokenizer = AutoTokenizer.from_pretrained("path/to/this/directory")
(logits,) = session.run(None, dict(tokenizer(["Some text"], return_tensors="np", return_token_type_ids=False)))
""",
}
_LOAD_ADAPTER = """from peft import PeftModel
from transformers import {kind}, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("path/to/this/directory")
base = {kind}.from_pretrained({base}{labels})
{resize}model = PeftModel.from_pretrained(base, "path/to/this/directory")
"""


@dataclass(frozen=True)
class RunModelCard:
    """The facts known at the end of a run. The text contains no secret and no local path."""

    spec: RunSpec
    metrics: Mapping[str, float]
    steps: int

    def text(self, *, adapter: bool = False, resized: bool = False) -> str:
        """The card as Markdown. `adapter` adds loading instructions for an adapter, `resized` those for enlarging the
        base embeddings first.
        """
        kind = "adapter" if adapter else "model"
        parts = (
            self._front_matter(adapter=adapter),
            f"# {_inline(self._name) or self._untitled(kind)}",
            self._origin(kind),
            _section(
                "Data", _bullets(_source(*source, number) for number, source in enumerate(self._sources, start=1))
            ),
            _section("Hyperparameters that were set", self._settings()),
            _section("Final metrics", _table("metric", "value", _numbers(self.metrics))),
            _section("Versions", _table("library", "version", _versions())),
            _section("How to load it", f"```python\n{self._loading(adapter=adapter, resized=resized)}```"),
        )
        return "\n\n".join(part for part in parts if part) + "\n"

    @property
    def base_location(self) -> str:
        """The base model as an adapter's user should load it: a hub id or URI unchanged, only the name of a local
        directory.
        """
        return self._base

    @property
    def _name(self) -> str:
        """The output model name, restricted to characters that every YAML reader accepts; empty when unset."""
        name = output_config(self.spec).output_model_name or ""
        return " ".join("".join(c if c.isprintable() else " " for c in name).split())

    @property
    def _base(self) -> str:
        base = base_model(self.spec)
        if is_result(base):
            return f"the result of {base.job_id}"
        return published(base.model_id, is_of_hub=base.source == "hub") or "a local model"

    @property
    def _sources(self) -> list[tuple[str, str]]:
        """Location and split of each source."""
        splits = [source.split for source in data_config(self.spec).sources]
        found = [str(source.get("location") or "") for source in self.spec.sources]
        return [(location, split or SPLIT) for location, split in itertools.zip_longest(found, splits[: len(found)])]

    @property
    def _judges(self) -> bool:
        return method_of(self.spec) == REWARD_METHOD

    @property
    def _has_adapter(self) -> bool:
        return self.spec.training_type in LORA_TYPES or bool(self.spec.hyperparameters.get(USE_LORA))

    def _untitled(self, kind: str) -> str:
        return f"{kind.capitalize()} trained from {'scratch' if is_drawn(base_model(self.spec)) else self._base}"

    def _origin(self, kind: str) -> str:
        method = _METHODS.get(method_of(self.spec), method_of(self.spec))
        base = base_model(self.spec)
        seed = data_config(self.spec).seed
        begin = f"weights drawn by the seed {seed}" if is_drawn(base) else f"`{self._base}`"
        return f"This {kind} was made by {method} from {begin}, in {self.steps} optimizer steps."

    def _front_matter(self, *, adapter: bool) -> str:
        task = "text-classification" if self._judges else "text-generation"
        lines = ["---", f"library_name: {'peft' if adapter else 'transformers'}", f"pipeline_tag: {task}"]
        if self._name:
            lines.append(f"model_name: {json.dumps(self._name, ensure_ascii=False)}")
        base = base_model(self.spec)
        if base.source == "hub" and base.model_id and not is_drawn(base):
            lines.append(f"base_model: {json.dumps(base.model_id)}")
        library = "megatron-core" if self.spec.framework == MEGATRON else "trl"
        tags = ["trainyard", library, *(["lora"] if self._has_adapter else [])]
        return "\n".join([*lines, "tags:", *(f"- {tag}" for tag in tags), "---"])

    def _settings(self) -> str:
        data = data_config(self.spec)
        names = ("max_seq_length", "batch_size", "gradient_accumulation_steps", "validation_split", "seed")
        rows = {name: getattr(data, name) for name in names if name in data.given}
        rows |= training_config(self.spec).hyperparameters
        rows["devices"] = self.spec.world_size
        return _table("name", "value", {name: str(value) for name, value in rows.items()})

    def _loading(self, *, adapter: bool, resized: bool) -> str:
        kind = "AutoModelForSequenceClassification" if self._judges else "AutoModelForCausalLM"
        form = output_config(self.spec).export_format
        if form in _LOAD_FORM:
            return _LOAD_FORM[form]
        if not adapter:
            return _LOAD_MODEL.format(kind=kind)
        labels = ", num_labels=1" if self._judges else ""
        resize = "base.resize_token_embeddings(len(tokenizer))\n" if resized else ""
        return _LOAD_ADAPTER.format(kind=kind, labels=labels, base=json.dumps(self._base), resize=resize)


def _source(location: str, split: str, number: int) -> str:
    return f"{published(location) or f'source {number}'} (split {split})"


def _section(title: str, body: str) -> str:
    return f"## {title}\n\n{body}" if body else ""


def _bullets(items: Iterable[str]) -> str:
    return "\n".join(f"- {_inline(item)}" for item in items)


def _table(name: str, value: str, rows: Mapping[str, str]) -> str:
    lines = [f"| {_inline(key)} | {_inline(text)} |" for key, text in rows.items()]
    return "\n".join([f"| {name} | {value} |", "|---|---|", *lines]) if lines else ""


def _inline(text: str) -> str:
    """One line that cannot break out of its table cell."""
    return " ".join(text.split()).replace("|", "\\|")


def _numbers(metrics: Mapping[str, float]) -> dict[str, str]:
    return {name: f"{value:.6g}" for name, value in sorted(metrics.items()) if not math.isnan(value)}


def _versions() -> dict[str, str]:
    found = {}
    for name in _LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
