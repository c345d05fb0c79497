"""What is foreseen of every model shape is what the real allocator then holds: tensors, allocated, reserved, used.

Run with `-s` for the table.
"""

import json
from pathlib import Path

import pytest

pytestmark = pytest.mark.cuda_stub

HERE = Path(__file__).parent
GOLDEN = json.loads((HERE.parent / "memory" / "golden" / "models.json").read_text())
CONTEXT_BYTES = 113 << 20


@pytest.fixture(scope="module")
def models(shared_machine):
    """What became of each model, on a device large enough for all, with copies that move no bytes.

    Through pinned memory they would be: it is copied on to memory of the host, of which the largest needs 27 GiB.
    """
    shared_machine.configure(total_mib=142336, context_mib=113, data="discard")
    shared_machine.fail("cudaHostRegister", "1")
    models = json.loads(shared_machine.python(str(HERE / "forecast_models.py"), PYTHONPATH=str(HERE.parents[1])))
    print("\n" + "\n".join(table(models)))
    return models


def table(models):
    yield f"{'bytes on the device':24}{'parameters':>16}{'allocated':>16}{'reserved':>16}{'forecast error':>16}"
    for name, model in models.items():
        on_device = model["rows"][1][2]["measured"]
        figures = (on_device[f"{quantity}_bytes"] for quantity in ("parameter", "allocated", "reserved"))
        yield f"{name:24}" + "".join(f"{figure:16,}" for figure in figures) + f"{error(model):16,}"


def error(model):
    """The largest difference between forecast and measurement in any quantity, anywhere on the way."""
    return max(
        abs(row["measured"][key] - row["forecast"][key]) for _, _, row in model["rows"] for key in row["forecast"]
    )


@pytest.mark.parametrize("name", GOLDEN)
def test_order_of_tensors_is_the_recorded_one(models, name):
    foreseen = [[tensor["name"], tensor["nbytes"]] for tensor in models[name]["order"]["tensors"]]
    assert foreseen == [[tensor, nbytes] for tensor, _, _, nbytes in GOLDEN[name]["order"]]
    assert models[name]["order"]["exact"]


@pytest.mark.parametrize("name", GOLDEN)
def test_forecast_is_what_is_measured_after_every_step(models, name):
    rows = models[name]["rows"]
    assert [row["fits"] for _, _, row in rows] == [[True, True]] * len(rows)
    assert [[action, to, row["measured"]] for action, to, row in rows] == [
        [action, to, row["forecast"]] for action, to, row in rows
    ]


@pytest.mark.parametrize("name", GOLDEN)
def test_measured_levels_are_the_recorded_ones(models, name):
    moves = [row["measured"] for _, _, row in models[name]["rows"][1:6]]
    recorded = [[allocated, reserved] for _, allocated, reserved, *_ in GOLDEN[name]["phases"]]
    assert [[row["allocated_bytes"], row["reserved_bytes"]] for row in moves] == recorded
    assert [row["used_bytes"] for row in moves] == [CONTEXT_BYTES + reserved for _, reserved in recorded]


@pytest.mark.parametrize("name", GOLDEN)
def test_parameters_and_buffers_on_the_device_are_all_of_the_models(models, name):
    tensors = models[name]["order"]["tensors"]
    on_device, back = models[name]["rows"][1][2]["measured"], models[name]["rows"][2][2]["measured"]
    assert on_device["parameter_bytes"] == sum(tensor["nbytes"] for tensor in tensors if not tensor["is_buffer"])
    assert on_device["buffer_bytes"] == sum(tensor["nbytes"] for tensor in tensors if tensor["is_buffer"])
    assert (back["parameter_bytes"], back["buffer_bytes"]) == (0, 0)
