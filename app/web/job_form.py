"""The fields of the form to submit a job: read from the schemas of its document and the table of hyperparameters."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from marshmallow import Schema, fields, validate

from app.domain.spec.catalog import training_types
from app.domain.spec.hyperparameters.parsing import CUSTOM
from app.schemas.jobs import SubmitJobSchema
from app.schemas.spec.field_verdicts import FieldVerdict
from app.schemas.spec.job_fields import FIELDS
from app.schemas.spec.training_config import TRAINING_TYPES
from app.schemas.strict_fields import Choice, Flag, Number, OneOrSeveral, Text, TextMap, Texts, Whole

_HYPERPARAMETERS, _FRAMEWORK = "training_config.hyperparameters", "training_config.framework.type"
_NO_ID = re.compile(r"[^\w-]", re.ASCII)
_MOST_NAMED = 3  # values of another hyperparameter that a field needs
_TRAINING_TYPE = "training_config.training_type"
# In the words of a form, where those of the schema are for programs.
_MEANINGS = {
    _TRAINING_TYPE: "What is trained, and on which records",
    _FRAMEWORK: "CUSTOM is a script of your own",
    "training_config.base_model.model_id": "An ID of the hub, a directory, a URI, or file-… of an upload",
}
_TITLES = {_FRAMEWORK: "Framework"}  # of the many called type, the section's
# Beside the hyperparameters of a script of one's own, and nowhere else.
_OF_SCRIPT = tuple(f"training_config.framework.custom_{name}" for name in ("script_path", "code_dir", "retry_on_error"))
# Left to the document: they hold objects of any form, or say the same as another field.
_ONLY_IN_DOCUMENT = {_HYPERPARAMETERS, "training_config.framework.config", "training_config.priority"}
# Of an input that is not there: the field that names it, by the words that the failure begins with.
_FIELDS_OF_INPUTS = {
    "base model ": "training_config.base_model.model_id",
    "tokenizer ": "training_config.base_model.tokenizer_id",
    "data source ": "data_config.sources",
    "custom script ": "training_config.framework.custom_script_path",
    "code directory ": "training_config.framework.custom_code_dir",
    "reward ": "training_config.hyperparameters.reward",
    "reward model ": "training_config.hyperparameters.reward_model_id",
}
# Beside each other at the top; all others are in the groups below.
_FIRST = (
    ("Job", ("name", "labels")),
    ("Training", (_TRAINING_TYPE, _FRAMEWORK, "training_config.base_model.model_id")),
    ("Data", ("data_config.max_seq_length", "data_config.batch_size", "data_config.validation_split")),
    ("Resources", ("resource_config.gpu_count", "resource_config.gpu_type", "resource_config.node_count")),
    ("Scheduling", ("scheduling_config.queue", "scheduling_config.priority", "scheduling_config.preemptible")),
)
_GROUPS = (
    ("More of the model and framework", ("training_config.base_model", "training_config.framework", "training_config")),
    ("More of the data", ("data_config", "data_config.preprocess")),
    ("More of the resources", ("resource_config",)),
    ("More of the scheduling", ("scheduling_config",)),
    ("Output and checkpoints", ("output_config", "output_config.checkpoint")),
)
# Of hyperparameters: those that most people set.
_USUAL = (
    "learning_rate",
    "num_train_epochs",
    "max_steps",
    "warmup_ratio",
    "lr_scheduler_type",
    "lora_r",
    "lora_alpha",
    "lora_target_modules",
    "algorithm",
    "reward",
    "beta",
    "gradient_checkpointing",
)
_WORDS = {"gpu": "GPU", "cpu": "CPU", "id": "ID", "ram": "RAM", "mb": "MB", "lora": "LoRA", "eos": "EOS", "bos": "BOS"}
_KINDS: tuple[tuple[type[fields.Field[Any]], str], ...] = (
    (Choice, "choice"),
    (Flag, "flag"),
    (Whole, "whole"),
    (Number, "number"),
    (Texts, "texts"),
    (TextMap, "map"),
    (OneOrSeveral, "text"),
    (Text, "text"),
    (fields.String, "text"),
)


@dataclass(frozen=True, kw_only=True)
class FormField:
    """``kind``: text, whole, number, flag, choice, texts and values (with commas), lines (texts), or lines of
    key=value: map (texts), options (any values) and cases (values with commas).

    ``title`` stands in place of the field's name; ``suggestions`` are values of a text that others may stand beside,
    ``suggests_as`` is the path of another field that has them.
    """

    path: str
    kind: str
    meaning: str
    default: str = ""
    choices: tuple[str, ...] = ()
    is_required: bool = False
    title: str = ""
    suggestions: tuple[str, ...] = ()
    suggests_as: str = ""

    @property
    def label(self) -> str:
        """The field's name in words."""
        if self.title:
            return self.title
        words = [_WORDS.get(word, word) for word in self.path.rpartition(".")[2].split("_")]
        return " ".join((words[0][:1].upper() + words[0][1:], *words[1:]))

    @property
    def id(self) -> str:
        return _id_of(self.path)

    @property
    def list_id(self) -> str:
        """Of the element with its suggestions; empty without any."""
        path = self.path if self.suggestions else self.suggests_as
        return f"{_id_of(path)}-list" if path else ""

    def below(self, section: str) -> "FormField":
        """The field of a document that is a section of another."""
        return replace(self, path=f"{section}.{self.path}")


@dataclass(frozen=True, kw_only=True)
class FieldGroup:
    title: str
    fields: Sequence[FormField]


@dataclass(frozen=True, kw_only=True)
class MethodChoice:
    """A training type on a framework. ``found`` False: they do not go together; ``frameworks`` are those that do."""

    training_type: str
    framework: str
    found: bool
    description: str
    record_shapes: Sequence[str]
    usual: Sequence[FormField]
    others: Sequence[FormField]
    any_hyperparameter: bool
    frameworks: Sequence[str]


@cache
def first() -> tuple[FieldGroup, ...]:
    return tuple(FieldGroup(title=title, fields=[field_at(path) for path in paths]) for title, paths in _FIRST)


@cache
def groups() -> tuple[FieldGroup, ...]:
    shown = {*_OF_SCRIPT, *(path for _, paths in _FIRST for path in paths)}
    found = []
    for title, sections in _GROUPS:
        listed = [each for section in sections for each in _scalars(section) if each.path not in shown]
        found.append(FieldGroup(title=title, fields=listed))
    return tuple(found)


def method(training_type: str, framework: str) -> MethodChoice:
    """What a training type on a framework takes; any texts may be asked for."""
    training_type = training_type or (CUSTOM if framework == CUSTOM else "")
    frameworks = _frameworks(training_type)
    if framework in frameworks:
        return _known(training_type, framework)
    return MethodChoice(
        training_type=training_type,
        framework=framework,
        found=False,
        description="",
        record_shapes=(),
        usual=(),
        others=(),
        any_hyperparameter=False,
        frameworks=list(frameworks),
    )


def field_at(path: str, schema: type[Schema] = SubmitJobSchema, *, title: str = "") -> FormField:
    """The field of a document with this schema."""
    section, _, name = path.rpartition(".")
    found = _form_field(path, _section(section, schema).fields[name])
    if found is None:
        raise TypeError(f"{path} is of no kind that the form has")
    return replace(found, title=title) if title else found


def field_of_input(failure: str) -> str:
    """The field of what is missing; empty if the form has none for it."""
    return next((path for words, path in reversed(_FIELDS_OF_INPUTS.items()) if failure.startswith(words)), "")


def hyperparameters_of(training_type: str, framework: str) -> Sequence[Mapping[str, Any]]:
    """As `GET /v1/training-types` describes them; none of what does not go together. Any texts may be asked for."""
    entry = _frameworks(training_type).get(framework)
    return entry["hyperparameters"] if entry is not None else ()


def _frameworks(training_type: str) -> dict[str, dict[str, Any]]:
    """Framework → its entry in the catalog."""
    return {each["framework"]: each for each in _catalog() if each["training_type"] == training_type}


@cache
def _known(training_type: str, framework: str) -> MethodChoice:
    """Only of what the catalog has, so that no request makes the cache grow beyond it."""
    frameworks = _frameworks(training_type)
    entry = frameworks[framework]
    listed = [_hyperparameter(each) for each in entry["hyperparameters"]]
    usual = [each for each in listed if each.path.rpartition(".")[2] in _USUAL]
    usual += [field_at(path) for path in _OF_SCRIPT if framework == CUSTOM]
    return MethodChoice(
        training_type=training_type,
        framework=framework,
        found=True,
        description=entry["description"],
        record_shapes=entry["record_shapes"],
        usual=usual,
        others=[each for each in listed if each not in usual],
        any_hyperparameter=bool(entry["any_hyperparameter"]),
        frameworks=list(frameworks),
    )


@cache
def _catalog() -> tuple[dict[str, Any], ...]:
    return tuple(training_types((*TRAINING_TYPES, CUSTOM)))


def _scalars(section: str) -> Iterator[FormField]:
    for name, field in _section(section).fields.items():
        found = _form_field(f"{section}.{name}", field)
        rule = FIELDS.get(f"{section}.{name}")
        is_taken = rule is None or rule.verdict is FieldVerdict.ACTED_ON
        if found is not None and is_taken and found.path not in _ONLY_IN_DOCUMENT:
            yield found


def _section(path: str, schema: type[Schema] = SubmitJobSchema) -> Schema:
    found: Schema = schema()
    for name in path.split(".") if path else ():
        nested = found.fields[name]
        if not isinstance(nested, fields.Nested):
            raise TypeError(f"{path} is no section")
        found = nested.schema
    return found


def _form_field(path: str, field: fields.Field[Any]) -> FormField | None:
    kind = next((kind for cls, kind in _KINDS if isinstance(field, cls)), "")
    if not kind:
        return None
    choices = next((each.choices for each in field.validators if isinstance(each, validate.OneOf)), ())
    default = field.metadata.get("default", field.load_default)
    return FormField(
        path=path,
        kind="choice" if choices else kind,
        meaning=_MEANINGS.get(path) or str(field.metadata.get("description", "")),
        default=_text(default) if isinstance(default, str | int | float) else "",
        choices=tuple(map(str, choices)),
        is_required=field.required,
        title=_TITLES.get(path, ""),
    )


def _id_of(path: str) -> str:
    return "field-" + _NO_ID.sub("-", path)


def _hyperparameter(entry: Mapping[str, Any]) -> FormField:
    kinds = {"int": "whole", "float": "number", "bool": "flag", "choice": "choice"}
    conditions = [_condition(name, values) for name, values in entry["only_with"].items()]
    only = f". Only with {'; '.join(conditions)}" if conditions else ""
    return FormField(
        path=f"{_HYPERPARAMETERS}.{entry['name']}",
        kind=kinds.get(entry["type"], "text"),
        meaning=f"{entry['meaning']}{only}",
        default=_text(entry["default"]) if entry["default"] is not None else "",
        choices=tuple(map(str, entry["choices"])),
    )


def _condition(name: str, values: Sequence[object]) -> str:
    return f"{name} {' or '.join(map(_text, values))}" if len(values) <= _MOST_NAMED else f"some of {name}"


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else f"{value:g}" if isinstance(value, float) else str(value)
