"""Where the training data lies and how it is loaded."""

from marshmallow import fields, validate

from app.schemas.documents import DocumentSchema
from app.schemas.strict_fields import Choice, Flag, FreeObject, Number, Section, Text, Whole

FORMATS = ("jsonl", "json", "csv", "parquet", "text", "arrow")


class SamplingSchema(DocumentSchema):
    fraction = Number(0.0, 1.0)
    count = Whole(1)
    seed = Whole(0, 2**32 - 1)


class FilterSchema(DocumentSchema):
    column = Text(longest=255, required=True)
    op = Text(longest=16, required=True)
    value = fields.Raw(required=True)


class SourceSchema(DocumentSchema):
    path = Text(longest=4096, required=True)
    type = Text(longest=64)
    split = Text(longest=64)
    format = Choice(FORMATS)
    columns = fields.List(Text(longest=255), validate=validate.Length(max=1000))
    filters = fields.List(fields.Nested(FilterSchema), validate=validate.Length(max=100))
    sampling = Section(SamplingSchema)


class PreprocessSchema(DocumentSchema):
    tokenizer_config = FreeObject()
    add_bos_token = Flag()
    add_eos_token = Flag()
    padding = Text(longest=32)
    truncation = Flag()
    chat_template = Text(longest=65536)
    field_mapping = FreeObject()


class DataConfigSchema(DocumentSchema):
    sources = fields.List(fields.Nested(SourceSchema), required=True, validate=validate.Length(max=1000))
    preprocess = Section(PreprocessSchema)
    max_seq_length = Whole(1, 2**24)
    batch_size = Whole(1, 65536)
    gradient_accumulation_steps = Whole(1, 65536, load_default=1)
    num_workers = Whole(0, 256)
    pin_memory = Flag()
    validation_split = Number(0.0, 1.0, load_default=0.0)
    seed = Whole(0, 2**32 - 1)
