#!/usr/bin/env bash
# What needs root or system packages: bubblewrap, for running scripts in a sandbox. All else is only looked at.
set -euo pipefail
python=${PYTHON:-python3}

ok() { printf '  ok       %s\n' "$*"; }
missing() { printf '  MISSING  %s\n' "$*"; failed=1; }
failed=0

installed="installed nothing, changed nothing"
if [ "$(uname -s)" = Linux ] && ! command -v bwrap >/dev/null; then
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "make system: installing bubblewrap"
    export DEBIAN_FRONTEND=noninteractive
    if { apt-get update -qq && apt-get install -y -qq --no-install-recommends bubblewrap; } >/dev/null; then installed="installed bubblewrap"; fi
  fi
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
fi
echo "make system: $installed"
exit "$failed"
