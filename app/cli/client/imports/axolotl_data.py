"""The data sets of an axolotl configuration: `datasets`, `test_datasets` and `pretraining_dataset`.

Their types: https://docs.axolotl.ai/docs/dataset-formats
"""

from collections.abc import Mapping
from typing import Any

from app.cli.client.imports.datasets import DraftSources, located, of_messages, renamed
from app.cli.client.imports.draft import Draft
from app.cli.client.imports.keys import ConfigKeys

_ALPACA = {
    "alpaca": ("instruction", "output"),
    "alpaca_chat": ("instruction", "output"),
    "alpaca_w_system": ("instruction", "output"),
    "gpteacher": ("instruction", "response"),
    "oasst": ("INSTRUCTION", "RESPONSE"),
}
_PREFERENCES = {  # by the end of the type's name: prompt, chosen, rejected
    "intel": ("question", "chosen", "rejected"),
    "argilla": ("instruction", "chosen_response", "rejected_response"),
    "argilla_chat": ("chosen", "chosen", "rejected"),
    "icr": ("input", "chosen", "rejected"),
    "prompt_pairs": ("prompt", "chosen", "rejected"),
    "ultra": ("prompt", "chosen", "rejected"),
}
_JOINED = "only the column {0} is the prompt: join instruction and input into one column, with the template you want"
_REASONS = {
    "name": "a configuration of a data set is a choice of files: hf://datasets/OWNER/NAME/FOLDER/*.parquet",
    "conversation": "the tokenizer's own chat template is used, or data_config.preprocess.chat_template",
    "chat_template": "the tokenizer's own chat template is used, or data_config.preprocess.chat_template",
    "shards": "sources[].sampling keeps a share of the records",
    "shards_idx": "sources[].sampling keeps a share of the records",
    "train_on_eos": "the end of each turn that is learned is learned, too",
    "message_field_training": 'a message with "weight": 0 is read and not learned',
    "message_field_training_detail": 'a message with "weight": 0 is read and not learned; parts of one are not chosen',
    "drop_system_message": "remove the system messages from the data",
    "split_thinking": "the chat template decides it",
    "field_tools": "the column is named tools",
    "field_thinking": "the chat template decides it",
    "field_system": "the system's message belongs into the column of messages",
    "format": "the prompt is the column as it is: write the text into the data",
    "no_input_format": "the prompt is the column as it is: write the text into the data",
    "prompt_format": "the prompt is the column as it is: write the text into the data",
    "chosen_format": "the answer is the column as it is: write the text into the data",
    "rejected_format": "the answer is the column as it is: write the text into the data",
    "system_prompt": "write the text into the data",
    "system_format": "write the text into the data",
    "field_input": "join instruction and input into one column",
    "skip": "sources[].split takes rows: train[1000:]",
}
_SILENT = frozenset({"trust_remote_code", "preprocess_shards", "num_proc"})


def add_datasets(draft: Draft, sources: DraftSources, key: str, *, split: str = "train") -> None:
    """Add the data sets of this key. ``split`` is what they are for."""
    for number, entry in enumerate(draft.keys.take(key) or ()):
        place = f"{key}[{number}]"
        if not isinstance(entry, Mapping):
            draft.note(place, entry, "is no mapping with path and type")
            continue
        keys = ConfigKeys(entry, f"{place}.")
        source = _source(draft, keys, place, split)
        mapping = _mapping(draft, keys, place)
        keys.leave_rest(_REASONS, silent=_SILENT)
        draft.keys.left += keys.left
        sources.add(place, source, mapping)


def _source(draft: Draft, keys: ConfigKeys, place: str, split: str) -> dict[str, Any]:
    path, kind = str(keys.take("path", "")), str(keys.take("ds_type", ""))
    files = keys.take("data_files")
    names = [files] if isinstance(files, str) else list(files or ())
    if path in ("json", "csv", "parquet", "text", "arrow") and names:
        kind, path, names = path, str(names[0]), names[1:]  # a loader of `datasets` with files
    found = located(
        draft, place, path, kind=kind, revision=str(keys.take("revision", "")), split=str(keys.take("split", ""))
    )
    if names and found["path"].startswith("hf://"):
        found["path"], names = f"{found['path']}/{names[0]}", names[1:]
    if names:
        draft.note(f"{place}.data_files", names, "is one path here: add a source for each file, or use a pattern")
    if split != "train":
        _, bracket, rows = str(found.get("split", "")).partition("[")
        found["split"] = f"{split}{bracket}{rows}"
    return found


def _mapping(draft: Draft, keys: ConfigKeys, place: str) -> dict[str, str]:
    kind = keys.take("type")
    if isinstance(kind, Mapping):
        return _of_user(draft, kind, place)
    kind = str(kind or "completion")
    if draft.training_type == "DPO" or draft.keys.take("rl"):
        return _of_preferences(draft, keys, kind, place)
    base = kind.partition(":")[0].partition(".")[0]
    if base in ("chat_template", "sharegpt", "pygmalion"):
        return _of_conversations(draft, keys, sharegpt=base != "chat_template")
    if base in _ALPACA:
        instruction, output = _ALPACA[base]
        draft.note(f"{place}.type", kind, _JOINED.format(instruction))
        return renamed(prompt=instruction, completion=output)
    if base in ("completion", "pretrain"):
        return renamed(text=str(keys.take("text_column") or keys.take("field") or "text"))
    draft.note(f"{place}.type", kind, "name the columns in data_config.preprocess.field_mapping")
    return {}


def _of_user(draft: Draft, kind: Mapping[str, Any], place: str) -> dict[str, str]:
    keys = ConfigKeys(kind, f"{place}.type.")
    if draft.training_type == "DPO":
        names = {each: str(keys.take(f"field_{each}", each)) for each in ("prompt", "chosen", "rejected")}
    else:
        instruction, output = keys.take("field_instruction", "instruction"), keys.take("field_output", "output")
        names = {"prompt": str(instruction), "completion": str(output)}
    keys.leave_rest(_REASONS)
    draft.keys.left += keys.left
    return renamed(**names)


def _of_conversations(draft: Draft, keys: ConfigKeys, *, sharegpt: bool) -> dict[str, str]:
    named = keys.take("message_property_mappings") or {}
    role = keys.take("message_field_role") or named.get("role") or ("from" if sharegpt else "role")
    content = keys.take("message_field_content") or named.get("content") or ("value" if sharegpt else "content")
    column = keys.take("field_messages") or ("conversations" if sharegpt else "messages")
    roles = {str(theirs): str(ours) for ours, names in (keys.take("roles") or {}).items() for theirs in names} or {
        "human": "user",
        "gpt": "assistant",
    }
    learned = keys.take("roles_to_train")
    if learned is not None and set(learned) - {"assistant", "gpt"}:
        draft.set("assistant_only_loss", value=False, origin="roles_to_train")
    asked = role, content
    if asked == ("role", "content") and not keys.has("roles"):
        roles = {}  # axolotl knows both sets of names; these columns go with ours
    return of_messages(str(column), str(role), str(content), roles)


def _of_preferences(draft: Draft, keys: ConfigKeys, kind: str, place: str) -> dict[str, str]:
    end = kind.rpartition(".")[2]
    if draft.training_type == "RLHF":
        draft.note(f"{place}.type", kind, "prompts are the column prompt or messages; field_mapping names another one")
        return {}
    if end == "default" and not kind.startswith("user_defined"):
        column = str(keys.take("field_messages", "messages"))
        names = {each: str(keys.take(f"field_{each}", each)) for each in ("chosen", "rejected")}
        reason = "prompt, chosen and rejected are lists of messages, or texts: an answer is [{role, content}]"
        draft.note(f"{place}.type", kind, reason)
        return renamed(prompt=column, **names)
    if end not in _PREFERENCES:
        draft.note(f"{place}.type", kind, "name the columns prompt, chosen and rejected in preprocess.field_mapping")
        return {}
    prompt, chosen, rejected = _PREFERENCES[end]
    if end == "intel":
        draft.note(f"{place}.type", kind, "the column system is not used: make prompt a list of messages with it")
    if end in ("ultra", "argilla_chat"):
        return renamed(chosen=chosen, rejected=rejected)  # the messages that both answers begin with
    return renamed(prompt=prompt, chosen=chosen, rejected=rejected)
