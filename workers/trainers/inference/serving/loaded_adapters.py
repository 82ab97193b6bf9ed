"""Adapters inside the served model: loaded when asked for, the least recently used one makes room."""

import gc
import json
import warnings
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, PeftConfig, PeftModel
from peft.tuners.tuners_utils import BaseTunerLayer
from safetensors import SafetensorError, safe_open
from transformers import PreTrainedModel

from workers.rank.run_context import AdapterNotLoaded
from workers.trainers.failures import is_out_of_memory
from workers.trainers.inference.engine.loading import ADAPTER_WEIGHTS

# Configurations by which peft would change weights of the model itself, for all adapters of it.
_KEEPS_THE_MODEL = (True, False, "gaussian", "orthogonal", "eva")  # LoraConfig.init_lora_weights
_ADDED = ("lora_", "trainable_tokens_")  # in names of weights
_PREFIX = "base_model.model."
_BAD_FILES = (KeyError, OSError, RuntimeError, SafetensorError, TypeError, ValueError, json.JSONDecodeError)


class LoadedAdapters:
    """At most ``most`` adapters of rank ``max_rank`` or lower, of which one, or none, takes part in the steps.

    The model is changed in place: layers of peft stand where an adapter has changed some.
    """

    def __init__(self, model: PreTrainedModel, *, most: int, max_rank: int) -> None:
        self._model: Any = model
        self._most = most
        self._max_rank = max_rank
        self._is_adapter = bool(getattr(model, "peft_config", None))
        self._peft: Any = None  # PeftModel, from the first adapter on
        self._used: dict[str, str] = {}  # names as peft has them, by ours; the last one used at the end
        self._count = 0
        self._active: str | None = None

    def __contains__(self, name: str) -> bool:
        return name in self._used

    def __len__(self) -> int:
        return len(self._used)

    def has_room(self, in_use: Collection[str]) -> bool:
        """Whether another adapter can be loaded while these are needed."""
        return len(self._used) < self._most or any(name not in in_use for name in self._used)

    def load(self, name: str, directory: Path, in_use: Collection[str]) -> None:
        """Add the adapter, in the place of another one if it has to be. Raises AdapterNotLoaded."""
        config = self._checked(directory)
        unused = [each for each in self._used if each not in in_use]
        while len(self._used) >= self._most:
            self._unload(unused.pop(0))
        own = self._added(directory, config)
        if own is None:
            for each in unused:
                self._unload(each)
            own = self._added(directory, config)
        if own is None:
            raise AdapterNotLoaded(
                "the memory has no room for the adapter beside the model and the adapters in use; ask again later, or "
                "lower adapters.max_loaded"
            )
        self._used[name] = own

    def _added(self, directory: Path, config: LoraConfig) -> str | None:
        """The name of the new adapter; None: there was no memory for it. Raises AdapterNotLoaded."""
        # Names of modules have no dots, and peft finds an adapter's weights by its name's occurrence in theirs.
        own, self._count = f"served{self._count}adapter", self._count + 1
        try:
            with torch.inference_mode(mode=False):
                self._add(own, directory, config)
        except (*_BAD_FILES, MemoryError) as error:
            self._forget(own)
            if not is_out_of_memory(error):
                raise AdapterNotLoaded(f"the adapter does not fit the model: {_first_line(error)}") from error
        else:
            return own
        finally:
            self.use(self._active)  # peft lets the first one take part at once
        gc.collect()  # the error holds tensors of the adapter no more
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        return None

    @contextmanager
    def instead(self, name: str | None = None) -> Iterator[None]:
        """This adapter, or the model itself, for something between two steps."""
        active = self._active
        self.use(name)
        try:
            yield
        finally:
            self.use(active)

    def use(self, name: str | None) -> None:
        """Let this adapter take part in the steps from now on; None: the model itself."""
        self._active = name
        if self._peft is None:
            return
        with torch.inference_mode(mode=False):
            if name is None:
                self._peft.base_model.disable_adapter_layers()
                return
            self._peft.base_model.enable_adapter_layers()
            self._used[name] = own = self._used.pop(name)
            self._peft.set_adapter(own, inference_mode=True)

    def check_takes_any(self) -> None:
        """Raises AdapterNotLoaded where none can ever be loaded."""
        if self._is_adapter:
            raise AdapterNotLoaded(
                "the service's model is an adapter itself, and takes no others; serve its base model"
            )
        if not self._most:
            raise AdapterNotLoaded("this service loads no adapters; set adapters.max_loaded")

    def _checked(self, directory: Path) -> LoraConfig:
        try:
            config = PeftConfig.from_pretrained(str(directory))
        except _BAD_FILES as error:
            raise AdapterNotLoaded(f"the adapter's configuration can't be read: {_first_line(error)}") from error
        if not isinstance(config, LoraConfig):
            raise AdapterNotLoaded(f"adapters of type {config.peft_type} are not served; LORA is")
        rank = max([config.r, *(config.rank_pattern or {}).values()])
        if rank > self._max_rank:
            raise AdapterNotLoaded(
                f"the adapter has rank {rank}, the service's adapters.max_rank is {self._max_rank}; raise it"
            )
        with self.instead():
            changes = self._changes_model(directory, config)
        if changes:
            raise AdapterNotLoaded("the adapter changes weights of the model itself; serve it as a model of its own")
        return config

    def _changes_model(self, directory: Path, config: LoraConfig) -> bool:
        """Whether its weights would become the model's, for all other adapters too."""
        if config.bias != "none" or config.layer_replication or config.init_lora_weights not in _KEEPS_THE_MODEL:
            return True
        copied = tuple(config.modules_to_save or ())  # each adapter has its own of these
        try:
            with safe_open(directory / ADAPTER_WEIGHTS, framework="pt") as file:
                own = [key for key in file.keys() if not any(mark in key for mark in _ADDED)]  # noqa: SIM118  (no dict)
                return any(
                    not path.endswith(copied) and self._differs(path, name, file.get_tensor(key))
                    for key in own
                    for path, _, name in [key.removeprefix(_PREFIX).replace(".base_layer", "").rpartition(".")]
                )
        except _BAD_FILES as error:
            raise AdapterNotLoaded(f"the adapter's weights can't be read: {_first_line(error)}") from error

    def _differs(self, path: str, name: str, weight: torch.Tensor) -> bool:
        """Embeddings are often stored with an adapter that has not changed them."""
        try:
            found = getattr(self._model.get_submodule(path), name)
        except AttributeError:
            return False  # it has no counterpart, which is found out when it is loaded
        return found.shape != weight.shape or not torch.equal(found.cpu(), weight.to(found.dtype))

    def _add(self, own: str, directory: Path, config: LoraConfig) -> None:
        config.inference_mode = True
        if self._peft is None:
            self._peft = PeftModel(self._model, config, adapter_name=own)
        else:
            self._peft.add_adapter(own, config)
        found = self._peft.load_adapter(str(directory), adapter_name=own)
        if wrong := sorted([*found.missing_keys, *found.unexpected_keys]):
            raise ValueError(f"{len(wrong)} of its weights have no counterpart, {wrong[0]} among them")
        self._model.requires_grad_(False)
        self._peft.train(mode=False)

    def _unload(self, name: str) -> None:
        if self._active == name:
            self.use(None)
        self._forget(self._used.pop(name))

    def _forget(self, own: str) -> None:
        if self._peft is None:
            _restore(self._model)
            return
        with suppress(*_BAD_FILES), torch.inference_mode(mode=False), warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # peft says which one takes part instead; `use` decides it
            if own in self._peft.peft_config:
                self._peft.delete_adapter(own)
            for module in list(self._model.modules()):  # where it was added before it failed
                if isinstance(module, BaseTunerLayer):
                    module.delete_adapter(own)


def _restore(model: PreTrainedModel) -> None:
    """Undo what peft has changed before it failed."""
    for name, module in list(model.named_modules()):
        if isinstance(module, BaseTunerLayer):
            parent, _, own = name.rpartition(".")
            setattr(model.get_submodule(parent), own, module.get_base_layer())
    if hasattr(model, "peft_config"):
        del model.peft_config


def _first_line(error: Exception) -> str:
    lines = str(error).splitlines()
    return " ".join(each.strip() for each in lines[:2]) if lines else type(error).__name__
