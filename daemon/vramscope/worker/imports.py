"""Spares the imports of torch and transformers, which are most of a worker's start, what they need not wait for."""

import ctypes
import importlib.util
import os
import threading
from contextlib import suppress
from pathlib import Path


def preload_torch() -> None:
    """Have torch's shared libraries loaded in a thread, which takes a tenth of the import and no interpreter.

    As torch itself does, it begins with those whose symbols everybody shares. Where anything is not as expected, the
    import finds nothing loaded, and loads it.
    """
    threading.Thread(target=_preload, name="preload-torch", daemon=True).start()


def _preload() -> None:
    with suppress(ImportError, AttributeError, OSError):
        spec = importlib.util.find_spec("torch")
        if spec is None or not spec.submodule_search_locations:
            return
        libraries = Path(spec.submodule_search_locations[0]) / "lib"
        # ctypes.CDLL would hold the interpreter's lock meanwhile; a call of a C function does not.
        dlopen = ctypes.CDLL(None).dlopen
        dlopen.argtypes, dlopen.restype = (ctypes.c_char_p, ctypes.c_int), ctypes.c_void_p
        dlopen(os.fsencode(libraries / "libtorch_global_deps.so"), os.RTLD_NOW | os.RTLD_GLOBAL)
        dlopen(os.fsencode(libraries / "libtorch.so"), os.RTLD_LAZY)


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
