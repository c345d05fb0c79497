"""`vramscope inspect SOURCE`: what a model consists of, from headers, config and file names; no weight is read."""

import argparse
import json
import os
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from vramscope.anatomy.census import LayerRun, Share, Stored
from vramscope.anatomy.config import ModelConfig
from vramscope.anatomy.findings import Problem
from vramscope.anatomy.inspection import Inspection, Wanted, estimates, inspect
from vramscope.cli._output import terminal
from vramscope.errors import ExitCode, SourceError
from vramscope.settings import default_cache, default_hub_cache

HELP = "say what a model consists of, without loading it"
_LISTED = 100  # names that are listed of what a checkpoint lacks or has too much


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what `inspect` takes."""
    parser.add_argument(
        "source",
        metavar="SOURCE",
        help="a directory, a .safetensors file, ORG/NAME in the hub cache, or synthetic:NAME",
    )
    parser.add_argument("--revision", default="main", help="of a model of the hub (default: main)")
    parser.add_argument(
        "--dtype",
        choices=("auto", "float32", "float16", "bfloat16"),
        default="auto",
        help="in which the model would be loaded; auto follows the checkpoint (default: auto)",
    )
    parser.add_argument(
        "--from-config", action="store_true", help="look at config.json alone; the weights need not be there"
    )
    parser.add_argument("--format", choices=("text", "json"), default="text", help="default: text")


def run(arguments: argparse.Namespace) -> int:
    """Print the facts; exit code 1 if the model cannot be loaded."""
    wanted = Wanted(
        source=arguments.source,
        revision=arguments.revision,
        dtype=arguments.dtype,
        from_config=arguments.from_config,
    )
    is_json = arguments.format == "json"
    try:
        found = inspect(wanted, default_cache(os.environ), default_hub_cache(os.environ))
    except SourceError as error:
        if not is_json:
            raise
        problem = Problem.of(wanted.source, error)
        found = Inspection(source=wanted.source, directory=Path(wanted.source), problems=(problem,))
    if is_json:
        sys.stdout.write(json.dumps(as_json(found), indent=2) + "\n")
    else:
        from vramscope.report.inspection import print_inspection  # noqa: PLC0415 - JSON needs no tables

        print_inspection(found, terminal(os.environ))
    return ExitCode.USER if found.problems else ExitCode.OK


def as_json(found: Inspection) -> dict[str, Any]:
    """The facts as plain values. Sizes in bytes; null is unknown, and so is what an empty object leaves out."""
    whole = found.whole or Share(parameters=None, nbytes=None)
    method = found.logical.method if found.logical else found.config.quantization if found.config else ""
    return {
        "source": found.source,
        "directory": str(found.directory),
        "revision": found.revision or None,
        "parameters": whole.parameters,
        "parameter_bytes": whole.nbytes,
        "dtype": found.dtype or None,
        **_totals(found),
        "dtypes": {dtype: _stored(share) for dtype, share in (found.stored or {}).items()},
        "buffers": _stored(found.buffers) if found.buffers else None,
        "components": {component: _share(share) for component, share in found.components.items()},
        "layers": found.layers,
        "layer_runs": [_run(run) for run in found.layer_runs[:_LISTED]],
        "config": _config(found.config) | {"tied": found.tied} if found.config else {},
        "tokenizer": asdict(found.vocabulary),
        "quantization": method or None,
        **_quantization(found),
        "nominal": found.nominal or None,
        "nominal_parameters": found.nominal_parameters,
        "estimates": estimates(whole.parameters) if whole.parameters is not None else {},
        **_comparison(found),
        "adapter": _adapter(found),
        "files": [
            {"name": file.name, "bytes": file.nbytes, "role": file.role, "read": file.is_read} for file in found.files
        ],
        "problems": [asdict(problem) for problem in found.problems],
        "notes": list(found.notes),
    }


def _totals(found: Inspection) -> Mapping[str, int | None]:
    """What the files hold. `file_bytes` are those of their tensors; `files` has the sizes on disk, headers included."""
    if found.stored is None:
        return {"stored_elements": None, "file_bytes": None, "tensors": None}
    shares = found.stored.values()
    return {
        "stored_elements": sum(share.elements for share in shares),
        "file_bytes": sum(share.nbytes for share in shares),
        "tensors": sum(share.tensors for share in shares),
    }


def _stored(share: Stored) -> dict[str, int]:
    return {"tensors": share.tensors, "elements": share.elements, "bytes": share.nbytes}


def _share(share: Share) -> dict[str, int | None]:
    return {"parameters": share.parameters, "bytes": share.nbytes}


def _run(run: LayerRun) -> dict[str, Any]:
    return {"stack": run.stack, "first": run.first, "last": run.last, "each": _share(run.each)}


def _config(config: ModelConfig) -> dict[str, Any]:
    """The config's facts under the names that the metrics use; what it does not say is null."""
    facts: dict[str, Any] = {key: value if value != "" else None for key, value in asdict(config).items()}
    facts["context_window"] = facts.pop("context_window_tokens")
    return facts


def _quantization(found: Inspection) -> Mapping[str, Any]:
    if found.logical is None or not found.logical.method:
        return {}
    bits = list(found.logical.bits)
    return {"quantization_bits": bits, "quantization_group_size": found.logical.group_size}


def _comparison(found: Inspection) -> Mapping[str, Any]:
    """What the files lack and have too much, where the architecture is known well enough to tell."""
    if found.comparison is None:
        return {"missing": None, "unexpected": None}
    lists = {"missing": found.comparison.missing, "unexpected": found.comparison.unexpected}
    return {key: list(names[:_LISTED]) for key, names in lists.items()}


def _adapter(found: Inspection) -> Mapping[str, Any] | None:
    if (adapter := found.adapter) is None:
        return None
    return {"base": adapter.base or None, "elements": adapter.elements, "bytes": adapter.nbytes}
