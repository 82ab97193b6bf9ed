"""The data section of a job document: sources, selection, preprocessing and loading."""

import re
from typing import Any

from marshmallow import ValidationError, fields, validate

from app.domain.spec.data.filters import known_operators
from app.domain.spec.data.formats import FORMATS
from app.domain.spec.data.preprocessing import PADDINGS, key_cache, known_targets
from app.domain.spec.defaults import SPLIT
from app.domain.spec.locations.paths import KINDS
from app.domain.spec.model import DataConfig, Preprocess
from app.schemas.documents import JobPartSchema
from app.schemas.spec.credentials import CredentialsField, StorageOptions
from app.schemas.spec.locations import Location
from app.schemas.strict_fields import (
    LARGEST_OF_64_BITS,
    Choice,
    Flag,
    FreeObject,
    Number,
    SectionField,
    Text,
    TextMap,
    Whole,
    says,
)

_LONGEST_LIST = 1000
_LONGEST_TEXT = 4096
_TARGET = re.compile(r".{1,255}", re.DOTALL)


class Comparand(fields.Field[Any]):
    """The operand of a filter: a string, a number, a boolean, or a list of these."""

    def __init__(self, meaning: str) -> None:
        kinds = ["string", "number", "boolean"]
        scalar = {
            "type": kinds,
            "maxLength": _LONGEST_TEXT,
            "maximum": LARGEST_OF_64_BITS,
            "minimum": -LARGEST_OF_64_BITS,
        }
        either = {**scalar, "type": [*kinds, "array"], "items": scalar, "maxItems": _LONGEST_LIST}
        super().__init__(metadata={"description": meaning, **either})

    def _deserialize(self, value: object, *_: Any, **__: Any) -> object:
        each = value if isinstance(value, list) else [value]
        if len(each) > _LONGEST_LIST:
            raise ValidationError(f"must not have more than {_LONGEST_LIST} elements")
        for element in each:
            _check_scalar(element)
        return value


def _check_scalar(value: object) -> None:
    if not isinstance(value, str | int | float):
        raise ValidationError("must be a string, a number, true or false, or a list of these")
    if isinstance(value, str) and len(value) > _LONGEST_TEXT:
        raise ValidationError(f"must not be longer than {_LONGEST_TEXT} characters")
    if isinstance(value, int | float) and abs(value) > LARGEST_OF_64_BITS:
        raise ValidationError("must fit into 64 bits")


class SamplingSchema(JobPartSchema):
    fraction = Number(0.0, 1.0, **says("Fraction of the records to keep, above 0 and up to 1"))
    count = Whole(1, **says("Number of records to keep; all if there are fewer"))
    seed = Whole(0, 2**32 - 1, **says("Random seed of the selection; default data_config.seed"))


class FilterSchema(JobPartSchema):
    column = Text(longest=255, shortest=1, required=True, **says("The column to filter by; it need not be in columns"))
    op = Text(longest=16, required=True, **says(f"One of {known_operators()}"))
    value = Comparand("The operand: a list for in and not_in, none for is_null and not_null, else one value")


class SourceSchema(JobPartSchema):
    path = Location(
        longest=4096,
        required=True,
        **says(
            "A file, a directory or a glob with *, ? and [..], local or as a URI; files are read sorted by name. "
            "file-… is an uploaded file of the project, or the files of an uploaded directory"
        ),
    )
    type = Text(longest=64, **says(f"The kind of location, which must match the path: {', '.join(KINDS)}"))
    split = Text(
        longest=64,
        **says("train, validation or test, with an optional row slice: train[:80%], validation[100:]", default=SPLIT),
    )
    format = Choice(FORMATS, **says("Default: by the file suffix, without .gz and .zst, else jsonl"))
    credentials = CredentialsField()
    storage_options = StorageOptions()
    columns = fields.List(
        Text(longest=255, shortest=1),
        validate=validate.Length(max=1000),
        **says("The columns to keep, named as in the file; default all"),
    )
    filters = fields.List(
        fields.Nested(FilterSchema),
        validate=validate.Length(max=100),
        **says("Keep only records that match all of these filters"),
    )
    sampling = SectionField(SamplingSchema, **says("A deterministic sample of the records, in their order"))
    weight = Number(
        0.0,
        1e9,
        **says("Share of an epoch's records relative to the other training sources; set for all sources or none"),
    )


class PreprocessSchema(JobPartSchema):
    tokenizer_config = FreeObject(**says(f"Changes to the tokenizer: {key_cache()}"))
    add_bos_token = Flag(**says("Start every record with BOS; default as the tokenizer and chat template do"))
    add_eos_token = Flag(**says("End every record with EOS; default true, for messages as the chat template does"))
    padding = Choice(
        PADDINGS, **says("Pad a batch to its longest record, or always to max_seq_length", default=Preprocess.padding)
    )
    truncation = Flag(
        **says(
            "Truncate records longer than max_seq_length; false: such a record fails the job",
            default=Preprocess.truncation,
        )
    )
    chat_template = Text(longest=65536, **says("Jinja template for messages; default the tokenizer's own"))
    field_mapping = TextMap(
        keys=_TARGET,
        rule="must be 1 to 255 characters",
        longest=255,
        **says(f"Mapping of fields to columns or keys: {known_targets()}"),
    )


class DataConfigSchema(JobPartSchema):
    sources = fields.List(
        fields.Nested(SourceSchema),
        required=True,
        validate=validate.Length(max=1000),
        **says("Data sources, at least one with training data"),
    )
    preprocess = SectionField(PreprocessSchema, **says("How records become tokens"))
    max_seq_length = Whole(1, 2**24, **says("Maximum tokens of a sequence", default=DataConfig.max_seq_length))
    batch_size = Whole(1, 65536, **says("Records per device and forward pass", default=DataConfig.batch_size))
    gradient_accumulation_steps = Whole(
        1, 65536, load_default=DataConfig.gradient_accumulation_steps, **says("Forward passes per optimizer step")
    )
    num_workers = Whole(
        0, 256, **says("Data loader processes per rank; 0: load in the rank itself", default=DataConfig.num_workers)
    )
    pin_memory = Flag(**says("Page-locked host memory for copies to the device; default true on GPUs"))
    validation_split = Number(
        0.0,
        1.0,
        load_default=DataConfig.validation_split,
        **says("Fraction of the training records held out for evaluation"),
    )
    seed = Whole(0, 2**32 - 1, **says("Random seed of order, splits and sampling", default=DataConfig.seed))
    streaming = Flag(
        **says(
            "Read and tokenize while training, for data larger than the disk; requires max_steps",
            default=DataConfig.streaming,
        )
    )
    shuffle_buffer = Whole(
        0, 10**8, **says("Shuffle buffer of streaming, in records; 0: file order", default=DataConfig.shuffle_buffer)
    )
