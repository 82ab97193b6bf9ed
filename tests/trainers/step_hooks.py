"""What a test puts into a training: notes which records came, lets memory run out, writes slowly, saves twice."""

import errno
import hashlib
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

Inputs = dict[str, Any]


@contextmanager
def recorded_rows(path: Path) -> Iterator[None]:
    """For each forward pass a line in `path`: the step it belongs to, and a digest of each record's tokens."""

    def note(trainer: Any, inputs: Inputs) -> None:
        rows = [ids[mask.bool()] for ids, mask in zip(inputs["input_ids"], inputs["attention_mask"], strict=True)]
        digests = [hashlib.sha256(str(row.tolist()).encode()).hexdigest()[:16] for row in rows]
        with path.open("a") as file:
            file.write(json.dumps({"step": trainer.state.global_step + 1, "rows": digests}) + "\n")

    with _before_each_pass(note):
        yield


@contextmanager
def variables(environment: Mapping[str, str]) -> Iterator[None]:
    """What the platform gives a rank, in a process that makes the runs of others, too."""
    os.environ.update(environment)
    try:
        yield
    finally:
        for name in environment:
            del os.environ[name]


@contextmanager
def limited_memory(largest_batch: int) -> Iterator[None]:
    """A device on which no larger batch fits."""
    import torch  # noqa: PLC0415  as in exact_runs

    def check(_: Any, inputs: Inputs) -> None:
        if len(inputs["input_ids"]) > largest_batch:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")

    with _before_each_pass(check):
        yield


@contextmanager
def slow_passes(seconds: float) -> Iterator[None]:
    """A device that is slower than the others."""
    with _before_each_pass(lambda *_: time.sleep(seconds)):
        yield


@contextmanager
def slow_writing() -> Iterator[None]:
    """A disk so slow that the training makes another step before anything of a checkpoint is written."""
    from workers.trainers.hf_trainer.checkpoints.async_save import HostCheckpointSaver  # noqa: PLC0415

    def write(original: Any, saving: Any, trainer: Any, taken: Any, *arguments: Any) -> None:
        step = json.loads(taken.state)["global_step"]
        while trainer.state.global_step == step < trainer.state.max_steps:
            time.sleep(0.01)
        original(saving, trainer, taken, *arguments)

    with _around(HostCheckpointSaver, "_write", write):
        yield


@contextmanager
def recorded_parts(path: Path) -> Iterator[None]:
    """The shapes of what this rank has of a model that Megatron divides, by name."""
    from workers.trainers.megatron.loop import MegatronLoop  # noqa: PLC0415

    def train(original: Any, loop: Any, *arguments: Any, **named: Any) -> None:
        shapes = {name: list(tensor.shape) for name, tensor in loop.module.named_parameters()}
        path.write_text(json.dumps(shapes))
        original(loop, *arguments, **named)

    with _around(MegatronLoop, "train", train):
        yield


@contextmanager
def recorded_shards(path: Path) -> Iterator[None]:
    """Write down of each parameter that is trained how many numbers it has, and how many of them are here."""
    from torch.distributed.tensor import DTensor  # noqa: PLC0415

    def note(trainer: Any, _: Inputs) -> None:
        if not path.exists():
            trained = {name: p for name, p in trainer.model.named_parameters() if p.requires_grad}
            path.write_text(json.dumps({name: _numbers(p, DTensor) for name, p in trained.items()}))

    with _before_each_pass(note):
        yield


@contextmanager
def no_memory_for_copies() -> Iterator[None]:
    """A rank that has none says so; the first one has."""
    from workers.trainers.hf_trainer.checkpoints.host_copy import HostCopy  # noqa: PLC0415

    def fits(original: Any, copy: Any, value: Any) -> bool:
        return os.environ["RANK"] == "0" and bool(original(copy, value))

    with _around(HostCopy, "fits", fits):
        yield


@contextmanager
def recorded_reference(path: Path) -> Iterator[None]:
    """As `recorded_shards`, of the model that the trained one is compared with."""
    from torch.distributed.tensor import DTensor  # noqa: PLC0415

    def note(trainer: Any, _: Inputs) -> None:
        if not path.exists():
            parameters = trainer.ref_model.named_parameters()
            path.write_text(json.dumps({name: _numbers(p, DTensor) for name, p in parameters}))

    with _before_each_pass(note):
        yield


@contextmanager
def uneven_completions(path: Path) -> Iterator[None]:
    """Completions of a rank end after rank + 1 tokens; `path` gets the number of checks for the end of each."""
    from transformers import GenerationMixin  # noqa: PLC0415

    rank = int(os.environ["RANK"])
    made: list[int] = []

    def look(original: Any, model: Any, this_peer_finished: bool, synced_gpus: bool, device: Any) -> bool:  # noqa: FBT001
        made[-1] += 1
        ended = this_peer_finished or made[-1] > rank + 1
        goes_on: bool = original(model, ended, synced_gpus, device)
        path.write_text(json.dumps(made))
        return goes_on

    def generate(original: Any, *arguments: Any, **named: Any) -> Any:
        made.append(0)
        return original(*arguments, **named)

    with _around(GenerationMixin, "_has_unfinished_sequences", look), _around(GenerationMixin, "generate", generate):
        yield


@contextmanager
def unwritten_shards(steps: Iterable[int]) -> Iterator[None]:
    """A disk that is full when this rank's part of one of these checkpoints is written."""
    import torch  # noqa: PLC0415
    from torch.distributed.checkpoint.filesystem import FileSystemWriter  # noqa: PLC0415

    names = {f"checkpoint-{step}" for step in steps}

    def write(original: Any, writer: Any, *arguments: Any) -> Any:
        if names & set(Path(writer.path).parts):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return original(writer, *arguments)

    def save(original: Any, value: Any, path: Any, *arguments: Any, **named: Any) -> None:
        if names & set(Path(str(path)).parts) and "optim_states" in str(path):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        original(value, path, *arguments, **named)

    with _around(FileSystemWriter, "write_data", write), _around(torch, "save", save):
        yield


@contextmanager
def slow_shards() -> Iterator[None]:
    """As `slow_writing`, of Megatron's checkpoints."""
    from workers.trainers.megatron.loop import MegatronLoop  # noqa: PLC0415
    from workers.trainers.megatron.saving import MegatronCheckpointSaver  # noqa: PLC0415

    made: list[int] = []

    def step(original: Any, loop: Any, share: Any) -> None:
        original(loop, share)
        made.append(loop.state.max_steps - loop.state.global_step)

    def write(original: Any, *arguments: Any) -> None:
        left = made[-1]
        while left == made[-1] > 0:
            time.sleep(0.01)
        original(*arguments)

    with _around(MegatronLoop, "_step", step), _around(MegatronCheckpointSaver, "_write_shards", write):
        yield


@contextmanager
def command_within(step: int, command: Callable[[], None], *, before_pass: int = 2) -> Iterator[None]:
    """Issue a command in the middle of a step: between its forward passes, if it has several; before the first one
    there are no completions.
    """
    passes: list[int] = []

    def look(trainer: Any, _: Inputs) -> None:
        if trainer.state.global_step + 1 == step:
            passes.append(step)
            if len(passes) == min(before_pass, trainer.current_gradient_accumulation_steps):
                command()

    with _before_each_pass(look):
        yield


@contextmanager
def command_in_evaluation(command: Callable[[], None]) -> Iterator[None]:
    """Issue a command when the first evaluation begins."""
    from transformers import Trainer  # noqa: PLC0415

    begun: list[int] = []

    def evaluate(original: Any, trainer: Any, *arguments: Any, **named: Any) -> Any:
        begun.append(trainer.state.global_step)
        if len(begun) == 1:
            command()
        return original(trainer, *arguments, **named)

    with _around(Trainer, "evaluate", evaluate):
        yield


@contextmanager
def saved_by_transformers(directory: Path) -> Iterator[None]:
    """Each checkpoint once more into `directory`, by transformers' own trainer."""
    from transformers import Trainer  # noqa: PLC0415

    from workers.trainers.distributed import wait_for_all  # noqa: PLC0415
    from workers.trainers.hf_trainer.loop.trl_trainer import TrlTrainer  # noqa: PLC0415

    def save(original: Any, trainer: Any, *arguments: Any) -> None:
        output_dir, trainer.args.output_dir = trainer.args.output_dir, str(directory)
        Trainer._save_checkpoint(trainer, *arguments)
        trainer.args.output_dir = output_dir
        wait_for_all()
        original(trainer, *arguments)

    with _around(TrlTrainer, "_save_checkpoint", save):
        yield


@contextmanager
def _before_each_pass(look: Callable[[Any, Inputs], None]) -> Iterator[None]:
    from transformers import Trainer  # noqa: PLC0415

    def training_step(original: Any, trainer: Any, model: Any, inputs: Inputs, *rest: Any) -> Any:
        look(trainer, inputs)
        return original(trainer, model, inputs, *rest)

    with _around(Trainer, "training_step", training_step):
        yield


@contextmanager
def _around(owner: Any, name: str, instead: Callable[..., Any]) -> Iterator[None]:
    """Call `instead` with the original method and its arguments."""
    original = getattr(owner, name)
    setattr(owner, name, lambda *arguments, **named: instead(original, *arguments, **named))
    try:
        yield
    finally:
        setattr(owner, name, original)


def _numbers(parameter: Any, sharded: Any) -> list[int]:
    """How many a parameter has, and how many of them are here; DeepSpeed keeps those apart from the parameter."""
    if hasattr(parameter, "ds_tensor"):
        return [parameter.ds_numel, parameter.ds_tensor.numel()]
    return [parameter.numel(), (parameter.to_local() if isinstance(parameter, sharded) else parameter).numel()]
