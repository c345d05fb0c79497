import pytest

from vramscope.settings import is_offline


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
