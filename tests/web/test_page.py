"""The live page in a real browser, against a real server."""

import shutil
import subprocess

import pytest

from ..picture import HOSTILE, back_and_gone, running, step, until_on_device  # noqa: TID252 - tests are not packages

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


def opened(tmp_path, url):
    """The document as the browser has it, after its script has run."""
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("Chromium is not installed: apt-get install --no-install-recommends chromium")
    command = [chromium, *FLAGS, f"--user-data-dir={tmp_path}", f"--virtual-time-budget={BUDGET_MILLISECONDS}"]
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
    for owner in ("parameters", "buffers", "allocator_rounding", "allocator_cache", "cuda_context", "free"):
        assert owner in text
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


def test_what_cannot_be_seen_at_the_scale_of_the_bar_is_not_widened(browse):
    text = browse(until_on_device())
    assert 'class="parameters seen"' in text
    assert 'class="buffers"' in text, "128 bytes of 12 GiB"


def test_rates_and_counts_read_as_people_write_them(browse):
    facts = {"bytes": 5 << 20, "bytes_per_second": 12345678901.2, "tokens": 12345, "share": 0.123456}
    text = browse(step(1.0, "move", 0.0004, facts=facts))
    assert "bytes 5,242,880 (5.0 MiB), rate 11,773.8 MiB/s, tokens 12,345, share 0.1235" in text
    assert "0.4 ms" in text


def test_before_anything_has_happened_it_says_so(browse):
    text = browse()
    for sentence in ("No plan has started yet.", "No model is loaded.", "worker not ready"):
        assert sentence in text


def test_foreign_text_stays_text(browse):
    text = browse(step(1.0, "wait", 1.0, name=HOSTILE, model="", facts={"<b>": "<i>x</i>"}))
    assert "&lt;img src=x onerror=alert(1)&gt;" in text
    assert "<img" not in text
    assert "&lt;b&gt; &lt;i&gt;x&lt;/i&gt;" in text


def test_it_says_when_the_server_has_no_answer_for_it(tmp_path, site, serving):
    def broken():
        raise RuntimeError("no time")

    site.clock = broken
    text = opened(tmp_path, serving(site.application()).url)
    assert "no answer yet" in text
    assert 'id="absent" class="badge bad" role="status"' in text
    assert 'id="main" class="stale"' in text
