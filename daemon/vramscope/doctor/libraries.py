"""The libraries that a run imports, by their packages' own records: nothing is imported to look."""

from importlib.metadata import PackageNotFoundError, version

from vramscope.doctor._frame import Check, Finding, Machine, State

_NEEDED = (
    "transformers",
    "tokenizers",
    "safetensors",
    "huggingface_hub",
    "nvidia-ml-py",
    "prometheus-client",
    "hypercorn",
    "starlette",
    "pydantic",
)


def _look(_machine: Machine) -> Finding:
    found, missing = [], []
    for name in _NEEDED:
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            missing.append(name)
    if missing:
        advice = f"install them: `pip install {' '.join(missing)}`"
        return Finding(state=State.PROBLEM, found=f"not installed: {', '.join(missing)}", advice=advice)
    return Finding(state=State.OK, found=", ".join(found))


CHECK = Check(title="libraries", look=_look)
