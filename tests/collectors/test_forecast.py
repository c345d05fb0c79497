"""What the page says of the forecast while it is there, and when it is lost. The golden page is in test_catalog."""

from tests.forecast.sketch import MIB

from vramscope.collectors.forecast import Forecast
from vramscope.events import WorkerExited
from vramscope.forecast.predict import DeviceLevels
from vramscope.supervisor.forecaster import ForecastCompared, ForecastLost, ForecastMade


def levels(allocated, reserved):
    return DeviceLevels(
        parameter_bytes=0,
        buffer_bytes=0,
        allocated_bytes=allocated * MIB,
        reserved_bytes=reserved * MIB,
        used_bytes=reserved * MIB,
    )


MADE = ForecastMade(at=1.0, step="move", devices={"cuda:1": levels(3, 20), "cuda:0": levels(0, 2)})
COMPARED = ForecastCompared(
    at=2.0,
    step="move",
    error_bytes={("cuda:1", "reserved"): -2 * MIB, ("cuda:0", "allocated"): 0},
    cause="other rules",
)


def test_each_device_has_what_is_foreseen_and_how_far_off_it_was(page):
    assert page.of(Forecast, [MADE, COMPARED]).splitlines() == [
        'vramscope_forecast_allocated_bytes{device="cuda:0"} 0.0',
        'vramscope_forecast_allocated_bytes{device="cuda:1"} 3.145728e+06',
        'vramscope_forecast_reserved_bytes{device="cuda:0"} 2.097152e+06',
        'vramscope_forecast_reserved_bytes{device="cuda:1"} 2.097152e+07',
        'vramscope_forecast_error_bytes{device="cuda:0",quantity="allocated"} 0.0',
        'vramscope_forecast_error_bytes{device="cuda:1",quantity="reserved"} -2097152.0',
    ]


def test_a_forecast_that_is_made_but_not_compared_yet_has_no_error(page):
    assert "error" not in page.of(Forecast, [MADE])


def test_the_error_of_the_last_step_stays_while_the_next_one_runs(page):
    again = page.of(Forecast, [MADE, COMPARED, MADE])
    assert 'vramscope_forecast_error_bytes{device="cuda:1",quantity="reserved"} -2097152.0' in again.splitlines()


def test_a_lost_forecast_leaves_no_series(page):
    assert page.of(Forecast, [MADE, COMPARED, ForecastLost(at=3.0, reason="it failed")]) == ""


def test_with_the_worker_the_forecast_is_gone(page):
    gone = WorkerExited(at=3.0, pid=17, reason="signal", detail="", expected=False)
    assert page.of(Forecast, [MADE, COMPARED, gone]) == ""
