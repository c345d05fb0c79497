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


def test_classes_that_keep_parameters_in_float32_or_store_buffers():
    plain = library.class_facts({"model_type": "llama"}, "float16")
    assert (plain.kept, "inv_freq" in plain.buffers, "weight" in plain.buffers) == (None, True, False)
    t5 = {"model_type": "t5"}
    assert library.class_facts(t5, "float16").kept.search("encoder.block.0.layer.1.DenseReluDense.wo.weight")
    assert library.class_facts(t5, "bfloat16").kept is None
    nested = {"model_type": "llava", "text_config": {"model_type": "deepseek_v3"}}
    facts = library.class_facts(nested, "bfloat16")
    assert facts.kept.search("model.layers.1.mlp.gate.weight")
    assert "e_score_correction_bias" in facts.buffers


def test_odd_configs_have_no_facts():
    for config in (
        {},
        {"model_type": 3},
        {"model_type": "../llama"},
        {"a_config": [], "b_config": {"model_type": None}, "c_config": {"model_type": ["llama"]}},
    ):
        assert library.class_facts(config, None) == library.ClassFacts()
