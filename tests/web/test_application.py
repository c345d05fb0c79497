import re
from base64 import b64encode
from hashlib import sha256

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from vramscope.events import PlanStarted, WorkerExited

from ..picture import READY, back_and_gone, until_on_device  # noqa: TID252 - tests are not packages

PATHS = ("/", "/metrics", "/status", "/healthz", "/readyz")


def test_metrics_are_text_unless_openmetrics_is_asked_for(site):
    answer = site.ask("/metrics")
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert len(list(parse_text(answer.text))) == 1
    assert "# EOF" not in answer.text


def test_openmetrics_ends_with_eof(site):
    answer = site.ask("/metrics", accept="application/openmetrics-text; version=1.0.0")
    assert answer.headers["content-type"] == "application/openmetrics-text; version=1.0.0; charset=utf-8"
    assert answer.text.endswith("# EOF\n")
    assert len(list(parse_openmetrics(answer.text))) == 1
    assert answer.headers["vary"] == "Accept, Accept-Encoding"


def test_gzip_is_used_where_it_is_taken_and_is_smaller(site):
    plain = site.ask("/metrics", accept_encoding="gzip;q=0, identity")
    packed = site.ask("/metrics", accept_encoding="gzip")
    assert "content-encoding" not in plain.headers
    assert packed.headers["content-encoding"] == "gzip"
    assert int(packed.headers["content-length"]) < len(plain.content) / 4
    assert packed.text == plain.text


def test_a_small_page_is_not_worth_packing(site):
    site.collect = list
    assert "content-encoding" not in site.ask("/metrics", accept_encoding="gzip").headers


@pytest.mark.parametrize("path", PATHS)
def test_head_has_the_headers_of_get(site, path):
    site.stories = [until_on_device()]
    get = site.ask(path)
    site.stories = [until_on_device()]
    head = site.ask(path, "HEAD")
    assert head.status_code == get.status_code == 200
    assert head.headers == get.headers


def test_status_of_a_plan_whose_path_is_no_utf_8_is_json(site):
    path = "/plans/pl\udcffan.yaml"
    site.stories = [[PlanStarted(at=1.0, plan="p", sha256="0", path=path, cycles=1)]]
    assert site.ask("/status").json()["plan"]["path"] == path


@pytest.mark.parametrize("path", ["/metric", "/metrics/", "/status/x", "/%00", "/.env"])
def test_unknown_paths_are_404_in_text(site, path):
    answer = site.ask(path)
    assert answer.status_code == 404
    assert answer.headers["content-type"].startswith("text/plain")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
def test_other_methods_are_405(site, method):
    answer = site.ask("/metrics", method)
    assert answer.status_code == 405
    assert set(answer.headers["allow"].split(", ")) == {"GET", "HEAD"}


@pytest.mark.parametrize("path", [*PATHS, "/nothing"])
def test_every_answer_is_strict(site, path):
    headers = site.ask(path).headers
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["cache-control"] == "no-store"
    assert "default-src 'none'" in headers["content-security-policy"]
    assert "unsafe-inline" not in headers["content-security-policy"]


def test_the_page_may_run_its_own_script_and_style_and_loads_nothing_from_elsewhere(site):
    answer = site.ask("/")
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    for element in ("script", "style"):
        (body,) = re.findall(f"<{element}>(.*?)</{element}>", answer.text, re.DOTALL)
        digest = b64encode(sha256(body.encode()).digest()).decode()
        assert f"{element}-src 'sha256-{digest}'" in answer.headers["content-security-policy"]
    assert not re.search(r"https?://|//[a-z]+\.", answer.text)
    assert not re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|\son[a-z]+=", answer.text)


def test_a_fault_is_500_in_text_and_strict_too(site):
    def broken():
        raise RuntimeError("secret detail")

    site.collect = broken
    answer = site.ask("/metrics")
    assert answer.status_code == 500
    assert "secret" not in answer.text
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_healthz_is_ok_unless_there_is_a_complaint(site):
    assert (site.ask("/healthz").status_code, site.ask("/healthz").text) == (200, "ok")
    site.complaint = "the loop is late by 12 s"
    assert (site.ask("/healthz").status_code, site.ask("/healthz").text) == (503, "the loop is late by 12 s")


PLAN = PlanStarted(at=1.0, plan="p", sha256="", path="", cycles=None)
GONE = WorkerExited(at=1.0, pid=17, reason="signal", detail="", expected=False)


@pytest.mark.parametrize(
    ("story", "status", "text"),
    [
        ([], 503, "no plan has started"),
        ([READY], 503, "no plan has started"),
        ([PLAN], 503, "the worker is not ready"),
        ([READY, PLAN], 200, "ok"),
        ([*until_on_device(), *back_and_gone()], 200, "ok"),
        ([*until_on_device(), GONE], 503, "the worker is not ready"),
    ],
    ids=["nothing", "no plan", "no worker", "running", "finished", "worker died"],
)
def test_readyz_says_why_not(site, story, status, text):
    site.stories = [story]
    answer = site.ask("/readyz")
    assert (answer.status_code, answer.text) == (status, text)
