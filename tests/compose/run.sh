#!/usr/bin/env bash
# Brings up docker-compose.yml with the simulated device on a real Docker engine and tests what it does.
#
#   tests/compose/run.sh PYTHON [pytest's arguments]
#
# An engine that answers already is used, with the real images; Grafana is left out if its image cannot be pulled. Where
# none answers, one is started for the time of the test, with stand-ins of Debian's packages (see engine.sh).
# Exits with 77, and one line that says why, where neither can be had.
set -euo pipefail
cd "$(dirname "$0")/../.."
# shellcheck source=tests/compose/engine.sh
. tests/compose/engine.sh

python=$1
shift
dir=$PWD/.venv-compose
log=$dir/build.log
mkdir -p "$dir"
PATH=$(cd "$(dirname "$python")" && pwd):$PATH  # docker-compose is installed beside Python

say() { echo "compose: $*"; }
skip() { echo "skipped: $*"; exit 77; }

command -v docker-compose >/dev/null || skip "docker-compose is not installed: pip install '.[deploy]'"
if docker version >/dev/null 2>&1; then
  say "the engine that is running"
else
  why=$(engine_missing)
  [ -z "$why" ] || skip "no Docker engine answers, and $why"
  mkdir -p "$dir/bin"
  ln -sf /usr/bin/docker "$dir/bin/"  # Debian's client has BuildKit in it; a newer one needs a plug-in for that
  PATH=$dir/bin:$PATH
  export DOCKER_HOST=unix://$dir/docker.sock
  trap 'engine_down "$dir"' EXIT
  engine_up "$dir" || skip "dockerd does not start here: $(tail -n 1 "$dir/dockerd.log")"
  say "an engine of its own, with stand-ins of Debian's packages"
  make_stand_ins "$dir"
fi
say "ready after $SECONDS s"

export VRAMSCOPE_IMAGE=vramscope:compose-test
arguments=(--file deploy/Dockerfile --tag "$VRAMSCOPE_IMAGE")
if "$python" -c 'import sys, torch; sys.exit("+cpu" not in torch.__version__)'; then
  # This machine has the CPU build at hand: the image gets it from here, and no other index is asked.
  rm -rf "$dir/wheels"
  "$python" -m pip download --quiet --no-deps --only-binary :all: --python-version 3.11 \
    --constraint constraints.txt --dest "$dir/wheels" torch
  tar -C "$dir/wheels" -c . | docker import - vramscope:compose-test-wheels >/dev/null
  rm -rf "$dir/wheels"
  arguments+=(--build-arg WHEELS_IMAGE=vramscope:compose-test-wheels)
else
  arguments+=(--build-arg "TORCH_INDEX_URL=${TORCH_INDEX_URL:-}")
fi
DOCKER_BUILDKIT=1 docker build --progress plain "${arguments[@]}" . >"$log" 2>&1 || { tail -n 40 "$log"; exit 1; }
say "image built after $SECONDS s, $(docker image inspect --format '{{.Size}}' "$VRAMSCOPE_IMAGE") bytes"

"$python" -m pytest tests/compose -m compose "$@"
