"""The weights that a training changes: how they are sent to a rollout, and how that takes them over."""

import hashlib
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import nn

from workers.trainers.failures import TrainingFailure
from workers.trainers.rollouts.wire import Wire, WireClosed

_DTYPES = {str(each).removeprefix("torch."): each for each in (torch.float32, torch.bfloat16, torch.float16)}


class OtherModel(TrainingFailure):
    """Training and rollout have not loaded the same model."""

    error_type = "INVALID_CONFIG"


class Weights:
    """All trained parameters as they are now. ``version`` names them: the same name, the same weights.

    Buffers are not sent: no step changes one of a language model. The others are the base model's on both sides, which
    a digest proves.
    """

    def __init__(
        self,
        version: str,
        model: nn.Module,
        digests: dict[str, str] | None = None,
        *,
        gathered: Mapping[str, torch.Tensor] | None = None,
    ) -> None:
        """``digests``: of what is not trained, by dtype; they are kept there for the next weights of this model.

        ``gathered``: the trained parameters, on the CPU, of a model that is divided among ranks; the digests are then
        complete.
        """
        self.version = version
        self._model = model
        self._is_divided = gathered is not None
        self._trained: Mapping[str, torch.Tensor] = trained(model) if gathered is None else gathered
        self._lock = threading.Lock()
        self._copies: dict[str, list[torch.Tensor]] = {}
        self._digests: dict[str, str] = {} if digests is None else digests

    def describe(self, wire: Wire, dtype: str) -> None:
        """Say what `send` would send in ``dtype``, "" as they are. Raises OSError."""
        names, tensors = self._trained, self._copied(dtype)
        described = [
            {"name": name, "dtype": _name_of(each.dtype), "shape": list(each.shape)}
            for name, each in zip(names, tensors, strict=True)
        ]
        wire.send({"tensors": described, "frozen": self._frozen(dtype)})

    def send(self, wire: Wire, dtype: str) -> int:
        """The number of bytes. Raises OSError."""
        buffers = [as_bytes(each) for each in self._copied(dtype)]
        wire.send({}, buffers)
        return sum(map(len, buffers))

    def drop_copies(self) -> None:
        """Free what was copied to be sent; it is copied again when another rollout lacks it. Not while one is sent."""
        with self._lock:
            self._copies.clear()

    def _copied(self, dtype: str) -> list[torch.Tensor]:
        """Copied once for all rollouts; on a CPU they are sent from where they are."""
        with self._lock:
            if dtype not in self._copies:
                self._copies[dtype] = [_on_host(each, dtype) for each in self._trained.values()]
            return self._copies[dtype]

    def _frozen(self, dtype: str) -> str:
        with self._lock:
            if dtype not in self._digests and self._is_divided:
                if self._digests and not any(self._digests.values()):
                    return ""  # nothing is frozen, whatever a rollout computes with
                raise OtherModel(
                    f"a rollout computes with other weights ({dtype or 'of the CPU'}) than the training: give the "
                    "role that trains and the rollouts devices of one kind, GPUs or CPU slots"
                )
            if dtype not in self._digests:
                self._digests[dtype] = frozen_digest(self._model, dtype)
            return self._digests[dtype]


def trained(model: nn.Module) -> dict[str, nn.Parameter]:
    return {name: each for name, each in model.named_parameters() if each.requires_grad}


def frozen_digest(
    model: nn.Module, dtype: str, *, whole: Callable[[nn.Parameter], AbstractContextManager[object]] = nullcontext
) -> str:
    """Of all parameters that are not trained; "": there are none. ``whole``: within it a parameter is no part."""
    digest, any_of_them = hashlib.sha256(), False
    for name, each in model.named_parameters():
        if each.requires_grad:
            continue
        any_of_them = True
        digest.update(name.encode())
        with whole(each):
            digest.update(as_bytes(_on_host(each, dtype)))
    return digest.hexdigest() if any_of_them else ""


def _on_host(parameter: torch.Tensor, dtype: str) -> torch.Tensor:
    found = parameter.detach()
    return (found.to(_DTYPES[dtype]) if dtype else found).cpu().contiguous()


def as_bytes(tensor: torch.Tensor) -> memoryview:
    """The memory of a contiguous tensor on the CPU."""
    found: Any = tensor.reshape(-1).view(torch.uint8).numpy()
    return memoryview(found)


def check(header: Mapping[str, Any], model: nn.Module, frozen: str) -> list[str]:
    """The dtypes of weights as `Weights.describe` sends them to the model, whose own digest is ``frozen``.

    Raises OtherModel.
    """
    dtypes = _checked(header, trained(model))
    if header["frozen"] != frozen:
        raise OtherModel(
            "the weights that are not trained differ between the training and this rollout: they have loaded different "
            "files; give base_model the same files on all nodes"
        )
    return dtypes


def take(wire: Wire, model: nn.Module, dtypes: Sequence[str]) -> None:
    """Read what `Weights.send` sends into the model. Raises OSError when a part of it may be changed."""
    own = trained(model)
    _, size = wire.receive()
    expected = sum(each.numel() * _DTYPES[dtype].itemsize for each, dtype in zip(own.values(), dtypes, strict=True))
    if size != expected:
        raise WireClosed(f"{size} bytes of weights; these parameters have {expected}")
    for dtype, parameter in zip(dtypes, own.values(), strict=True):
        data = parameter.detach()
        if data.device.type == "cpu" and data.is_contiguous() and dtype == _name_of(data.dtype):
            wire.read_into(as_bytes(data))
            continue
        held = torch.empty(data.shape, dtype=_DTYPES[dtype])
        wire.read_into(as_bytes(held))
        data.copy_(held)


def _checked(header: Mapping[str, Any], own: Mapping[str, nn.Parameter]) -> list[str]:
    sent = {each["name"]: tuple(each["shape"]) for each in header["tensors"]}
    known = {name: tuple(each.shape) for name, each in own.items()}
    if list(sent.items()) != list(known.items()):
        different = sorted(name for name, _ in {*sent.items()} ^ {*known.items()})
        named = f"such as {different[0]}" if different else "in another order"
        raise OtherModel(f"training and rollout have different parameters, {named}")
    dtypes = [each["dtype"] for each in header["tensors"]]
    if not set(dtypes) <= _DTYPES.keys():
        raise OtherModel(f"weights of an unknown dtype: {', '.join(sorted({*dtypes} - _DTYPES.keys()))}")
    return dtypes


def _name_of(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def dtype_of_weights(model: nn.Module) -> str:
    """In which weights are to be sent to this model: on a GPU in what it computes in, else as they are."""
    first = next(iter(trained(model).values()))
    return _name_of(first.dtype) if first.device.type == "cuda" else ""
