#!/usr/bin/env bash
# What needs root or system packages: bubblewrap, for running scripts in a sandbox; a dockerd for the tests of the
# container executor and PostgreSQL for those of its session store. Both are installed and not started: the tests start
# their own. All else is looked at.
set -euo pipefail
python=${PYTHON:-python3}

ok() { printf '  ok       %s\n' "$*"; }
missing() { printf '  MISSING  %s\n' "$*"; failed=1; }
failed=0

find_initdb() { type -P initdb || { compgen -G '/usr/lib/postgresql/*/bin/initdb' || true; } | sort -V | tail -n 1; }

wanted=()
if [ "$(uname -s)" = Linux ]; then
  [ -n "$(find_initdb)" ] || wanted+=(postgresql)
  command -v bwrap >/dev/null || wanted+=(bubblewrap)
  for program in dockerd containerd runc; do command -v "$program" >/dev/null || { wanted+=(docker.io); break; }; done
fi

installed="installed nothing, changed nothing"
if [ ${#wanted[@]} != 0 ] && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
  echo "make system: installing ${wanted[*]}"
  export DEBIAN_FRONTEND=noninteractive
  no_services=/usr/sbin/policy-rc.d # asked by every package that would start a service
  if [ ! -e "$no_services" ]; then
    trap 'rm -f "$no_services"' EXIT
    printf '#!/bin/sh\nexit 101\n' >"$no_services"
    chmod +x "$no_services"
  fi
  install() { apt-get install -y -qq --no-install-recommends "$@" >/dev/null; }
  no_cluster() { # Debian makes a database with the package, unless its other package says not to
    [[ " ${wanted[*]} " != *" postgresql "* ]] || { install postgresql-common &&
      sed -ri 's/^#?(create_main_cluster) .*$/\1 = false/' /etc/postgresql-common/createcluster.conf; }
  }
  if apt-get update -qq >/dev/null && no_cluster && install "${wanted[@]}"; then installed="installed ${wanted[*]}"; fi
fi

echo "make system: checking what the other commands rely on"
for program in bash git make "$python"; do
  if command -v "$program" >/dev/null; then ok "$program: $("$program" --version 2>&1 | head -n 1)"; else missing "$program"; fi
done
if "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then ok "Python 3.11 or newer"; else missing "Python 3.11 or newer"; fi
if "$python" -c 'import venv, ensurepip' 2>/dev/null; then ok "venv and pip"; else missing "venv and pip (on Debian: apt-get install python3-venv)"; fi
if "$python" -c 'import sqlite3; sqlite3.connect(":memory:").execute("create virtual table t using fts5(x)")' 2>/dev/null
then ok "SQLite with full-text search"; else missing "SQLite with FTS5 (prowess search needs it)"; fi
if [ "$(uname -s)" = Linux ]; then
  if command -v bwrap >/dev/null; then ok "bubblewrap: $(bwrap --version)"
  elif [ "$(id -u)" = 0 ]; then missing "bubblewrap (on Debian: apt-get install bubblewrap)"
  else printf '  absent   %s\n' "bubblewrap: scripts run in a Landlock box, or not at all (as root: apt-get install bubblewrap)"; fi
  if command -v dockerd >/dev/null && command -v containerd >/dev/null && command -v runc >/dev/null
  then ok "dockerd, for tests: $(dockerd --version)"
  elif [ "$(id -u)" = 0 ]; then missing "dockerd (on Debian: apt-get install docker.io)"
  else printf '  absent   %s\n' "dockerd: containers are not tested (as root: apt-get install docker.io)"; fi
  if [ -n "$(find_initdb)" ]; then ok "PostgreSQL, for tests: $("$(find_initdb)" --version)"
  elif [ "$(id -u)" = 0 ]; then missing "PostgreSQL (on Debian: apt-get install postgresql)"
  else printf '  absent   %s\n' "PostgreSQL: its session store is not tested (as root: apt-get install postgresql)"; fi
fi
echo "make system: $installed"
exit "$failed"
