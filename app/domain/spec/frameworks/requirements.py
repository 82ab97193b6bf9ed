"""Node capabilities that a framework, launcher or export format requires implicitly."""

from typing import NamedTuple

from app.domain.spec.frameworks.custom import MPI, launcher
from app.domain.spec.frameworks.deepspeed import DEEPSPEED
from app.domain.spec.frameworks.megatron import MEGATRON
from app.domain.spec.model import JobDocument


class Extra(NamedTuple):
    """An optional extra of the package, also the name of the capability, and a module that it installs."""

    name: str
    module: str

    @property
    def command(self) -> str:
        return f"pip install 'trainyard[{self.name}]'"


EXTRAS = {DEEPSPEED: Extra("deepspeed", "deepspeed"), MEGATRON: Extra("megatron", "megatron.core")}  # by framework

# The extra that writes these export formats.
EXPORT, EXPORTED = Extra("export", "gguf"), ("gguf", "onnx")

# How an operator makes a node offer an implicit capability.
HOW_TO_OFFER = {
    MPI: f"A node offers {MPI} when its worker finds mpirun: install Open MPI there",
    **{
        extra.name: f"{framework} needs it, and a node offers {extra.name} when its worker finds the library: "
        f"{extra.command} there, and start the worker again"
        for framework, extra in EXTRAS.items()
    },
    EXPORT.name: f"export_format {' and '.join(EXPORTED)} need it, and a node offers {EXPORT.name} when its worker "
    f"finds the library: {EXPORT.command} there, and start the worker again",
}


def needed(spec: JobDocument) -> frozenset[str]:
    """The capabilities that a job document implies."""
    framework = spec.training_config.framework.type
    words = {EXTRAS[framework].name} if framework in EXTRAS else set[str]()
    if spec.output_config.export_format in EXPORTED:
        words.add(EXPORT.name)
    return frozenset(words | ({MPI} if launcher(spec) == MPI else set()))
