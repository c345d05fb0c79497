import re

import pytest
from pydantic import BaseModel, TypeAdapter

from vramscope.plan.fields import Bytes, Count, DeviceName, ModelName, Name, PositiveSeconds, Seconds, Text

ACCEPTED = [
    (Bytes, "1GiB", 2**30),
    (Seconds, "0s", 0.0),
    (PositiveSeconds, "1ms", 0.001),
    (Count, "1_000", 1000),
    (DeviceName, "cpu", "cpu"),
    (DeviceName, "cuda:0", "cuda:0"),
    (DeviceName, "cuda:15", "cuda:15"),
    (ModelName, "Qwen2.5-0.5B_f16", "Qwen2.5-0.5B_f16"),
    (ModelName, "千问", "千问"),
    (Name, "加载 to cuda:0", "加载 to cuda:0"),
    (Name, "x" * 64, "x" * 64),
    (Text, "", ""),
    (Text, "two\nlines", "two\nlines"),
]


@pytest.mark.parametrize(("kind", "given", "value"), ACCEPTED)
def test_a_field_accepts_what_it_is_for(kind, given, value):
    assert TypeAdapter(kind).validate_python(given) == value


MODEL_NAME = "expected a name of 1 to 64 letters, digits, dots, dashes and underscores, got "
NAME = "expected a name of 1 to 64 printable characters without spaces at its ends, got "
REFUSED = [
    (DeviceName, "cuda", 'expected cpu or cuda:N, got "cuda" (did you mean "cuda:0"?)'),
    (DeviceName, "gpu", 'expected cpu or cuda:N, got "gpu" (did you mean "cuda:0"?)'),
    (DeviceName, "cuda:00", 'expected cpu or cuda:N, got "cuda:00" (did you mean "cuda:0"?)'),
    (DeviceName, "cuda:-1", 'expected cpu or cuda:N, got "cuda:-1" (did you mean "cuda:0"?)'),
    (DeviceName, "cuda:0\n", 'expected cpu or cuda:N, got "cuda:0\\n" (did you mean "cuda:0"?)'),
    (DeviceName, 0, "expected cpu or cuda:N, got the number 0"),
    (ModelName, "", f'{MODEL_NAME}""'),
    (ModelName, "a b", f'{MODEL_NAME}"a b"'),
    (ModelName, "org/name", f'{MODEL_NAME}"org/name"'),
    (ModelName, "-a", f'{MODEL_NAME}"-a"'),
    (ModelName, 5, "expected text, got the number 5 (quote it to make it text)"),
    (Name, "", f'{NAME}""'),
    (Name, " a", f'{NAME}" a"'),
    (Name, "a\nb", f'{NAME}"a\\nb"'),
    (Name, "x" * 65, f'{NAME}"{"x" * 39}…"'),
    (Text, True, "expected text, got true (quote it to make it text)"),
    (Text, None, "expected text, got nothing"),
    (Text, ["a"], "expected text, got a list"),
    (PositiveSeconds, 0, "expected a duration longer than 0, got the number 0"),
]


@pytest.mark.parametrize(("kind", "given", "message"), REFUSED)
def test_a_field_says_what_it_expected_and_what_it_got(kind, given, message):
    with pytest.raises(ValueError, match=f"Value error, {re.escape(message)} \\[type"):
        TypeAdapter(kind).validate_python(given)


def test_every_field_has_a_json_schema_for_editors():
    class Everything(BaseModel):
        size: Bytes
        duration: Seconds
        device: DeviceName

    properties = Everything.model_json_schema()["properties"]
    assert [choice["type"] for choice in properties["size"]["anyOf"]] == ["string", "integer"]
    assert [choice["type"] for choice in properties["duration"]["anyOf"]] == ["string", "number"]
    assert properties["device"]["pattern"] == "^(cpu|cuda:(0|[1-9][0-9]{0,2}))$"
