from vramscope.collectors.moves import Moves
from vramscope.events import Outcome

from ..picture import back_and_gone, step, until_on_device  # noqa: TID252 - tests are not packages


def test_each_direction_is_counted_apart(page):
    text = page.of(Moves, until_on_device(), back_and_gone())
    assert 'vramscope_move_seconds_total{device="cuda:0",direction="to_device"} 0.125' in text
    assert 'vramscope_move_seconds_total{device="cuda:0",direction="to_host"} 0.25' in text
    assert text.count("vramscope_moved_bytes_total") == 2


def test_the_speed_of_the_last_move_goes_with_the_model_and_the_counts_stay(page):
    page.of(Moves, until_on_device())
    text = page.without_models().of(Moves, until_on_device())
    assert "last_bytes_per_second" not in text
    assert "vramscope_moved_bytes_total" in text


def test_a_move_that_failed_or_copied_nothing_counts_nothing(page):
    nothing = {"bytes": 0, "from": "cuda:0", "to": "cuda:0", "copy_seconds": 0.0}
    some = {"bytes": 5, "from": "cpu", "to": "cuda:0", "copy_seconds": 1.0}
    stories = [step(1.0, "move", 1.0, facts=nothing), step(2.0, "move", 1.0, facts=some, outcome=Outcome.FAILED)]
    assert page.of(Moves, *stories) == ""
