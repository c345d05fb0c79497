import pytest

from vramscope.memory.residue import (
    HISTORY_KEPT,
    HOST,
    TREND_NEEDS,
    Level,
    SizeClass,
    compare,
    trend,
)

MIB = 1 << 20
LEAKED = 64 * MIB


def level(where="cuda:0", **values):
    return Level(where=where, **{"process_bytes": 100, "others_bytes": 7, **values})


def test_nothing_left_is_no_residue_and_has_no_cause():
    place = compare(level(live={1: 512}), level(live={1: 512}))
    assert (place.nbytes, place.main_cause, place.live) == (0, "", ())


def test_a_leaked_tensor_is_found_to_the_byte_with_its_size():
    place = compare(level(live={1: 512}), level(live={1: 512, 2: LEAKED}))
    assert (place.nbytes, place.main_cause) == (67_108_864, "live_tensors")
    assert place.live == (SizeClass(label="10 to 100 MiB", count=1, nbytes=LEAKED),)


def test_another_tensor_at_an_address_that_was_live_before_is_left_too():
    assert compare(level(live={1: 512}), level(live={1: 1024})).nbytes == 1024


def test_each_cause_is_named_apart_and_they_add_up():
    place = compare(level(), level(live={2: MIB}, cache_bytes=20, process_bytes=130, others_bytes=1000))
    assert place.causes == {
        "live_tensors": MIB,
        "allocator_cache": 20,
        "context_growth": 30,
        "other_processes": 993,
    }
    assert place.nbytes == MIB + 20 + 30


def test_what_others_gave_back_or_the_cache_lost_hides_no_leak():
    place = compare(level(cache_bytes=LEAKED, others_bytes=LEAKED), level(live={2: LEAKED}, others_bytes=0))
    assert place.nbytes == LEAKED


def test_where_the_own_use_is_unknown_all_outside_the_allocator_is_one_foreign_cause():
    unknown = {"process_bytes": None, "others_bytes": None}
    place = compare(level(**unknown, outside_bytes=5), level(**unknown, outside_bytes=25))
    assert place.causes == {"live_tensors": 0, "allocator_cache": 0, "outside_allocator": 20}
    assert place.nbytes == 0


def test_on_the_host_live_tensors_are_a_part_of_what_the_process_holds():
    before = Level(where=HOST, process_bytes=1000)
    after = Level(where=HOST, live={1: LEAKED}, process_bytes=1000 + LEAKED + 4096)
    place = compare(before, after)
    assert place.causes == {"live_tensors": LEAKED, "process": 4096}
    assert place.level_bytes == 1000 + LEAKED + 4096


def test_tensors_fall_into_a_bounded_set_of_size_classes():
    sizes = [1, MIB - 1, MIB, 10 * MIB, 100 * MIB, 1 << 40]
    live = compare(level(), level(live=dict(enumerate(sizes)))).live
    assert [(each.label, each.count) for each in live] == [
        ("under 1 MiB", 2),
        ("1 to 10 MiB", 1),
        ("10 to 100 MiB", 1),
        ("100 MiB and more", 2),
    ]
    assert sum(each.nbytes for each in live) == sum(sizes)


def test_the_level_of_a_leak_rises_though_each_load_finds_the_last_one_there():
    found, levels, residues = {}, [], []
    for cycle in range(HISTORY_KEPT):
        before = level(live=found)
        found = {**found, cycle: LEAKED}
        place = compare(before, level(live=found, cache_bytes=cycle % 2 * 900 * MIB))
        levels.append(place.level_bytes)
        residues.append(place.causes["live_tensors"])
    assert set(residues) == {LEAKED}
    assert trend(levels) == pytest.approx(LEAKED)


def test_the_trend_of_what_stays_is_exactly_nothing_and_of_too_little_unknown():
    assert trend([5] * HISTORY_KEPT) == 0.0
    assert trend([5] * (TREND_NEEDS - 1)) is None
    assert abs(trend([5, 6, 5, 6, 5, 6, 5, 6])) < 0.1
