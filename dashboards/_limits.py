"""From when on a device is nearly full: the alerts' thresholds, which deploy/prometheus/rules record as series."""

from dashboards._queries import of

USED_RATIO = "instance_device:vramscope_vram_used:ratio"
WARNING_RATIO = "instance_device:vramscope_vram_used_ratio:warning"
CRITICAL_RATIO = "instance_device:vramscope_vram_used_ratio:critical"


def limit_bytes(ratio: str) -> str:
    """A threshold of each device chosen, in bytes of its VRAM."""
    return f"{of(ratio, 'device')} * on (instance, device) {of('vramscope_nvml_total_bytes', 'device')}"


def over(ratio: str) -> str:
    """1 for each device chosen that is over its threshold, else 0."""
    return f"({of(USED_RATIO, 'device')} > bool on (instance, device) {of(ratio, 'device')})"
