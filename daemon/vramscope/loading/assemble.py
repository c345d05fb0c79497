"""From tensors by name to a model, through transformers' own loader.

`from_pretrained(None, config=…, state_dict=…)` takes tensors that are already in memory. It assigns those whose dtype
fits without a copy, so the parameters of the model are views of the arena; tied weights, renamed and fused weights,
buffers that no file holds, and the report of missing and unexpected keys are its own, in every release that we accept.
"""

import contextlib
import gc
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
import transformers
from huggingface_hub.errors import StrictDataclassError
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM
from transformers import logging as transformers_logging
from transformers.initialization import no_init_weights

from vramscope.anatomy.config import ModelConfig
from vramscope.anatomy.source import Checkpoint
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


def find_architecture(checkpoint: Checkpoint) -> Architecture:
    """The model's class by config.json's `architectures`; importing it may take seconds, once per process.

    Code that comes with a checkpoint is never run. Raises SourceError for a model that transformers does not have.
    """
    try:
        config = AutoConfig.from_pretrained(str(checkpoint.directory), local_files_only=True, trust_remote_code=False)
    except REFUSALS as error:
        raise SourceError(
            f"{checkpoint.directory / 'config.json'}: transformers {transformers.__version__} cannot use it: "
            f"{reason_of(error)}",
            hint="a newer transformers, or a model that needs its own code (which vramscope does not run)",
        ) from None
    named = ModelConfig.of(checkpoint.config).architecture
    model_class = getattr(transformers, named, None) if named.isidentifier() else None
    if _is_model_of(model_class, config):
        return Architecture(model_class=model_class, config=config)
    try:
        return Architecture(model_class=AutoModelForCausalLM._model_mapping[type(config)], config=config)  # noqa: SLF001
    except KeyError:
        raise SourceError(
            f"{checkpoint.directory / 'config.json'}: transformers {transformers.__version__} has no model class for "
            f"architectures {named or 'unset'!r} and model_type {config.model_type!r}"
        ) from None


def _is_model_of(candidate: Any, config: Any) -> bool:
    if not (isinstance(candidate, type) and issubclass(candidate, transformers.PreTrainedModel)):
        return False
    config_class = getattr(candidate, "config_class", None)
    return config_class is not None and isinstance(config, config_class)


def float32_patterns(architecture: Architecture) -> frozenset[str]:
    """Parts of parameter names that transformers keeps in float32; their conversion is left to transformers.

    Raises SourceError for a config of which no model can be built.
    """
    try:
        with torch.device("meta"), no_init_weights(), paused_collection():
            skeleton = architecture.model_class(architecture.config)
    except REFUSALS as error:
        raise SourceError(f"config.json: {architecture.name} cannot be built from it: {reason_of(error)}") from None
    kept = set(getattr(skeleton, "_keep_in_fp32_modules", None) or ())
    return frozenset(kept | set(getattr(skeleton, "_keep_in_fp32_modules_strict", None) or ()))


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
