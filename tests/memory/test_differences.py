from dataclasses import replace

import pytest

from vramscope.memory.differences import differences
from vramscope.memory.ledger import ledger
from vramscope.memory.snapshot import MEASURED, AllocatorMemory, DeviceSnapshot, DriverMemory, Residency
from vramscope.units import format_exactly

from ..picture import ALLOCATED, CONTEXT, PARAMETER_BYTES, RESERVED, TOTAL, USED, model_on  # noqa: TID252 - tests are not packages

MODEL = replace(model_on("cuda:0"), tensors=290)
MEMORY = AllocatorMemory(
    allocated_bytes=ALLOCATED,
    reserved_bytes=RESERVED,
    requested_bytes=PARAMETER_BYTES + 128,
    inactive_split_bytes=1_048_576,
)
DEVICE = DeviceSnapshot(device="cuda:0", backend="cuda", allocator=MEMORY)
DRIVER = DriverMemory(
    total_bytes=TOTAL, used_bytes=USED + 1000, free_bytes=0, reserved_bytes=500, process_used_bytes=USED
)
UNKNOWN_USE = replace(DRIVER, process_used_bytes=None)
NOTHING = AllocatorMemory()


def told(device=DEVICE, driver=DRIVER, models=(MODEL,)):
    return differences(device, driver, models)


def between(start, end, **account):
    (found,) = [each for each in told(**account) if (each.start, each.end) == (start, end)]
    return found


def test_each_figure_is_explained_by_the_one_before_it():
    found = [(each.start, each.end, each.nbytes, each.owner) for each in told()]
    assert found == [
        ("parameter_bytes", "file_bytes", 32_288, None),
        ("requested_bytes", "allocated_bytes", 8_256_640, "allocator_rounding"),
        ("allocated_bytes", "reserved_bytes", RESERVED - ALLOCATED, "allocator_cache"),
        ("reserved_bytes", "process_used_bytes", CONTEXT, "cuda_context"),
        ("process_used_bytes", "used_bytes", 1000, "other_processes"),
        ("used_bytes", "total_bytes", 500, "driver_reserved"),
        ("used_bytes", "total_bytes", TOTAL - USED - 1500, "free"),
    ]


@pytest.mark.parametrize("driver", [DRIVER, UNKNOWN_USE])
def test_the_bytes_of_an_owner_are_those_of_the_ledger(driver):
    owners = ledger(DEVICE, driver, (MODEL,))
    found = {each.owner: each.nbytes for each in told(driver=driver) if each.owner}
    assert found.items() <= owners.items()
    assert owners.keys() - found.keys() == {"parameters", "buffers"}


def test_sentences_have_mib_and_every_byte():
    files, rounding, cache = (each.text for each in told()[:3])
    assert files == (
        "The parameters of qwen take 942.3 MiB (988,065,536 bytes): 494,032,768 times 2 bytes. Its files are 32,288 "
        "bytes larger: they begin with a header that lists the tensors."
    )
    assert rounding == (
        "PyTorch has allocated 950.2 MiB (996,322,304 bytes), 7.9 MiB (8,256,640 bytes) more than the tensors in it "
        "need, 28,471 bytes for each of 290 tensors on average: a tensor gets a block of whole 512 bytes, and a small "
        "rest of a larger block is handed out with it."
    )
    assert cache == (
        "PyTorch has reserved 992.0 MiB (1,040,187,392 bytes), 41.8 MiB (43,865,088 bytes) more than it has allocated: "
        "free blocks, which it keeps as a cache for the next tensor. The step release gives 40.8 MiB (42,816,512 bytes)"
        " of it back; the rest shares a segment with a tensor that is still there."
    )


def test_files_of_another_type_and_with_tied_weights_say_so():
    count = MODEL.parameters + 1_000_000
    model = replace(MODEL, file_elements=count, file_bytes=4 * count + 32_288)
    text = between("parameter_bytes", "file_bytes", models=(model,)).text
    assert "they store 4.00 bytes for each number and memory has 2.00" in text
    assert "they store 1,000,000 numbers more" in text


def test_smaller_files_are_not_larger_by_less_than_nothing():
    found = between("parameter_bytes", "file_bytes", models=(replace(MODEL, file_bytes=PARAMETER_BYTES // 4),))
    assert found.nbytes == -(PARAMETER_BYTES * 3 // 4)
    assert "Its files are 706.7 MiB (741,049,152 bytes) smaller: they store 0.50 bytes" in found.text
    assert "header that lists" not in found.text


def test_what_is_unknown_of_the_files_is_not_told():
    models = (replace(MODEL, file_bytes=None, file_elements=None),)
    assert all(each.end != "file_bytes" for each in told(models=models))


def test_what_release_gives_back_is_what_is_in_no_segment_with_a_tensor():
    def text(split):
        memory = replace(MEMORY, inactive_split_bytes=split)
        return between("allocated_bytes", "reserved_bytes", device=replace(DEVICE, allocator=memory)).text

    assert text(0).endswith("The step release gives all of it back.")
    assert "gives none of it back" in text(RESERVED - ALLOCATED)


def test_tensors_that_no_model_owns_are_told_apart_from_rounding():
    found = between("tensor_bytes", "requested_bytes", models=())
    assert (found.nbytes, found.owner) == (PARAMETER_BYTES + 128, "allocator_rounding")
    assert "that no model owns" in found.text


def test_an_allocator_that_does_not_tell_what_it_was_asked_for_is_believed_in_whole():
    silent = replace(DEVICE, allocator=replace(MEMORY, requested_bytes=0))
    assert between("requested_bytes", "allocated_bytes", device=silent).nbytes == 8_256_640


def test_a_count_of_tensors_that_is_not_known_is_left_out():
    assert (
        "on average" not in between("requested_bytes", "allocated_bytes", models=(replace(MODEL, tensors=None),)).text
    )


def test_before_a_context_is_opened_there_is_none_to_explain():
    device = replace(DEVICE, allocator=NOTHING, is_open=False)
    found = told(device=device, driver=replace(UNKNOWN_USE, used_bytes=1000), models=())
    assert [(each.owner, each.nbytes) for each in found] == [
        ("cuda_context", 0),
        ("other_processes", 1000),
        ("driver_reserved", 500),
        ("free", TOTAL - 1500),
    ]
    assert found[0].text == "This process has opened no CUDA context on this device yet, so it uses nothing there."


def test_where_everything_is_equal_there_is_nothing_to_explain():
    driver = DriverMemory(total_bytes=TOTAL, used_bytes=0, free_bytes=TOTAL, process_used_bytes=0)
    found = told(device=replace(DEVICE, allocator=NOTHING), driver=driver, models=())
    assert [each.text for each in found] == [
        "12,288.0 MiB (12,884,901,888 bytes) of 12,288.0 MiB (12,884,901,888 bytes) are free."
    ]


def test_where_the_driver_does_not_tell_own_use_context_and_others_are_one():
    found = between("reserved_bytes", "used_bytes", driver=UNKNOWN_USE)
    assert (found.nbytes, found.owner) == (USED + 1000 - RESERVED, "outside_allocator")
    assert "cannot be told apart" in found.text
    assert all(each.owner not in ("cuda_context", "other_processes") for each in told(driver=UNKNOWN_USE))


@pytest.mark.parametrize("driver", [None, DriverMemory(), DriverMemory(total_bytes=TOTAL)])
def test_a_driver_that_tells_nothing_leaves_one_sentence_that_says_so(driver):
    *inner, last = told(driver=driver)
    assert [each.owner for each in inner] == [None, "allocator_rounding", "allocator_cache"]
    assert (last.nbytes, last.owner) == (None, None)
    assert "is not known" in last.text


@pytest.mark.parametrize(
    ("driver", "start", "end"),
    [
        (replace(DRIVER, process_used_bytes=RESERVED - 3), "reserved_bytes", "process_used_bytes"),
        (replace(DRIVER, used_bytes=USED - 3), "process_used_bytes", "used_bytes"),
        (replace(UNKNOWN_USE, used_bytes=RESERVED - 3), "reserved_bytes", "used_bytes"),
    ],
)
def test_an_outer_figure_below_an_inner_one_is_called_a_contradiction(driver, start, end):
    found = between(start, end, driver=driver)
    assert (found.nbytes, found.owner) == (-3, None)
    assert "3 bytes more than" in found.text
    assert "cannot both be right" in found.text
    assert all("-" not in each.text.replace("nvidia-smi", "") for each in told(driver=driver))


def test_a_full_device_and_one_beyond_full():
    full = replace(DRIVER, total_bytes=USED + 1500)
    assert told(driver=full)[-1].text == "Nothing of the device is free."
    assert "cannot both be right" in told(driver=replace(full, total_bytes=USED + 1499))[-1].text


def test_a_simulated_device_never_speaks_of_a_driver_or_an_allocator_that_is_real():
    texts = [each.text for each in told(device=replace(DEVICE, backend="simulated"))]
    assert any("setting of the simulation (--context)" in text for text in texts)
    assert any("setting of the simulation (--other-use)" in text for text in texts)
    for text in texts:
        assert "nvidia-smi" not in text
        assert not text.startswith("PyTorch")
    assert "simulation" not in "".join(each.text for each in told())


def test_the_number_of_sentences_is_bounded():
    models = tuple(replace(MODEL, model=f"model {number}") for number in range(50))
    assert len(told(models=models)) <= 12


def test_own_use_that_the_driver_does_not_tell_is_called_measured():
    driver = replace(DRIVER, process_used_source=MEASURED)
    text = between("reserved_bytes", "process_used_bytes", driver=driver).text
    assert text.startswith("This process uses 1,105.0 MiB (1,158,676,480 bytes)")
    assert "The driver does not tell it here" in text


def test_a_model_that_is_elsewhere_is_not_explained_here():
    assert all(each.end != "file_bytes" for each in told(models=(model_on("cpu"), model_on("cuda:1"))))


def test_of_a_model_in_several_places_it_is_said_what_is_here():
    here = replace(MODEL.groups[0], device="cpu")
    mixed = replace(MODEL, residency=Residency.MIXED, groups=(here, *MODEL.groups[1:]))
    on_device = MODEL.parameter_bytes - here.nbytes
    text = between("parameter_bytes", "file_bytes", models=(mixed,)).text
    assert f"times 2 bytes, of which {format_exactly(on_device)} are on cuda:0. Its files" in text
    memory = replace(DEVICE.allocator, requested_bytes=0)
    rounding = between("requested_bytes", "allocated_bytes", device=replace(DEVICE, allocator=memory), models=(mixed,))
    assert "on average" not in rounding.text  # how many of its tensors are here is not known
