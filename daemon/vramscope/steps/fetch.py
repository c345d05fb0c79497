"""Brings a model's files to this machine, so that no later step has to wait for the network.

    - fetch: qwen
    - {fetch: qwen, timeout: 1h}

A model of the Hugging Face hub is downloaded into the hub cache unless it is there already, whatever `download` says of
it; only safetensors, the config and the tokenizer's files come, and no file that could run code. A synthetic model is
made. Nothing is loaded, and the time never counts as load: the phases are `download` and `verify` (checksums).

What has come stays when the connection breaks, the step is cancelled or its time is over, and the next fetch goes on
behind it. A model that is here is not asked for again, even where its branch has moved on: name the commit as
`revision` to choose. With HF_HUB_OFFLINE=1 nothing is downloaded. A token is taken from HF_TOKEN, or from `hf auth
login`, and is never logged.
"""

from vramscope.plan.fields import ModelName
from vramscope.plan.kinds import Effect, Fields
from vramscope.steps._frame import Facts, Kind, StepContext


class FetchFields(Fields):
    """What to fetch."""

    model: ModelName


def _run(context: StepContext, fields: FetchFields) -> Facts:
    return context.fetch(fields.model)


def _effect(fields: FetchFields, _device: str) -> Effect:
    return Effect(model=fields.model)


STEP = Kind(name="fetch", fields=FetchFields, run=_run, example="fetch: qwen", scalar="model", effect=_effect)
