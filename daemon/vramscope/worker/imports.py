"""Spares the import of transformers, which is a good part of a worker's start, what it does twice."""

import importlib
from contextlib import suppress
from pathlib import Path
from typing import Any


def import_transformers() -> None:
    """Import transformers with its package of models, without looking through all the model files a second time.

    transformers lists what they define once for itself and once for that package, by the same function. The first list
    is kept by the function, and is the second one but for a prefix. Where another release does it otherwise, nothing is
    spared, and who uses transformers next imports the rest.
    """
    with suppress(Exception):
        utils: Any = importlib.import_module("transformers.utils.import_utils")
        models = Path(utils.__file__ or "").parents[1] / "models"
        define = utils.define_import_structure
        listed = {
            needs: {
                name.removeprefix("models."): names for name, names in modules.items() if name.startswith("models.")
            }
            for needs, modules in define(models, prefix="models").items()
        }
        utils.define_import_structure = lambda path, prefix=None: (
            listed if (Path(path).parent, prefix) == (models, None) else define(path, prefix)
        )
        try:
            importlib.import_module("transformers.models")
        finally:
            utils.define_import_structure = define
