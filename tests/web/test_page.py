"""The live page in a real browser, against a real server."""

import json
import re
import shutil
import subprocess
from dataclasses import replace

import pytest

from vramscope.events import CycleAwaited, JournalSampled, PlanReloadFailed, WebConfigRead
from vramscope.forecast.predict import DeviceLevels
from vramscope.memory.residue import PlaceResidue, Residue, ResidueMeasured, SizeClass
from vramscope.memory.snapshot import DeviceFacts, DriverMemory, DriverSampled, Residency
from vramscope.supervisor.forecaster import ForecastMade

from ..picture import (  # noqa: TID252 - tests are not packages
    ALLOCATED,
    HOSTILE,
    PARAMETER_BYTES,
    RESERVED,
    STARTED_AT,
    TOTAL,
    USED,
    back_and_gone,
    model_on,
    running,
    sample,
    step,
    until_on_device,
)
from .phone import appears, browser

# Long enough for two polls. Virtual time stands still while the browser waits for the network.
BUDGET_MILLISECONDS = 2500
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--enable-logging=stderr",  # what the page's console says, such as a violated policy
)


def chromium():
    found = shutil.which("chromium")
    if found is None:
        pytest.skip("Chromium is not installed: apt-get install --no-install-recommends chromium")
    return [found, *FLAGS]


def opened(tmp_path, url):
    """The document as the browser has it, after its script has run."""
    command = [*chromium(), f"--user-data-dir={tmp_path}", f"--virtual-time-budget={BUDGET_MILLISECONDS}"]
    done = subprocess.run([*command, "--dump-dom", url], capture_output=True, text=True, timeout=90, check=True)
    assert "Security Policy" not in done.stderr
    assert "Uncaught" not in done.stderr
    return done.stdout.partition("<script>")[0]


@pytest.fixture
def browse(tmp_path, site, serving):
    def browse(*stories):
        site.stories = list(stories)
        return opened(tmp_path, serving(site.application()).url)

    return browse


def test_names_and_bytes_appear(browse):
    text = browse(until_on_device(), running())
    for name in ("qwen-cycle, cycle 1 of 3", "cuda:0", "qwen", "move qwen", "to the card", "copy", "tokens 15"):
        assert name in text
    for owner in ("parameters", "buffers", "allocator rounding", "allocator cache", "CUDA context", "free"):
        assert f"</span>{owner}</td>" in text
    for figure in ("988,065,536", "942.3 MiB", "996,322,304", "1,158,676,480", "1,105.0 MiB", "494,032,768", "50 %"):
        assert figure in text
    assert 'id="simulated" class="badge warn">' in text, "the badge is visible"
    assert 'id="absent" class="badge bad" role="status" hidden=""' in text


def test_the_results_of_a_whole_cycle_appear(browse):
    text = browse(until_on_device(), back_and_gone())
    assert "The plan has ended" in text
    assert text.count("succeeded") >= 7
    assert "No model is loaded." in text
    for heading in ("before load", "in RAM", "on device", "after unload", "after release"):
        assert heading in text


def test_between_two_cycles_it_says_so_and_parts_carry_the_name_of_their_step(browse):
    *story, _plan_ended = back_and_gone()
    text = browse(until_on_device(), story)
    assert "Between two cycles." in text
    parts = text.partition('id="phases"')[2].partition("</section>")[0]
    assert ">back<" in parts, "the last move"
    assert ">to the card<" not in parts


def widths(text, label):
    """Owner to percent of the bar that carries this label."""
    bar = text.partition(f'aria-label="{label}')[2].partition("</div>")[0]
    return {
        owner: float(width)
        for owner, width in re.findall(r'<i class="(\w+)" title="[^"]*" style="width: ([\d.]+)%', bar)
    }


def test_a_bar_has_every_owner_that_holds_anything_in_the_same_order(browse):
    found = widths(browse(until_on_device()), "all of cuda:0")
    assert list(found) == ["parameters", "buffers", "allocator_rounding", "allocator_cache", "cuda_context", "free"]
    assert sum(found.values()) == pytest.approx(100, abs=0.1)
    assert 0.1 < found["buffers"] < 2, "128 bytes of 12 GiB are seen"
    assert found["parameters"] == pytest.approx(100 * PARAMETER_BYTES / TOTAL, abs=0.5)


def test_a_small_part_in_use_gets_a_bar_of_its_own(browse):
    found = widths(browse(until_on_device()), "the part in use of cuda:0")
    assert list(found) == ["parameters", "buffers", "allocator_rounding", "allocator_cache", "cuda_context"]
    assert found["parameters"] > 80


def test_bars_are_read_aloud_with_names_and_exact_bytes(browse):
    text = browse(until_on_device())
    assert (
        'role="img" aria-label="all of cuda:0: parameters 942.3 MiB, 988,065,536 bytes; buffers 0.0 MiB, 128 b' in text
    )
    assert 'title="parameters: 988,065,536 bytes, 942.3 MiB, 7.7 %"' in text


def test_below_the_bar_it_says_why_the_figures_differ(browse):
    text = browse(until_on_device())
    assert "Why the figures differ" in text
    assert "setting of the simulation (--context)" in text


def sampled(**parts):
    memory = DriverMemory(total_bytes=TOTAL, used_bytes=USED, free_bytes=TOTAL - USED, process_used_bytes=USED)
    return DriverSampled(at=2e9, pid=17, devices={"cuda:0": memory}, **parts)


def test_forecast_and_high_water_are_marks_at_their_bytes(browse):
    levels = DeviceLevels(
        allocated_bytes=ALLOCATED, reserved_bytes=RESERVED, parameter_bytes=0, buffer_bytes=0, used_bytes=USED
    )
    forecast = ForecastMade(at=1.0, step="to the card", devices={"cuda:0": levels})
    text = browse(until_on_device(), [sampled(high_water_bytes={"cuda:0": TOTAL // 2}), forecast])
    (left,) = set(
        re.findall(r'class="mark forecast" title="[^"]*" style="left: ([\d.]+)%', text.partition("enlarged")[0])
    )
    found = list(widths(text, "all of cuda:0").values())
    assert float(left) == pytest.approx(sum(found[:4]), abs=0.01), "where the allocator's cache ends"
    assert "▼ forecast of what PyTorch reserves: 992.0 MiB (1,040,187,392 bytes)" in text
    assert "▲ most in use lately (high water): 6,144.0 MiB (6,442,450,944 bytes)" in text


def test_a_driver_that_fails_says_why_and_other_devices_are_listed(browse):
    card = DeviceFacts(device="nvml:1", backend="nvml", name="NVIDIA T4", total_bytes=TOTAL)
    failed = DriverSampled(at=2e9, pid=17, devices={}, errors={"cuda:0": "GPU is lost"}, cards=(card,))
    text = browse(until_on_device(), [failed])
    assert "driver: GPU is lost" in text
    assert "nvml:1 NVIDIA T4: not known" in text


def test_what_unloading_gave_back_is_told_by_cause(browse):
    left = PlaceResidue(
        where="cuda:0",
        causes={"live_tensors": 3 << 20, "allocator_cache": 17 << 20, "other_processes": 5 << 20},
        live=(SizeClass(label="1 to 10 MiB", count=2, nbytes=3 << 20),),
        level_bytes=0,
    )
    clean = PlaceResidue(where="cuda:0", causes={"live_tensors": 0, "allocator_cache": 0}, level_bytes=0)
    residues = (
        Residue(model="qwen", after="unload", places=(left,)),
        Residue(model="other", after="release", places=(clean,)),
    )
    text = browse(until_on_device(), back_and_gone(), [ResidueMeasured(at=1.0, residues=residues)])
    assert "20.0 MiB (20,971,520 bytes) left" in text
    assert "2 tensors (2 x 1 to 10 MiB) that no loaded model owns" in text
    assert "the step release gives them back" in text
    assert '<li class="soft">5.0 MiB (5,242,880 bytes): taken by other processes' in text
    assert 'cuda:0: <span class="good">gave everything back</span>' in text
    assert "<small>left 20.0 MiB</small>" in text.replace(' class=""', ""), "in the row of its cycle"


def test_rates_and_counts_read_as_people_write_them(browse):
    facts = {"bytes": 5 << 20, "bytes_per_second": 12345678901.2, "tokens": 12345, "share": 0.123456}
    text = browse(step(1.0, "move", 0.0004, facts=facts))
    assert "bytes 5,242,880 (5.0 MiB), rate 11,773.8 MiB/s, tokens 12,345, share 0.1235" in text
    assert "0.4 ms" in text


TROUBLES = (
    PlanReloadFailed(at=1.0, problem='plan.yaml:3:5: steps[0]: expected one of load, move; got "lod"\n' + "x" * 200),
    WebConfigRead(at=1.0, problem="web.yml:2: no such certificate"),
    JournalSampled(at=1.0, reason="No space left on device", written=7, dropped=1234),
    DriverSampled(at=2e9, pid=17, devices={}, errors={"cuda:0": "GPU is lost"}),
)


def test_what_somebody_has_to_mend_stands_above_all_else(browse):
    text = browse(until_on_device(), TROUBLES)
    banner = text.partition('id="troubles"')[2].partition("<main")[0]
    for sentence in (
        "the plan file cannot be used",
        'plan.yaml:3:5: steps[0]: expected one of load, move; got "lod"',
        "the plan of before goes on",
        "web.yml:2: no such certificate",
        "No space left on device",
        "1,234 events are lost for the journal",
        "the driver does not answer about cuda:0",
        "GPU is lost",
    ):
        assert sentence in banner
    assert '<div id="troubles" role="alert"></div>' in browse(until_on_device()), "and nothing where all is well"


def test_between_two_cycles_it_says_when_the_next_one_starts(browse):
    *story, _plan_ended = back_and_gone()
    text = browse(until_on_device(), story, [CycleAwaited(at=STARTED_AT + 50, starts_at=STARTED_AT + 150)])
    assert "the next one starts in 90.0 s, at " in text


def test_times_have_24_hours_and_the_day_where_it_is_not_today(browse):
    text = browse(step(1.0, "wait", 1.0, model=""))
    assert re.search(r'extra">(1969-12-31|1970-01-01) \d\d:\d\d:\d\d</td>', text)


def test_a_model_on_several_devices_is_shown_place_by_place(browse):
    host, device = model_on("cpu"), model_on("cuda:0")
    both = replace(device, residency=Residency.MIXED, groups=(host.groups[0], *device.groups[1:]))
    held = replace(sample(STARTED_AT + 9, "cuda:0", allocated=ALLOCATED, reserved=RESERVED), models=(both,))
    text = browse(until_on_device(), [held])
    row = text.partition('id="models"')[2].partition("</section>")[0]
    assert "<td>mixed</td>" in row.replace(' class=""', "")
    assert "RAM (cpu)" in row
    assert "cuda:0" in row
    assert f"{host.groups[0].nbytes:,} bytes" in row


WIDTHS = """
JSON.stringify([document.documentElement.scrollWidth, window.innerWidth, [...document.querySelectorAll("body *")]
  .filter((each) => !each.closest(".scroll") && each.getBoundingClientRect().right > 376 && !each.closest("script"))
  .map((each) => each.tagName + "." + each.className + " " + each.textContent.slice(0, 40))])
"""


def test_on_a_phone_nothing_is_wider_than_the_screen(tmp_path, site, serving):
    """375 CSS pixels. Wide tables are moved in a frame of their own, which stays within the screen."""
    site.stories = [until_on_device(), running(), TROUBLES[:3]]
    command, address = chromium(), serving(site.application()).url
    with browser(command, tmp_path) as tab:
        tab.open(address, 375)
        appears(tab, "Why the figures differ")
        assert json.loads(tab.evaluate(WIDTHS)) == [375, 375, []]


def test_before_anything_has_happened_it_says_so(browse):
    text = browse()
    for sentence in ("No plan has started yet.", "No model is loaded.", "worker not ready"):
        assert sentence in text


def test_foreign_text_stays_text(browse):
    text = browse(step(1.0, "wait", 1.0, name=HOSTILE, model="", facts={"<b>": "<i>x</i>"}))
    assert "&lt;img src=x onerror=alert(1)&gt;" in text
    assert "<img" not in text
    assert "&lt;b&gt; &lt;i&gt;x&lt;/i&gt;" in text


def test_an_address_with_a_password_in_it_is_no_hindrance(tmp_path, site, serving):
    """Browsers refuse to fetch from such an address, so the page must not ask its own one again."""
    site.stories = [until_on_device()]
    url = serving(site.application()).url
    text = opened(tmp_path, url.replace("http://", "http://reader:secret@"))
    assert 'id="absent" class="badge bad" role="status" hidden=""' in text
    assert "996,322,304" in text


def test_it_says_when_the_server_has_no_answer_for_it(tmp_path, site, serving):
    def broken():
        raise RuntimeError("no time")

    site.clock = broken
    text = opened(tmp_path, serving(site.application()).url)
    assert "no answer yet" in text
    assert 'id="absent" class="badge bad" role="status"' in text
    assert 'id="main" class="stale"' in text
