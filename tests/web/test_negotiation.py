import pytest

from vramscope.web.negotiation import Format, metrics_format, takes_gzip

PROMETHEUS_2 = (
    "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,"
    "text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
)
PROMETHEUS_3 = (
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,"
    "application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,"
    "text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
)
BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"


@pytest.mark.parametrize(
    "accept",
    [
        PROMETHEUS_2,
        PROMETHEUS_3,
        "application/openmetrics-text",
        'Application/OpenMetrics-Text; version="1.0.0"',
        "text/plain, application/openmetrics-text",
        "text/plain;q=0.5, application/openmetrics-text;q=0.7",
    ],
)
def test_openmetrics_for_who_likes_it_best(accept):
    assert metrics_format(accept) is Format.OPENMETRICS


@pytest.mark.parametrize(
    "accept",
    [
        "",
        "*/*",
        BROWSER,
        "text/plain",
        "application/json",
        "application/openmetrics-text;q=0",
        "application/openmetrics-text;q=0.3, text/plain;q=0.4",
        "application/openmetrics-text;version=0.0.1",
        "application/openmetrics-text;version=2.0.0",
        "application/openmetrics-text;q=much",
        "application/openmetrics-text;q=7",
        "application/openmetrics-text;q=nan",
        ";;,,=;q",
    ],
)
def test_text_for_everybody_else(accept):
    assert metrics_format(accept) is Format.TEXT


@pytest.mark.parametrize(
    "header", ["gzip", "deflate, GZIP;q=0.1", "*", "x-gzip", "identity;q=0, *;q=0.5", "br,gzip ; q=1"]
)
def test_gzip_is_taken(header):
    assert takes_gzip(header)


@pytest.mark.parametrize("header", ["", "identity", "gzip;q=0", "gzip;q=0.000, *", "*;q=0", "br, deflate", "gzip;q=x"])
def test_gzip_is_refused(header):
    assert not takes_gzip(header)
