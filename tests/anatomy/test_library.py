from importlib.metadata import version

from vramscope.anatomy import library


def test_every_model_type_of_the_installed_release_is_known():
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES

    assert [name for name in CONFIG_MAPPING_NAMES if not library.knows(name)] == []


def test_others_are_not():
    for name in ("zzz_custom", "", 'llama"', "x" * 1000):
        assert library.knows(name) is False


def test_the_release_is_named():
    assert library.release() == f"transformers {version('transformers')}"
