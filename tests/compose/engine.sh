# shellcheck shell=bash
# A Docker engine of our own, and stand-ins for the images that docker-compose.yml names, for a machine that has
# Debian's packages but no image registry. Sourced by run.sh.
#
# The stand-ins are made of Debian's packages: the same programs as in the real images, of older releases. They prove
# how the parts work together, not what a release of Prometheus or Alertmanager does.

# What an engine of our own takes, in Debian: docker.io iptables debootstrap busybox-static prometheus
# prometheus-alertmanager. Prints why it cannot be had; nothing if it can.
engine_missing() {
  local program missing=()
  [ "$(uname -s) $(uname -m)" = "Linux x86_64" ] || { echo "an engine of its own needs Linux on x86-64"; return; }
  [ "$(id -u)" = 0 ] || { echo "an engine of its own needs root"; return; }
  for program in dockerd /usr/bin/docker iptables-restore debootstrap /bin/busybox \
    prometheus promtool prometheus-alertmanager amtool; do
    command -v "$program" >/dev/null || missing+=("$program")
  done
  if ((${#missing[@]})); then
    echo "an engine of its own needs ${missing[*]}"
  elif ! iptables-save >/dev/null 2>&1; then
    echo "an engine of its own needs to set rules with iptables"
  elif [ -e /sys/class/net/docker0 ]; then
    echo "there is a docker0: an engine runs that this user cannot reach, or left it behind (ip link delete docker0)"
  fi
}

# engine_up DIR: start dockerd with all its state in DIR; returns 1 if this machine does not let it.
engine_up() {
  local dir=$1
  iptables-save >"$dir/iptables.before"
  cat /proc/sys/net/ipv4/ip_forward >"$dir/ip_forward.before"
  # A session of its own: Ctrl-C must reach the tests first, which take their containers down with this engine.
  setsid dockerd --data-root "$dir/data" --exec-root "$dir/exec" --pidfile "$dir/dockerd.pid" \
    --host "$DOCKER_HOST" >"$dir/dockerd.log" 2>&1 &
  ENGINE_PID=$!
  for _ in $(seq 300); do
    docker version >/dev/null 2>&1 && return
    kill -0 "$ENGINE_PID" 2>/dev/null || break
    sleep 0.2
  done
  return 1
}

# engine_down DIR: stop it and undo what it leaves behind.
engine_down() {
  local dir=$1 table
  # What a test that was interrupted left running; all in this engine is ours.
  docker container ls --all --quiet 2>/dev/null | xargs --no-run-if-empty docker container rm --force --volumes >/dev/null 2>&1 || true
  docker network prune --force >/dev/null 2>&1 || true
  if kill "$ENGINE_PID" 2>/dev/null; then
    wait "$ENGINE_PID" || true
  fi
  ip link delete docker0 2>/dev/null || true
  # iptables-save leaves out a table that was never used: that one was empty.
  for table in filter nat; do
    grep -qx "\*$table" "$dir/iptables.before" && continue
    printf '*%s\nCOMMIT\n' "$table" | iptables-restore
    [ "$table" = nat ] || iptables --policy FORWARD ACCEPT
  done
  iptables-restore <"$dir/iptables.before"
  cat "$dir/ip_forward.before" >/proc/sys/net/ipv4/ip_forward
}

# has_image TAG
has_image() { docker image inspect "$1" >/dev/null 2>&1; }

# make_python TAG DIR: Debian's Python with pip and venv, as python:3.11-slim-bookworm has them, and a compiler, so that
# the build asks no mirror of Debian's for one.
make_python() {
  local tag=$1 root=$2/python
  has_image "$tag" && docker run --rm "$tag" gcc --version >/dev/null 2>&1 && return
  rm -rf "$root"
  debootstrap --variant=minbase --include=ca-certificates,gcc,libc6-dev,python3,python3-pip,python3-venv bookworm "$root" \
    >"$2/debootstrap.log" 2>&1
  ln -sf python3 "$root/usr/bin/python"
  rm -rf "$root"/usr/lib/python3.11/EXTERNALLY-MANAGED "$root"/var/cache/apt/archives/*.deb \
    "$root"/var/lib/apt/lists/* "$root"/usr/share/{doc,man,locale}/*
  # Whom this machine trusts besides, such as a proxy of its network.
  cp /usr/local/share/ca-certificates/*.crt "$root/usr/local/share/ca-certificates/" 2>/dev/null || true
  chroot "$root" update-ca-certificates >/dev/null 2>&1
  tar -C "$root" -c . | docker import --change 'ENV LANG=C.UTF-8 PIP_CERT=/etc/ssl/certs/ca-certificates.crt' \
    - "$tag" >/dev/null
  rm -rf "$root"
}

# make_program TAG DIR NAME PROGRAM TOOL: an image with one program, its tool, busybox, and a folder for its state.
make_program() {
  local tag=$1 root=$2/$3 name=$3 program=$4 tool=$5
  has_image "$tag" && return
  rm -rf "$root"
  mkdir -p "$root"/{bin,etc,lib64,lib/x86_64-linux-gnu} "$root/etc/$name" "$root/$name" "$root/usr/share"
  mkdir --mode=1777 "$root/tmp"
  cp /bin/busybox "$root/bin/"
  busybox --list | while read -r applet; do ln -sf busybox "$root/bin/$applet"; done
  cp -L /lib64/ld-linux-x86-64.so.2 "$root/lib64/"
  cp -L "$(command -v "$program")" "$root/bin/$name"
  cp -L "$(command -v "$tool")" "$root/bin/"
  # The libraries that it is linked to, and those that look names up, which are loaded later.
  {
    ldd "$root/bin/$name" | awk '/=> \//{print $3}'
    printf '/lib/x86_64-linux-gnu/%s\n' libnss_dns.so.2 libnss_files.so.2 libresolv.so.2
  } | xargs -I{} cp -L {} "$root/lib/x86_64-linux-gnu/"
  cp -r /usr/share/prometheus "$root/usr/share/"  # Debian's Alertmanager reads its templates there
  echo 'nobody:x:65534:65534:nobody:/:/bin/false' >"$root/etc/passwd"
  echo 'hosts: files dns' >"$root/etc/nsswitch.conf"
  chown -R 65534:65534 "$root/$name"
  tar -C "$root" -c . | docker import --change 'USER nobody' --change "VOLUME [\"/$name\"]" \
    --change "ENTRYPOINT [\"/bin/$name\"]" - "$tag" >/dev/null
  rm -rf "$root"
}

# image_of NAME: the image that docker-compose.yml pins.
image_of() { sed -n "s|^ *image: \($1:.*\)|\1|p" docker-compose.yml; }

# make_stand_ins DIR
make_stand_ins() {
  make_python "$(sed -n 's/^ARG PYTHON_IMAGE=//p' deploy/Dockerfile)" "$1"
  make_program "$(image_of prom/prometheus)" "$1" prometheus prometheus promtool
  make_program "$(image_of prom/alertmanager)" "$1" alertmanager prometheus-alertmanager amtool
}
