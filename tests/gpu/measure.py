"""Measures vramscope on a real GPU: forecast against measurement to the byte, the ledger, and the phases.

Run by `make test-gpu`; at most four minutes. Prints what it finds, writes a JSON result, and exits 1 if the forecast
was off by a byte, the ledger did not add up, a cycle failed, or there is no CUDA device.
"""

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PLAN = ROOT / "deploy/plans/demo.yaml"
LIMIT_SECONDS = 200.0
POLL_SECONDS = 0.1
MIB = 1 << 20


def environment() -> dict[str, str]:
    """The environment for child processes: the source tree where the package is not installed."""
    path = os.pathsep.join(filter(None, [str(ROOT / "daemon"), os.environ.get("PYTHONPATH", "")]))
    return {**os.environ, "PYTHONPATH": path}


def forecast() -> dict[str, Any]:
    """What `vramscope forecast` says for the real device."""
    command = [sys.executable, "-m", "vramscope", "forecast", str(PLAN), "--device", "cuda", "--format", "json"]
    began = time.monotonic()
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=100, check=False)
    if done.returncode not in {0, 1} or not done.stdout:
        sys.exit(f"forecast failed: {done.stderr.strip()}")
    return {"seconds": time.monotonic() - began, **json.loads(done.stdout)}


@contextmanager
def daemon(output: Path) -> Iterator[str]:
    """A running daemon's address; it is stopped at the end, by its pid."""
    command = [sys.executable, "-m", "vramscope", "run", str(PLAN), "--device", "cuda", "--listen", "127.0.0.1:0"]
    with output.open("w") as file:
        process = subprocess.Popen(command, env=environment(), stdout=file, stderr=subprocess.STDOUT)
    try:
        yield _address(process, output)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(20)


def _address(process: subprocess.Popen[bytes], output: Path) -> str:
    end = time.monotonic() + 30
    while time.monotonic() < end:
        if found := re.search(r"http://[\w.:]+/", output.read_text()):
            return found[0]
        if process.poll() is not None:
            break
        time.sleep(POLL_SECONDS)
    sys.exit(f"the daemon did not start:\n{output.read_text()}")


def watch(address: str) -> tuple[dict[str, Any], dict[str, Any], list[dict[str, Any]]]:
    """The status while the model was on the device, the status at the end, and every forecast error but 0."""
    on_device: dict[str, Any] = {}
    errors: list[dict[str, Any]] = []
    end = time.monotonic() + LIMIT_SECONDS
    while time.monotonic() < end:
        with urllib.request.urlopen(f"{address}status", timeout=5) as answer:
            status = json.load(answer)
        errors += [
            {"device": device["device"], **device["forecast"]}
            for device in status["devices"]
            if device["forecast"]
            and (device["forecast"]["allocated_error_bytes"] or device["forecast"]["reserved_error_bytes"])
        ]
        running = status["running"] or {}
        if running.get("kind") == "wait":
            on_device = status
        if status["plan"]["outcome"]:
            return on_device, status, errors
        time.sleep(POLL_SECONDS)
    sys.exit(f"the plan was not done within {LIMIT_SECONDS:g} s")


def check(on_device: dict[str, Any], last: dict[str, Any], errors: list[dict[str, Any]]) -> list[str]:
    """What is wrong, as sentences."""
    wrong = [f"the forecast was off: {error}" for error in errors]
    if last["plan"]["outcome"] != "succeeded":
        wrong.append(f"the plan {last['plan']['outcome']}: {last['faults']}")
    if last["forecast_lost"]:
        wrong.append(f"nothing was forecast: {last['forecast_lost']}")
    for device in on_device.get("devices", []):
        if device["ledger"] and sum(device["ledger"].values()) != device["driver"]["total_bytes"]:
            wrong.append(f"the ledger of {device['device']} does not add up")
        if device["ledger"] is None:
            wrong.append(f"{device['device']} has no ledger: {device['driver_error']}")
    if not on_device:
        wrong.append("the model was never seen on the device")
    return wrong


def show(result: dict[str, Any]) -> None:
    """Print the figures for people."""
    print(f"{result['device']['name']}, {result['versions']}")
    print(f"forecast in {result['forecast']['seconds']:.2f} s; error in the run: {result['errors'] or '0 bytes'}")
    for owner, nbytes in (result["device"]["ledger"] or {}).items():
        print(f"  {owner:20} {nbytes:>16,} bytes {nbytes / MIB:>12,.1f} MiB")
    for phase in result["phases"]:
        rate = phase["nbytes"] / phase["seconds"] / 1e9 if phase["nbytes"] and phase["seconds"] else None
        speed = f"{rate:8.2f} GB/s" if rate else ""
        print(f"  {phase['kind']:10} {phase['phase']:12} {phase['seconds'] * 1000:10.2f} ms {speed}")
    for sentence in result["wrong"]:
        print(f"WRONG: {sentence}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=ROOT / "gpu-result.json")
    arguments = parser.parse_args()
    foreseen = forecast()
    with tempfile.TemporaryDirectory() as directory:
        log = Path(directory) / "daemon.log"
        with daemon(log) as address:
            on_device, last, errors = watch(address)
        said = log.read_text()
    wrong = check(on_device, last, errors)
    result = {
        "passed": not wrong,
        "wrong": wrong,
        "versions": last["worker"]["versions"],
        "device": next(iter(on_device.get("devices", last["devices"]))),
        "errors": errors,
        "forecast": foreseen,
        "phases": last["phases"],
        "steps": last["steps"],
        "results": last["results"],
        "log": said,
    }
    arguments.output.write_text(json.dumps(result, indent=2))
    show(result)
    return 0 if result["passed"] else 1


if __name__ == "__main__":
    sys.exit(main())
