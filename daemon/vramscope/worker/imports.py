"""Spares the import of transformers, which is a good part of a worker's start, what it does twice."""

from contextlib import suppress
from pathlib import Path


def import_transformers() -> None:
    """Import transformers with its package of models, without looking through all the model files a second time.

    transformers lists what they define once for itself and once for that package, by the same function. The first list
    is kept by the function, and is the second one but for a prefix.
    """
    import transformers.utils.import_utils as utils  # noqa: PLC0415 - takes seconds, which the caller chooses when to spend

    models = Path(utils.__file__).parents[1] / "models"
    define = utils.define_import_structure
    with suppress(AttributeError, TypeError):  # another release may do it otherwise
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
        import transformers.models  # noqa: F401, PLC0415
    finally:
        utils.define_import_structure = define
