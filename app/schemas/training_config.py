"""What is trained, by which method, with which framework."""

import re

from app.schemas.documents import DocumentSchema
from app.schemas.strict_fields import Choice, Flag, FreeObject, Section, Text, TextMap, Whole

TRAINING_TYPES = ("SFT", "LORA", "QLORA", "DPO", "RLHF", "CONTINUED_PRETRAIN", "FULL_FINETUNE")
FRAMEWORKS = ("HF_TRAINER", "DEEPSPEED", "FSDP", "MEGATRON", "CUSTOM")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_PARAMETER = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,127}")


class BaseModelSchema(DocumentSchema):
    model_id = Text(required=True)
    revision = Text(longest=255)
    source = Text(longest=255)
    tokenizer_id = Text()
    dtype = Text(longest=32)
    trust_remote_code = Flag()
    model_kwargs = FreeObject()


class DistributedSchema(DocumentSchema):
    world_size = Whole(1, 65536)
    backend = Text(longest=32, load_default="nccl")
    strategy = Text(longest=64)
    config = FreeObject()


class FrameworkSchema(DocumentSchema):
    type = Choice(FRAMEWORKS, required=True)
    config = TextMap(keys=_PARAMETER, rule="must be the name of an option")
    distributed = Section(DistributedSchema)
    custom_script_path = Text()


class EvaluationSchema(DocumentSchema):
    strategy = Choice(("no", "steps", "epoch"), required=True)
    steps = Whole(1, 2**31 - 1)


class TrainingConfigSchema(DocumentSchema):
    training_type = Choice(TRAINING_TYPES, required=True)
    base_model = Section(BaseModelSchema, required=True)
    framework = Section(FrameworkSchema, required=True)
    hyperparameters = TextMap(keys=_PARAMETER, rule="must be the name of a hyperparameter", load_default=dict)
    environment = TextMap(
        keys=_VARIABLE, rule="must be a name of letters, digits and _ that begins with no digit", load_default=dict
    )
    resume_from_checkpoint = Text(longest=64)
    max_retries = Whole(0, 100)
    priority = Whole(0, 10)
    evaluation = Section(EvaluationSchema)
