#!/usr/bin/env bash
# The README's two commands on a machine nobody prepared: an ordinary user with Python, pip, make and git. Bubblewrap,
# container engines and PostgreSQL are hidden from it in mounts of its own, which end with this script.
#
#   tools/bare.sh [NOT_RUN_FILE]     as root; the names of tests that could not run there are written into NOT_RUN_FILE
#
# First pass: Landlock is the isolation; `make demo` and all tests. Second pass: no isolation at all (Landlock's system
# calls answer ENOSYS); `make demo` and the suites of the command line.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

if [ "$(id -u)" != 0 ] || ! unshare -m --propagation private true 2>/dev/null; then
  printf '\n!!! NOT RUN: the bare machine. Only root can hide bubblewrap, containers and PostgreSQL (tools/bare.sh).\n\n' >&2
  exit 0
fi
if [ -z "${BARE_INSIDE:-}" ]; then
  folder=$(mktemp -d /var/tmp/prowess-bare-XXXXXX)
  trap 'rm -rf -- "$folder"' EXIT
  export BARE_INSIDE=$folder
  unshare -m --propagation private "${BASH_SOURCE[0]}" "$(realpath -m -- "${1:-/dev/null}")"
  exit 0
fi

folder=$BARE_INSIDE not_run=$1 user=bare uid=61234
hidden=(bwrap docker dockerd podman containerd runc postgres initdb pg_ctl psql)

# Both passes write 1.5 GB in 150,000 files. In memory, where there is enough, nobody waits for the disk or removes them.
in_memory=$(awk '/^MemAvailable:/ && $2 > 4000000' /proc/meminfo)
if [ -n "$in_memory" ]; then mount -t tmpfs -o mode=755 tmpfs "$folder"; fi

# A file that cannot be executed lies over each program; where Debian keeps PostgreSQL, there is an empty folder.
touch "$folder/nothing"
for program in $(type -aP "${hidden[@]}" || true); do
  mount --bind "$folder/nothing" "$(realpath -- "$program")"
done
if [ -d /usr/lib/postgresql ]; then mount -t tmpfs -o mode=755 tmpfs /usr/lib/postgresql; fi
for program in $(type -aP "${hidden[@]}" || true); do
  if [ -x "$program" ]; then echo "bare: $program is still there" >&2; exit 1; fi
done

# The user, who has what is committed and what is not committed yet, and nothing that was installed.
cp /etc/passwd /etc/group "$folder"
echo "$user:x:$uid:$uid::$folder/home:/bin/bash" >>"$folder/passwd"
echo "$user:x:$uid:" >>"$folder/group"
mount --bind "$folder/passwd" /etc/passwd
mount --bind "$folder/group" /etc/group
chmod 755 "$folder"
git -c safe.directory='*' clone -q --no-hardlinks . "$folder/prowess"
git ls-files -z --modified --others --exclude-standard | tar -c --null --ignore-failed-read -T - 2>/dev/null | tar -x -C "$folder/prowess"
mkdir -p "$folder/home/.config"
pip_settings=${XDG_CONFIG_HOME:-$HOME/.config}/pip
if [ -d "$pip_settings" ]; then cp -r "$pip_settings" "$folder/home/.config/"; fi
exec 3>"$not_run"
cd "$folder/prowess" # what is in /tmp, which may be the clone, is not seen from here on
if [ -n "$in_memory" ]; then mount -t tmpfs -o mode=1777 tmpfs /tmp; fi
chown -R "$uid:$uid" "$folder/home" "$folder/prowess"
path=/usr/local/bin:/usr/bin:/bin
if ! env -i PATH=$path python3 -c 'import ensurepip, sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
  # The Python that we have may lie in a home that is closed: that part of it is opened, and nothing else of it.
  prefix=$(python3 -c 'import sys; print(sys.base_prefix)')
  top=/$(cut -d/ -f2 <<<"$prefix")
  mount --bind "$prefix" /mnt && mount -t tmpfs -o mode=755 tmpfs "$top"
  mkdir -p "$prefix" && mount --move /mnt "$prefix"
  path=$prefix/bin:$path
fi

mapfile -t settings < <(env | grep -E '^(PIP_[A-Z_]+|SSL_CERT_(FILE|DIR)|REQUESTS_CA_BUNDLE|CI|[a-zA-Z]+_(proxy|PROXY))=' || true)
as_user() {
  setpriv --reuid $uid --regid $uid --clear-groups \
    env -i HOME="$folder/home" USER=$user PATH=$path LANG=C.UTF-8 "${settings[@]}" "$@" </dev/null 3>&-
}
step() {
  local from=$SECONDS
  printf '\n--- bare: %s\n' "$*"
  "$@"
  printf -- '--- bare: %s: %s s\n' "$*" "$((SECONDS - from))"
}
mechanism() { # of isolation, from `prowess doctor`; `none` where none holds
  as_user "$@" .venv/bin/prowess doctor --workspace --json | python3 -c '
import json, sys
print((json.load(sys.stdin)["workspace"]["isolation"] or {}).get("mechanism", ""))'
}
expect() { # WHAT, then the words that come before the command
  local wanted=$1 found
  shift
  found=$(mechanism "$@")
  if [ "$found" != "$wanted" ]; then echo "bare: the isolation is '$found', not '$wanted'" >&2; exit 1; fi
  echo "bare: isolation: $found"
}

no_landlock=(.venv/bin/python tools/no_landlock.py)
surface='tests/cli tests/project'
step as_user make demo
expect landlock+seccomp
step as_user REQUIRE_TIERS=landlock make test ARGS="--write-not-run=$folder/home/not-run"
cat "$folder/home/not-run" >&3
rm -r "$folder/home/.cache/prowess" # where it is kept that Landlock holds
expect none "${no_landlock[@]}"
step as_user "${no_landlock[@]}" make demo
step as_user "${no_landlock[@]}" make test ARGS="$surface"
