#!/usr/bin/env bash
# A dockerd of one's own for tests: it makes no network and sees nobody else's containers. It needs root.
#   tools/docker.sh start DIR      and print the address of its socket; if it answers already, print that alone
#   tools/docker.sh stop DIR       and everything that runs in it; a second time does nothing
# All that it has is in DIR. It is ended by the number in its own pid file, and only while that is still a dockerd.
set -euo pipefail

if [ $# != 2 ]; then
  sed -n '2,5s/^# \{0,1\}//p' "$0" >&2
  exit 2
fi
case $1 in
  start) mkdir -p "$2" ;;
  stop) [ -d "$2" ] || exit 0 ;;
  *) echo "docker.sh: start or stop, not $1" >&2; exit 2 ;;
esac
dir=$(cd "$2" && pwd)
socket=$dir/docker.sock pidfile=$dir/docker.pid log=$dir/dockerd.log
containerd=$dir/exec/containerd # its own one; what runs in it is listed below

answers() { timeout 5 docker --host "unix://$socket" version >/dev/null 2>&1; }

lives() { # lives PIDFILE NAME: and is not one that has ended and that nobody has asked about
  local status
  [ -s "$1" ] && status=$(cat "/proc/$(cat "$1")/status" 2>/dev/null) && grep -q "^Name:[[:space:]]$2$" <<<"$status" &&
    ! grep -q '^State:[[:space:]][ZX]' <<<"$status"
}

start() {
  if lives "$pidfile" dockerd && answers; then echo "unix://$socket"; return; fi
  if [ "$(id -u)" != 0 ]; then echo "docker.sh: a dockerd needs root" >&2; exit 1; fi
  if [ "${#socket}" -gt 100 ]; then echo "docker.sh: $dir is too long a path for a socket" >&2; exit 1; fi
  lives "$pidfile" dockerd || rm -f "$pidfile"
  lives "$containerd/containerd.pid" containerd || rm -f "$containerd/containerd.pid"
  # No bridge and no rules: with them it would leave an interface, chains and ip_forward=1 behind. The ulimit, because
  # where CAP_SYS_RESOURCE is missing, runc cannot raise a limit and every container would fail to start.
  setsid dockerd --data-root "$dir/data" --exec-root "$dir/exec" --host "unix://$socket" --pidfile "$pidfile" \
    --bridge=none --iptables=false --ip6tables=false --ip-masq=false --default-ulimit nofile=1024:1024 \
    --shutdown-timeout 2 </dev/null >"$log" 2>&1 &
  local child=$!
  for _ in $(seq 300); do
    if answers; then echo "unix://$socket"; return; fi
    if ! kill -0 "$child" 2>/dev/null; then break; fi
    sleep 0.1
  done
  echo "docker.sh: dockerd did not come up; the end of $log:" >&2
  tail -n 15 "$log" >&2
  kill "$child" 2>/dev/null || true
  exit 1
}

unmount() { # what one that was killed had mounted in DIR, the last first
  local target targets=()
  while read -r _ target _; do
    printf -v target %b "$target"
    case $target in "$dir"/*) targets=("$target" "${targets[@]}") ;; esac
  done </proc/self/mounts
  for target in "${targets[@]}"; do umount "$target"; done
}

stop() {
  end
  unmount
}

end() {
  if ! lives "$pidfile" dockerd; then
    # One that was killed has left its containers behind, and knows best how to end them.
    if [ -z "$(ls "$containerd"/daemon/io.containerd.runtime.v2.task/moby 2>/dev/null)" ]; then return; fi
    start >/dev/null
  fi
  local pid
  pid=$(cat "$pidfile")
  kill "$pid"
  for _ in $(seq 150); do
    if ! lives "$pidfile" dockerd; then return; fi
    sleep 0.1
  done
  kill -KILL "$pid"
}

"$1"
