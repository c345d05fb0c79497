import pytest

from vramscope.settings import forbidden_downloads, hub_address, is_offline, stay_offline


@pytest.mark.parametrize(
    ("environment", "offline"),
    [
        ({}, False),
        ({"HF_HUB_OFFLINE": "1"}, True),
        ({"HF_HUB_OFFLINE": "yes"}, True),
        ({"HF_HUB_OFFLINE": "0"}, False),
        ({"HF_HUB_OFFLINE": "0", "TRANSFORMERS_OFFLINE": "1"}, False),
        ({"HF_HUB_OFFLINE": "", "TRANSFORMERS_OFFLINE": "on"}, True),
    ],
)
def test_the_hub_is_forbidden_by_its_own_rule(environment, offline):
    assert is_offline(environment) is offline


def test_a_password_in_the_address_of_the_hub_is_not_repeated():
    assert hub_address("https://mirror:ses@me@example.org:8/hub") == "https://example.org:8/hub"
    assert hub_address("https://example.org/a@b") == "https://example.org/a@b"


@pytest.mark.parametrize("endpoint", ["http://me:sesame@[::bad", "hf-mirror.com", "file:///etc", "https://"])
def test_what_is_no_address_forbids_downloads_and_is_kept_from_the_library(endpoint):
    environment = {"HF_ENDPOINT": endpoint}
    assert forbidden_downloads(environment) == (
        f"HF_ENDPOINT={endpoint.rpartition('@')[2]} is no address: "
        "set it to an address that begins with https://, or unset it"
    )
    stay_offline(environment)
    assert environment == {"HF_HUB_OFFLINE": "1"}


@pytest.mark.parametrize("endpoint", ["https://hf-mirror.com", "http://me:sesame@[::1]:80/hub/"])
def test_an_address_is_left_to_the_process_that_downloads(endpoint):
    environment = {"HF_ENDPOINT": endpoint}
    assert forbidden_downloads(environment) == ""
    stay_offline(environment)
    assert environment == {"HF_ENDPOINT": endpoint, "HF_HUB_OFFLINE": "1"}
