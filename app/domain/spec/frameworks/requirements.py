"""Node capabilities that a framework, launcher or export format requires implicitly."""

from collections.abc import Iterator
from typing import NamedTuple

from app.domain.spec.frameworks.custom import MPI, launcher
from app.domain.spec.frameworks.deepspeed import DEEPSPEED
from app.domain.spec.frameworks.megatron import MEGATRON
from app.domain.spec.inference import LM_EVAL, Inference
from app.domain.spec.model import CLAIM, CODE, DATA, MODEL, WANDB, JobDocument, Mount, ResourceConfig


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

# The extra that measures tasks of EleutherAI's harness.
EVALUATE = Extra("evaluate", "lm_eval")

# The extra that holds answers to the form of `response_format`.
STRUCTURED = Extra("inference", "llguidance")

# The extra that sends metrics to Weights & Biases.
WANDB_CLIENT = Extra(WANDB, "wandb")

# Nodes with it hold the limits of `resource_config.limits`.
LIMITS = "limits"

# Nodes with them hold the rates of disks of `resource_config.limits`: of reads, and of writes.
READ_LIMITS, WRITE_LIMITS = "limits:reads", "limits:writes"

# Nodes with it run jobs in a sandbox: with paths of `resource_config.mounts`, and as `resource_config.user`.
MOUNTS = "mounts"

# Nodes with it mount parts of volume claims, as directories that other jobs can't exchange.
CLAIM_PARTS = "mounts:parts"

# Nodes with it run scripts in images of `resource_config.image`.
IMAGES = "images"

# How well a node isolates jobs: with control groups, or with all but these. The first includes the other.
FULL, NAMESPACES = "sandbox:full", "sandbox:namespaces"

# Nodes with it give each attempt a host user of its own.
OWN_USER = "sandbox:uid"

# On nodes with it Landlock is a second lock around each attempt: what gets out of its sandbox finds every file closed.
LOCKED = "sandbox:locked"

# Jobs on one of these nodes have a network of their own; those on several nodes have none anywhere.
NETWORK = "sandbox:network"
NOT_ON_SEVERAL = (
    f"the job or its project requires {NETWORK}, and ranks on several nodes use the machines' network: ask for one "
    "node, and for roles that run beside each other (affinity)"
)

# On nodes with it ranks of several nodes, which use the machines' network, are reached by each other alone.
PEERS = "sandbox:peers"

# Nodes with it make package environments of `training_config.packages`, with the versions of Python that they name.
PACKAGES, PYTHON = "packages", "python:"

_CLAIM_SCHEME = "pvc://"

# What gives an ordinary user's worker control groups of version 2 (docs/reference/isolation.md).
OWN_SCOPE = "`systemd-run --user --scope -p Delegate=yes`"

# How an operator makes a node offer an implicit capability.
HOW_TO_OFFER = {
    LIMITS: f"resource_config.limits needs {LIMITS}, and a node offers it when its worker may make control groups: run "
    f"it as root, or in a scope of its own ({OWN_SCOPE})",
    READ_LIMITS: f"limits of reading need {READ_LIMITS}, and a node offers it when it offers {LIMITS} and its control "
    "groups throttle disks (controller io of version 2, blkio of version 1); set limits.required false to run without",
    WRITE_LIMITS: f"limits of writing need {WRITE_LIMITS}, and a node offers it when it offers {LIMITS} and has "
    "control groups of version 2 with the controller io; set limits.required false to run without",
    MOUNTS: f"resource_config.mounts, user and limits.shm_mb need {MOUNTS}, and a node offers it when its jobs run in "
    "a sandbox: remove TRAINYARD_NODE_SANDBOX=process there",
    CLAIM_PARTS: f"a mount of a part of a volume claim needs {CLAIM_PARTS}, and a node offers it when its worker may "
    "make namespaces: run it as root, or let its programs make them (kernel.apparmor_restrict_unprivileged_userns, "
    "user.max_user_namespaces), and start it again",
    PACKAGES: f"training_config.packages needs {PACKAGES}, and a node offers it when its worker finds uv and "
    "TRAINYARD_PACKAGES_ENABLED is not false: pip install 'trainyard[train]' there, and start the worker again",
    IMAGES: f"resource_config.image needs {IMAGES}, and a node offers it when its jobs run in a sandbox and its worker "
    "finds skopeo and umoci and may mount overlays: apt install skopeo umoci there",
    FULL: f"a node offers {FULL} when its jobs run in a sandbox and its worker may make control groups: run it as "
    f"root, or in a scope of its own ({OWN_SCOPE})",
    NAMESPACES: f"a node offers {NAMESPACES} when its jobs run in a sandbox: remove "
    "TRAINYARD_NODE_SANDBOX=process there",
    OWN_USER: f"a node offers {OWN_USER} when its worker is root, TRAINYARD_NODE_UIDS is not empty there, and its "
    "kernel and the file system of its data directory map files to other users: `trainyard doctor` there says which of "
    "these it lacks",
    LOCKED: f"a node offers {LOCKED} when its jobs run in a sandbox and its kernel has Landlock (Linux 6.2, with "
    "landlock switched on)",
    NETWORK: f"a node offers {NETWORK} when its jobs run in a sandbox with a network of their own: remove "
    "TRAINYARD_NODE_NETWORK=host and TRAINYARD_NODE_SANDBOX=process there",
    PEERS: f"a node offers {PEERS} when its attempts have users of their own ({OWN_USER}), its worker finds nft and "
    "may set rules with it, and TRAINYARD_NODE_NETWORK is not host there: `trainyard doctor` there says what it lacks",
    MPI: f"A node offers {MPI} when its worker finds mpirun: install Open MPI there",
    **{
        extra.name: f"{framework} needs it, and a node offers {extra.name} when its worker finds the library: "
        f"{extra.command} there, and start the worker again"
        for framework, extra in EXTRAS.items()
    },
    EXPORT.name: f"export_format {' and '.join(EXPORTED)} need it, and a node offers {EXPORT.name} when its worker "
    f"finds the library: {EXPORT.command} there, and start the worker again",
    EVALUATE.name: f"benchmarks {LM_EVAL}:TASK need it, and a node offers {EVALUATE.name} when its worker finds the "
    f"library: {EVALUATE.command} there, and start the worker again",
    STRUCTURED.name: f"task.response_format needs it, and a node offers {STRUCTURED.name} when its worker finds the "
    f"library: {STRUCTURED.command} there, and start the worker again",
    WANDB_CLIENT.name: f"tracking of kind {WANDB} needs it, and a node offers {WANDB_CLIENT.name} when its jobs run in "
    f"a sandbox and its worker finds the client: {WANDB_CLIENT.command} there, and start the worker again",
}


def how_to_offer(word: str) -> str:
    """How an operator makes a node offer an implicit capability; empty for others."""
    if word.startswith(PYTHON):
        version = word.removeprefix(PYTHON)
        return (
            f"training_config.packages.python needs {word}, and a node offers it when its worker finds python{version} "
            "in /usr/bin, /usr/local/bin or below a directory of TRAINYARD_NODE_SOFTWARE: install it there with its "
            "venv module, writable for its owner alone, or name a version that is offered"
        )
    return HOW_TO_OFFER.get(word, "")


def needed(document: JobDocument) -> frozenset[str]:
    """The capabilities that a job document implies."""
    framework = document.training_config.framework.type
    words = {EXTRAS[framework].name} if framework in EXTRAS else set[str]()
    if document.inference is not None:
        words |= {*_of_inference(document.inference)}
    if document.output_config.export_format in EXPORTED:
        words.add(EXPORT.name)
    if any(tracker.kind == WANDB and not tracker.is_offline for tracker in document.tracking):
        words.add(WANDB_CLIENT.name)
    resources = document.resource_config
    if resources.limits.need_control_groups and resources.limits.required:
        words.add(LIMITS)
    if resources.limits.required:
        words |= {READ_LIMITS} if resources.limits.bind_reads else set()
        words |= {WRITE_LIMITS} if resources.limits.bind_writes else set()
    if _needs_sandbox(resources):
        words.add(MOUNTS)
    if _mounts_claim_parts(document):
        words.add(CLAIM_PARTS)
    if resources.image.reference:
        words.add(IMAGES)
    packages = document.training_config.packages
    if packages is not None and packages.are_certain:
        words |= {PACKAGES, *([f"{PYTHON}{packages.python}"] if packages.python else [])}
    return frozenset(words | ({MPI} if launcher(document) == MPI else set()))


def _of_inference(inference: Inference) -> Iterator[str]:
    if inference.model.divided == DEEPSPEED:
        yield EXTRAS[DEEPSPEED].name  # its classes are pickled in the parts of a checkpoint
    if any(each.name.partition(":")[0] == LM_EVAL for each in inference.benchmarks):
        yield EVALUATE.name
    if inference.task.response_format:
        yield STRUCTURED.name


def _mounts_claim_parts(document: JobDocument) -> bool:
    """Inputs in a claim are parts of it, wherever they are mounted."""
    training, sources = document.training_config, document.data_config.sources

    def is_part(mount: Mount) -> bool:
        if mount.type == CLAIM:
            return bool(mount.sub_path)
        inputs: dict[str, list[str | None]] = {
            DATA: [source.path for source in sources],
            MODEL: [training.base_model.model_id],
            CODE: [training.framework.custom_code_dir, training.framework.custom_script_path],
        }
        return any((path or "").startswith(_CLAIM_SCHEME) for path in inputs.get(mount.type, ()))

    return any(mount.required and is_part(mount) for mount in document.resource_config.mounts)


def _needs_sandbox(resources: ResourceConfig) -> bool:
    user, limits = resources.user, resources.limits
    return bool(
        any(mount.required for mount in resources.mounts)
        or (limits.shm_mb and limits.required)
        or ((user.uid is not None or user.gid is not None) and user.required)
    )
