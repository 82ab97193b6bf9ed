"""The data sets of a LLaMA-Factory configuration: names, which `dataset_info.json` beside the data explains.

Its entries: https://llamafactory.readthedocs.io/en/latest/getting_started/data_preparation.html
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from app.cli.client.imports.datasets import DraftSources, located, of_messages, renamed
from app.cli.client.imports.draft import Draft
from app.cli.client.imports.keys import ConfigKeys, json_object

_INFO = "dataset_info.json"
_JOINED = "prompt is the column {0} alone: join it with {1} into one column"
_REASONS = {
    "ms_hub_url": "no storage of ours: name the data by a path or hf://datasets/OWNER/NAME",
    "om_hub_url": "no storage of ours: name the data by a path or hf://datasets/OWNER/NAME",
    "script_url": "a script that makes data is not run: save its records in a file",
    "cloud_file_name": "name the file by its URI: s3://…",
    "subset": "a configuration of a data set is a choice of files: hf://datasets/OWNER/NAME/FOLDER/*.parquet",
    "system": "the system's message belongs into the column of messages",
    "history": "earlier messages belong into a column of messages",
    "tools": "the column is named tools",
    "images": "models of text only",
    "videos": "models of text only",
    "audios": "models of text only",
    "kto_tag": "no training type has it",
    "observation_tag": "roles of the data are named in data_config.preprocess.field_mapping: roles.NAME",
    "function_tag": "roles of the data are named in data_config.preprocess.field_mapping: roles.NAME",
    "load_from": "sources[].path says where the data is",
}


def add_datasets(draft: Draft, sources: DraftSources, key: str, folder: Path, *, split: str = "train") -> None:
    """Add the data sets that this key names. ``folder`` is that of the configuration."""
    given = draft.keys.take(key) or []
    names = [name.strip() for name in given.split(",")] if isinstance(given, str) else [str(name) for name in given]
    place = Path(str(draft.keys.take("dataset_dir", "data")))
    info = json_object(folder / place / _INFO) if names else {}
    if names and info is None:
        draft.note(
            key, given, f"{place / _INFO} is not here: each is taken for a file of {place}, in the form of Alpaca"
        )
    limit = draft.keys.take("max_samples")
    for name in names:
        entry = (info or {}).get(name)
        if info is not None and entry is None:
            draft.note(key, name, f"is not in {place / _INFO}")
        _add(draft, sources, name, entry if isinstance(entry, Mapping) else {"file_name": f"{name}.json"}, place, split)
        if limit:
            sources.listed[-1]["sampling"] = {"count": int(limit)}


def _add(draft: Draft, sources: DraftSources, name: str, entry: Mapping[str, Any], place: Path, split: str) -> None:
    keys = ConfigKeys(entry, f"{name}.")
    where = str(keys.take("hf_hub_url") or keys.take("file_name") or "")
    is_hub = keys.has("hf_hub_url")
    path = where if is_hub or "://" in where else str(place / where)
    source = located(draft, name, path, split=str(keys.take("split", "")) if is_hub else "")
    if is_hub and not source["path"].startswith("hf://"):
        source["path"] = f"hf://datasets/{where}"
    if inner := keys.take("folder"):
        source["path"] += f"/{inner}"
    if count := keys.take("num_samples"):
        source["sampling"] = {"count": int(count)}
    if split != "train":
        source["split"] = split
    columns, tags = (
        ConfigKeys(keys.take("columns") or {}, f"{name}.columns."),
        ConfigKeys(keys.take("tags") or {}, f"{name}.tags."),
    )
    ranks = keys.flag("ranking")
    read = _of_conversations if keys.take("formatting", "alpaca") == "sharegpt" else _of_alpaca
    mapping = read(draft, columns, tags, name, ranks=ranks)
    for section in (keys, columns, tags):
        section.leave_rest(_REASONS)
        draft.keys.left += section.left
    sources.add(name, source, mapping)


def _of_alpaca(draft: Draft, columns: ConfigKeys, _tags: ConfigKeys, name: str, *, ranks: bool) -> dict[str, str]:
    prompt, query = str(columns.take("prompt", "instruction")), str(columns.take("query", "input"))
    if draft.pretrains:
        return renamed(text=prompt if columns.has("prompt") else "text")
    if draft.training_type == "RLHF" and not ranks:
        draft.note(f"{name}.columns.query", query, _JOINED.format(prompt, query))
        return renamed(prompt=prompt)
    draft.note(f"{name}.columns.query", query, _JOINED.format(prompt, query))
    if ranks:
        chosen, rejected = columns.take("chosen", "chosen"), columns.take("rejected", "rejected")
        return renamed(prompt=prompt, chosen=str(chosen), rejected=str(rejected))
    return renamed(prompt=prompt, completion=str(columns.take("response", "output")))


def _of_conversations(draft: Draft, columns: ConfigKeys, tags: ConfigKeys, name: str, *, ranks: bool) -> dict[str, str]:
    column = str(columns.take("messages", "conversations"))
    role, content = str(tags.take("role_tag", "from")), str(tags.take("content_tag", "value"))
    theirs = {"user": "human", "assistant": "gpt", "system": "system"}
    roles = {str(tags.take(f"{ours}_tag", default)): ours for ours, default in theirs.items()}
    if not ranks:
        return of_messages(column, role, content, roles)
    chosen, rejected = str(columns.take("chosen", "chosen")), str(columns.take("rejected", "rejected"))
    reason = "prompt, chosen and rejected are lists of messages, or texts: an answer is [{role, content}]"
    draft.note(f"{name}.columns.chosen", chosen, reason)
    mapping = of_messages("messages", role, content, roles)
    return renamed(prompt=column, chosen=chosen, rejected=rejected) | mapping
