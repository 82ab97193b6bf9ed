"""A model card as Markdown, with the YAML at its head that hubs read."""

import json
import math
from collections.abc import Iterable, Mapping, Sequence

from app.domain.model_cards.escaping import code, plain, yaml_text
from app.domain.model_cards.facts import ADAPTER, MODEL, BaseOfModel, CardSource, MeasuredMetric, ModelCard

_LOAD_MODEL = """from transformers import {kind}, AutoTokenizer

model = {kind}.from_pretrained("path/to/this/directory")
tokenizer = AutoTokenizer.from_pretrained("path/to/this/directory")"""
_LOAD_ADAPTER = """from peft import {kind}
from transformers import AutoTokenizer

model = {kind}.from_pretrained("path/to/this/directory")  # loads its base model, too
tokenizer = AutoTokenizer.from_pretrained("path/to/this/directory")"""


def as_markdown(card: ModelCard) -> str:
    parts = (
        _front_matter(card),
        f"# {plain(card.name)}",
        _origin(card),
        _section("Data", _table(("source", "split", "records", "SHA-256"), map(_source, card.sources))),
        _section("Settings", _pairs({name: _shown(value) for name, value in card.settings.items()})),
        _section("Final metrics", _pairs({name: _shown(value) for name, value in sorted(card.final_metrics.items())})),
        _section("Evaluations", _evaluations(card)),
        _section("Files", _files(card)),
        _section("Compute", _pairs(_compute(card))),
        _section("How to load it", _loading(card)),
    )
    return "\n\n".join(part for part in parts if part) + "\n"


def _front_matter(card: ModelCard) -> str:
    lines = [f"model_name: {yaml_text(card.name)}"]
    if card.library is not None:
        lines += [f"library_name: {card.library}", f"pipeline_tag: {_task(card)}"]
    if card.base.is_of_hub and card.base.location:
        lines.append(f"base_model: {yaml_text(card.base.location)}")
        lines += ["base_model_relation: adapter"] if card.kind == ADAPTER else ["base_model_relation: finetune"]
    tags = ["trainyard", card.training_type.lower()]
    lines += ["tags:", *(f"- {yaml_text(tag)}" for tag in tags)]
    lines += _model_index(card)
    return "\n".join(["---", *lines, "---"])


def _model_index(card: ModelCard) -> list[str]:
    """Values that were measured of the result, as hubs show them; those that are not finite numbers are left out."""
    results = []
    for each in card.evaluations:
        if isinstance(each.value, float | int) and math.isfinite(each.value):
            dataset = yaml_text(each.dataset or each.benchmark)
            metric = yaml_text(f"{each.benchmark}/{each.metric}")
            results += [
                f"  - task: {{type: {_task(card)}}}",
                f"    dataset: {{name: {dataset}, type: {dataset}}}",
                f"    metrics: [{{type: {yaml_text(each.metric)}, name: {metric}, value: {json.dumps(each.value)}}}]",
            ]
    return ["model-index:", f"- name: {yaml_text(card.name)}", "  results:", *results] if results else []


def _task(card: ModelCard) -> str:
    return "text-classification" if card.judges else "text-generation"


def _origin(card: ModelCard) -> str:
    base = code(card.base.location) or "a model that this installation does not name"
    if card.base.job_id is not None:
        base = f"the result of {code(card.base.job_id)}"
    revision = f" at revision {code(card.base.revision)}" if card.base.revision else ""
    digest = f" ({_content(card.base)})" if _content(card.base) else ""
    made = f"Made by {code(card.training_type)} with {code(card.framework)} from {base}{revision}{digest}"
    return f"{made}, in {card.steps} optimizer steps, by the job {code(card.job_id)} of Trainyard."


def _content(base: BaseOfModel) -> str:
    """What says most about what was read."""
    if base.model_hash:
        return f"SHA-256 {code(base.model_hash)}"
    if base.commit:
        return f"commit {code(base.commit)}"
    return f"SHA-256 of samples {code(base.sampled_sha256)}" if base.sampled_sha256 else ""


def _source(source: CardSource) -> tuple[str, ...]:
    count = str(source.records) if source.records is not None else ""
    return code(source.location), plain(source.split), count, code(source.sha256 or "")


def _evaluations(card: ModelCard) -> str:
    table = _table(("benchmark", "data", "metric", "value", "standard error", "samples", "passed"), _rows(card))
    if card.passed is None or not table:
        return table
    return f"{table}\n\nIt {'meets' if card.passed else 'does not meet'} everything that was required of it."


def _rows(card: ModelCard) -> Iterable[tuple[str, ...]]:
    return map(_row, card.evaluations)


def _row(each: MeasuredMetric) -> tuple[str, ...]:
    passed = {None: "", True: "yes", False: "no"}[each.passed]
    samples = str(each.samples) if each.samples is not None else ""
    figures = (_shown(each.value), _shown(each.stderr), samples, passed)
    return plain(each.benchmark), code(each.dataset), plain(each.metric), *map(plain, figures)


def _files(card: ModelCard) -> str:
    rows = [(code(each.path), str(each.size_bytes), code(each.sha256)) for each in card.files if each.is_weights]
    table = _table(("weights", "bytes", "SHA-256"), rows)
    return f"{table}\n\nSHA-256 over all weights, in this order: {code(card.model_hash)}" if table else ""


def _compute(card: ModelCard) -> Mapping[str, str]:
    spent = card.compute
    return {
        "devices": f"{spent.devices} × {', '.join(spent.device_types) or 'unknown'} on {spent.nodes} nodes",
        "training time in seconds": f"{spent.seconds:.0f}",
        "GPU time in seconds": f"{spent.device_seconds:.0f}",
        "attempts": str(spent.attempts),
        "tokens": str(card.tokens),
    }


def shell_lines(card: ModelCard) -> list[str]:
    """Commands that fetch the result, and serve it where that is possible."""
    serves = card.kind in (ADAPTER, MODEL) and not card.judges
    return [f"trainyard download {card.job_id}", *([f"trainyard serve {card.job_id}"] if serves else [])]


def python_lines(card: ModelCard) -> str:
    """A program that loads the result; empty for files that no library is known to load."""
    what = "SequenceClassification" if card.judges else "CausalLM"
    return {
        ADAPTER: _LOAD_ADAPTER.format(kind=f"AutoPeftModelFor{what}"),
        MODEL: _LOAD_MODEL.format(kind=f"AutoModelFor{what}"),
    }.get(card.kind, "")


def _loading(card: ModelCard) -> str:
    shell, text = "```sh\n{}\n```".format("\n".join(shell_lines(card))), python_lines(card)
    return f"{shell}\n\n```python\n{text}\n```" if text else shell


def _section(title: str, body: str) -> str:
    return f"## {title}\n\n{body}" if body else ""


def _pairs(values: Mapping[str, str]) -> str:
    return _table(("name", "value"), ((plain(name), plain(value)) for name, value in values.items()))


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([f"| {' | '.join(head)} |", "|" + "---|" * len(head), *lines]) if lines else ""


def _shown(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    return value if isinstance(value, str) else "" if value is None else json.dumps(value)
