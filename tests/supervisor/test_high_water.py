from vramscope.supervisor.high_water import HighWater


def test_peak_between_two_looks_is_kept_for_a_minute_and_then_forgotten():
    water = HighWater()
    assert water.highest(0.0) is None
    for tenth in range(1000):
        water.note(tenth / 10, 900 if tenth == 13 else 100)
    assert water.highest(60.9) == 100  # asked too late: 1.3 s is out of the window that ended at 99.9 s


def test_window_moves_with_the_clock():
    water = HighWater()
    water.note(1.3, 900)
    water.note(2.0, 100)
    assert water.highest(60.9) == 900
    assert water.highest(61.0) == 100
    assert water.highest(62.0) is None


def test_second_keeps_its_highest_and_memory_does_not_grow():
    water = HighWater()
    for tenth in range(10_000):
        water.note(tenth / 10, 10_000 - tenth)
    assert water.highest(999.9) == 10_000 - 9400
    assert len(water._seconds) == 60
