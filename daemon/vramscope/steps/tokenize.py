"""Counts the tokens of a text with a model's tokenizer.

    - tokenize: {model: qwen, text: "What does a large language model weigh?"}

Only the tokenizer's files are read, so the model need not be loaded. The text may be empty. A text that looks like a
number or a boolean has to be quoted. `vramscope_tokens` is the count of the text alone; the special tokens that the
tokenizer adds around it for the model are counted apart. A text that spells a special token out, such as `<s>`, has
that token, as the tokenizer reads it so.
"""

from vramscope.plan.fields import ModelName, Text
from vramscope.plan.kinds import Effect, Fields
from vramscope.steps._frame import Facts, Kind, StepContext


class TokenizeFields(Fields):
    """Whose tokenizer, and which text."""

    model: ModelName
    text: Text


def _run(context: StepContext, fields: TokenizeFields) -> Facts:
    return context.tokenize(fields.model, fields.text)


def _effect(fields: TokenizeFields, _device: str) -> Effect:
    return Effect(model=fields.model)


STEP = Kind(
    name="tokenize",
    fields=TokenizeFields,
    run=_run,
    example="tokenize: {model: qwen, text: 'How many tokens?'}",
    effect=_effect,
)
