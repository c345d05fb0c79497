"""From tensors by name to a model, through transformers' own loader.

`from_pretrained(None, config=…, state_dict=…)` takes tensors that are already in memory. It assigns those whose dtype
fits without a copy, so the parameters of the model are views of the arena; tied weights, renamed and fused weights,
buffers that no file holds, and the report of missing and unexpected keys are its own, in every release that we accept.
"""

import contextlib
import gc
import json
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from huggingface_hub.errors import StrictDataclassError
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM
from transformers import logging as transformers_logging

from vramscope.anatomy.config import FILE_NAME, ModelConfig
from vramscope.errors import SourceError, StepError, reason_of

NAMES_SHOWN = 3
# What transformers and its model classes raise about a config that they cannot use.
REFUSALS = (
    ValueError,
    OSError,
    LookupError,
    TypeError,
    AttributeError,
    ImportError,
    RuntimeError,
    ArithmeticError,
    AssertionError,
    StrictDataclassError,
)


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """A model's class and its transformers config, not built yet."""

    model_class: Any
    config: Any

    @property
    def name(self) -> str:
        return str(self.model_class.__name__)


def quiet_transformers() -> None:
    """Turn off transformers' bars and its loading report: progress and problems are told by our own events."""
    transformers_logging.disable_progress_bar()
    transformers_logging.set_verbosity_error()


@contextlib.contextmanager
def paused_collection() -> Iterator[None]:
    """No garbage collection inside: thousands of new modules would trigger full collections of all that is imported."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def find_architecture(directory: Path, facts: Mapping[str, Any]) -> Architecture:
    """The model's class by the `architectures` of a directory's config.json, whose contents are `facts`.

    The directory may be one that is still to be written. Importing the class may take seconds, once per process. Code
    that comes with a checkpoint is never run. Raises SourceError for a model that transformers does not have.
    """
    if ModelConfig.of(facts).quantization == "mlx":
        raise SourceError(
            f"{directory / FILE_NAME}: the weights are packed by MLX, which transformers does not load",
            hint="take the checkpoint that they were made from",
        )
    try:
        with _with_config(directory, facts) as home:
            config = AutoConfig.from_pretrained(str(home), local_files_only=True, trust_remote_code=False)
    except REFUSALS as error:
        raise SourceError(
            f"{directory / 'config.json'}: transformers {transformers.__version__} cannot use it: {reason_of(error)}",
            hint="a newer transformers, or a model that needs its own code (which vramscope does not run)",
        ) from None
    named = ModelConfig.of(facts).architecture
    model_class = getattr(transformers, named, None) if named.isidentifier() else None
    if _is_model_of(model_class, config):
        return Architecture(model_class=model_class, config=config)
    try:
        return Architecture(model_class=AutoModelForCausalLM._model_mapping[type(config)], config=config)  # noqa: SLF001
    except KeyError:
        raise SourceError(
            f"{directory / 'config.json'}: transformers {transformers.__version__} has no model class for "
            f"architectures {named or 'unset'!r} and model_type {config.model_type!r}"
        ) from None


@contextlib.contextmanager
def _with_config(directory: Path, facts: Mapping[str, Any]) -> Iterator[Path]:
    """The directory, or, while it is not there, another one with the config that it will have."""
    if directory.is_dir():
        yield directory
        return
    with tempfile.TemporaryDirectory() as made:
        (Path(made) / FILE_NAME).write_text(json.dumps(facts))
        yield Path(made)


def _is_model_of(candidate: Any, config: Any) -> bool:
    if not (isinstance(candidate, type) and issubclass(candidate, transformers.PreTrainedModel)):
        return False
    config_class = getattr(candidate, "config_class", None)
    return config_class is not None and isinstance(config, config_class)


def assemble(
    architecture: Architecture, weights: dict[str, torch.Tensor], dtype: torch.dtype
) -> tuple[nn.Module, tuple[str, ...]]:
    """Return the model over `weights`, in evaluation mode, and the names that the files have and the model has not.

    Raises StepError when the model has parameters that the files lack: they would hold random numbers.
    """
    try:
        with warnings.catch_warnings(), paused_collection():
            warnings.simplefilter("ignore")
            model, report = architecture.model_class.from_pretrained(
                None,
                config=architecture.config,
                state_dict=weights,
                dtype=dtype,
                output_loading_info=True,
                ignore_mismatched_sizes=True,  # they are refused below, by name
            )
    except REFUSALS as error:
        raise StepError(f"{architecture.name}: transformers cannot build it: {reason_of(error)}") from None
    _refuse_incomplete(architecture, report)
    model.requires_grad_(requires_grad=False)
    return model.eval(), tuple(sorted(report["unexpected_keys"]))


def _refuse_incomplete(architecture: Architecture, report: dict[str, Any]) -> None:
    if mismatched := sorted(str(key[0]) for key in report["mismatched_keys"]):
        raise StepError(
            f"{architecture.name}: {len(mismatched)} parameter(s) have another shape than config.json says: "
            f"{_some(mismatched)}"
        )
    if missing := sorted(report["missing_keys"]):
        raise StepError(
            f"{architecture.name}: {len(missing)} parameter(s) are not in the checkpoint: {_some(missing)}",
            hint="they would be random numbers; the checkpoint is incomplete or belongs to another model",
        )
    if messages := list(report.get("error_msgs", ())):
        raise StepError(f"{architecture.name}: {messages[0]}")


def _some(names: list[str]) -> str:
    rest = len(names) - NAMES_SHOWN
    return ", ".join(repr(name) for name in names[:NAMES_SHOWN]) + (f" and {rest} more" if rest > 0 else "")
