#!/usr/bin/env bash
# What needs root or system packages. In this release nothing does, so this looks at what is there and says so.
set -euo pipefail
python=${PYTHON:-python3}

ok() { printf '  ok       %s\n' "$*"; }
missing() { printf '  MISSING  %s\n' "$*"; failed=1; }
failed=0

echo "make system: nothing of this release needs root; checking what the other commands rely on"
for program in bash git make "$python"; do
  if command -v "$program" >/dev/null; then ok "$program: $("$program" --version 2>&1 | head -n 1)"; else missing "$program"; fi
done
if "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then ok "Python 3.11 or newer"; else missing "Python 3.11 or newer"; fi
if "$python" -c 'import venv, ensurepip' 2>/dev/null; then ok "venv and pip"; else missing "venv and pip (on Debian: apt-get install python3-venv)"; fi
if "$python" -c 'import sqlite3; sqlite3.connect(":memory:").execute("create virtual table t using fts5(x)")' 2>/dev/null
then ok "SQLite with full-text search"; else missing "SQLite with FTS5 (prowess search needs it)"; fi
echo "make system: installed nothing, changed nothing"
exit "$failed"
