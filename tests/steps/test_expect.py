import re

import pytest
from pydantic import ValidationError

from vramscope.errors import ExpectationError
from vramscope.steps.expect import STEP

GIB = 2**30


@pytest.fixture
def loaded(make_context):
    return make_context(places={"qwen": "cuda:0", "llama": "cpu"}, cached={"cuda:0"})


def test_what_is_as_expected_is_returned_as_facts(loaded):
    fields = STEP.fields(
        torch_allocated={"equals": 1000},
        torch_reserved={"above": 1499, "below": "2kB"},
        torch_requested={"equals": 990},
        parameter_bytes={"equals": 900},
        buffer_bytes={"equals": 100},
        device_used={"equals": 1800},
        process_used={"equals": 1600},
    )
    assert STEP.run(loaded, fields) == {
        "torch_allocated": 1000,
        "torch_reserved": 1500,
        "torch_requested": 990,
        "parameter_bytes": 900,
        "buffer_bytes": 100,
        "device_used": 1800,
        "process_used": 1600,
    }


def test_another_device_can_be_named(loaded):
    assert STEP.run(loaded, STEP.fields(device="cuda:1", torch_allocated={"equals": 0})) == {"torch_allocated": 0}
    assert STEP.run(loaded, STEP.fields(device="cpu", parameter_bytes={"above": 0})) == {"parameter_bytes": 900}


MISSES = {
    "below": ({"below": 1000}, "is 1000 B, expected below 1000 B: 0 bytes too many"),
    "below by more": ({"below": 900}, "is 1000 B, expected below 900 B: 100 bytes too many"),
    "above": ({"above": 1001}, "is 1000 B, expected above 1001 B: 1 byte too few"),
    "equals more": ({"equals": 999}, "is 1000 B, expected exactly 999 B: 1 byte too many"),
    "equals less": (
        {"equals": "1MiB"},
        "is 1000 B, expected exactly 1.00 MiB (1,048,576 bytes): 1,047,576 bytes too few",
    ),
}


@pytest.mark.parametrize("case", MISSES)
def test_a_miss_says_measured_expected_and_the_difference(loaded, case):
    bound, message = MISSES[case]
    with pytest.raises(ExpectationError, match=f"^torch_allocated on cuda:0 {re.escape(message)}$"):
        STEP.run(loaded, STEP.fields(torch_allocated=bound))


def test_large_sizes_are_shown_for_people_and_to_the_byte(make_context):
    context = make_context(model_bytes=1_556_925_644, capacity_bytes=2 * GIB, places={"qwen": "cuda:0"})
    message = (
        "torch_allocated on cuda:0 is 1.45 GiB (1,556,925,644 bytes), expected below 1.00 GiB (1,073,741,824 bytes): "
        "483,183,820 bytes too many"
    )
    with pytest.raises(ExpectationError, match=f"^{re.escape(message)}$"):
        STEP.run(context, STEP.fields(torch_allocated={"below": "1GiB"}))


def test_every_miss_is_told(loaded):
    with pytest.raises(ExpectationError) as caught:
        STEP.run(loaded, STEP.fields(torch_allocated={"below": 10}, torch_reserved={"equals": 0}))
    assert str(caught.value).count("; torch_reserved on cuda:0 is 1.46 KiB (1,500 bytes)") == 1


UNKNOWN = {
    "a device that is not there": (
        {"device": "cuda:7", "torch_allocated": {"below": "1GiB"}},
        "torch_allocated on cuda:7",
    ),
    "an allocator for system RAM": ({"device": "cpu", "torch_allocated": {"below": "1GiB"}}, "torch_allocated on cpu"),
    "a driver that does not tell": ({"device_used": {"below": "1GiB"}}, "device_used on cuda:0"),
}


@pytest.mark.parametrize("case", UNKNOWN)
def test_what_is_unknown_is_not_taken_for_zero(make_context, case):
    given, which = UNKNOWN[case]
    message = f"{which} is unknown, expected below 1.00 GiB (1,073,741,824 bytes)"
    with pytest.raises(ExpectationError, match=f"^{re.escape(message)}$"):
        STEP.run(make_context(has_driver=False), STEP.fields(**given))


QUANTITIES = (
    "torch_allocated, torch_reserved, torch_requested, parameter_bytes, buffer_bytes, device_used, process_used"
)
REFUSED = {
    "nothing": ({}, f"expected a bound for at least one of {QUANTITIES}; got none"),
    "only a device": ({"device": "cpu"}, f"expected a bound for at least one of {QUANTITIES}; got none"),
    "an empty bound": ({"device_used": {}}, "expected below, above, both of these, or equals; got none"),
    "a bound of nothing": (
        {"device_used": {"below": None}},
        "expected below, above, both of these, or equals; got none",
    ),
    "equals and another": (
        {"device_used": {"equals": 1, "below": 2}},
        "expected below, above, both of these, or equals; got below and equals",
    ),
    "bounds without a value between them": (
        {"device_used": {"above": 5, "below": 6}},
        "expected bounds with a value between them, got none",
    ),
    "below nothing": ({"device_used": {"below": 0}}, "expected bounds with a value between them, got none"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_an_expectation_that_cannot_be_meant_is_refused(case):
    given, message = REFUSED[case]
    with pytest.raises(ValidationError, match=re.escape(message)):
        STEP.fields(**given)
