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


def test_what_a_class_does_with_its_embeddings_where_no_config_says_it():
    from transformers import AutoConfig

    for name in ("llama", "gpt2", "bert", "qwen2", "gemma2", "opt", "mistral", "t5"):
        assert library.ties(name) is AutoConfig.for_model(name).tie_word_embeddings, name
    for name in ("zzz_custom", "../llama", ""):
        assert library.ties(name) is None
