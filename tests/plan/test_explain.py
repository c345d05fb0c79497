from typing import Annotated

import pytest
from pydantic import BeforeValidator, ValidationError

from vramscope.plan.explain import complaints
from vramscope.plan.kinds import Fields


def refuse(value):
    raise ValueError(f"expected better, got {value}")


class Inner(Fields):
    size: int = 0


class Outer(Fields):
    word: str = ""
    flag: bool = False
    inner: Inner | None = None
    table: dict[Annotated[str, BeforeValidator(lambda key: key if key != "bad" else refuse(key))], Inner] = {}  # noqa: RUF012  pydantic copies it
    items: list[Inner] = []  # noqa: RUF012  as above
    never: Annotated[int, BeforeValidator(refuse)] = 0


class Needy(Fields):
    needed: int


CASES = [
    (Outer, {"wrod": "a"}, ("wrod",), 'unknown key "wrod" (did you mean "word"?)', True),
    (Outer, {"inner": {"siz": 1}}, ("inner", "siz"), 'unknown key "siz" (did you mean "size"?)', True),
    (Outer, {"table": {"a": {"siz": 1}}}, ("table", "a", "siz"), 'unknown key "siz" (did you mean "size"?)', True),
    (Outer, {"items": [{}, {"siz": 1}]}, ("items", 1, "siz"), 'unknown key "siz" (did you mean "size"?)', True),
    (Outer, {"word": 5}, ("word",), "expected text, got the number 5", False),
    (Outer, {"flag": "perhaps"}, ("flag",), "Input should be a valid boolean, unable to interpret input, got", False),
    (Outer, {"inner": 5}, ("inner",), "expected a mapping, got the number 5", False),
    (Outer, {"table": []}, ("table",), "expected a mapping, got a list", False),
    (Outer, {"items": {}}, ("items",), "expected a list, got a mapping", False),
    (Outer, {"never": 5}, ("never",), "expected better, got 5", False),
    (Outer, {"table": {"bad": {}}}, ("table", "bad"), "expected better, got bad", True),
    (Needy, {}, (), 'missing key "needed"', False),
]


@pytest.mark.parametrize(("model", "given", "path", "message", "about_key"), CASES)
def test_each_way_to_be_wrong_has_a_sentence_and_a_place(model, given, path, message, about_key):
    with pytest.raises(ValidationError) as caught:
        model.model_validate(given)
    (complaint,) = complaints(caught.value, model)
    assert complaint.path == path
    assert complaint.message.startswith(message)
    assert complaint.about_key is about_key
