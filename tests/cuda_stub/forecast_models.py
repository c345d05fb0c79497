"""Moves every model shape to the stub GPU and back beside its forecast, and prints what became of it, as JSON.

The product builds the order from nothing but a config.json, and moves the model as a step does.
"""

import json
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import model_shapes
from side_by_side import DEVICE, SideBySide, identity

from vramscope.anatomy.config import read_config
from vramscope.anatomy.parts import Part
from vramscope.forecast.order import ModelOrder
from vramscope.loading.assemble import find_architecture
from vramscope.loading.resident import ResidentModel
from vramscope.loading.skeleton import Skeleton

# The moves of tests/memory/golden/models.json, between a load and an unload.
WAY = (
    ("load", "cpu"),
    ("move", DEVICE),
    ("move", "cpu"),
    ("move", DEVICE),
    ("move", "cpu"),
    ("release", ""),
    ("unload", ""),
)
# The half of a model that goes back to the host first: no machine gives a test the memory of the largest in one piece.
HALF = {"qwen1.5-moe-a2.7b": Part(layers=((0, 11),))}


def forecast(side: SideBySide, name: str) -> dict[str, Any]:
    """Take one model along the way, and give everything back."""
    model = model_shapes.build(name)
    dtype = model_shapes.SHAPES[name][1]
    order = order_of_config(model.config, type(model).__name__, dtype)
    side.know(name, order, lambda _target, _part: ResidentModel(identity(name, str(dtype)), model))
    return {"order": asdict(order), "rows": [[action, to, step(side, name, action, to)] for action, to in WAY]}


def step(side: SideBySide, name: str, action: str, to: str) -> dict[str, Any]:
    if (action, to) == ("move", "cpu") and name in HALF:
        side.do(action, name, to, HALF[name])
    return side.do(action, name, to)


def order_of_config(config: Any, class_name: str, dtype: Any) -> ModelOrder:
    """The order of a model of which there is only a config.json."""
    with tempfile.TemporaryDirectory() as directory:
        config.architectures = [class_name]
        config.save_pretrained(directory)
        folder = Path(directory)
        return Skeleton(find_architecture(folder, read_config(folder)), dtype).order(())


if __name__ == "__main__":
    both = SideBySide()
    json.dump({name: forecast(both, name) for name in model_shapes.SHAPES}, sys.stdout)
