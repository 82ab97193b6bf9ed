"""The sections of the job document in a run specification, typed, with defaults for what it leaves out."""

from app.domain.spec.model import DataConfig, OutputConfig, TrainingConfig
from trainyard.protocol.run_spec import RunSpec


def training_config(spec: RunSpec) -> TrainingConfig:
    return TrainingConfig.from_json(spec.training_config)


def data_config(spec: RunSpec) -> DataConfig:
    return DataConfig.from_json(spec.data_config)


def output_config(spec: RunSpec) -> OutputConfig:
    return OutputConfig.from_json(spec.output_config)
