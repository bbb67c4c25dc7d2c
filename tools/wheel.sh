#!/usr/bin/env bash
# The wheel as a user gets it: built, installed into a new environment for every Python that we name and this machine
# has, and used from an empty folder. A Python that is not here is said to be not run.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
python=${PYTHON:-python3}

folder=$(mktemp -d)
chmod 711 "$folder" # as root, scripts run as another user, who has to get to the workspaces
trap 'rm -rf -- "$folder"' EXIT
"$python" -m pip wheel -q --disable-pip-version-check --no-deps -w "$folder" .
wheel=$(compgen -G "$folder/prowess-*.whl")

find_python() { # VERSION
  local candidate
  for candidate in "python$1" "$python" "${PYENV_ROOT:-$HOME/.pyenv}/versions/$1".*/bin/python3; do
    if [ "$("$candidate" -c 'import ensurepip, sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null)" = "$1" ]; then
      echo "$candidate"
      return
    fi
  done
}

try() { # VERSION PYTHON
  local home=$folder/$1
  mkdir -p "$home/empty"
  "$2" -m venv "$home/venv"
  "$home/venv/bin/python" -m pip install -q --disable-pip-version-check "$wheel"
  cd "$home/empty"
  local clean=(env -i "HOME=$home" "PATH=$home/venv/bin:/usr/bin:/bin" LANG=C.UTF-8
    "PROWESS_WORKSPACE_DIR=$home/workspaces")
  "${clean[@]}" python -c 'import prowess; assert "site-packages" in prowess.__file__, prowess.__file__; print(prowess.run)' >/dev/null
  "${clean[@]}" prowess list 2>/dev/null | grep -q python-math
  printf 'region,amount\nNorth,2\nSouth,3\n' >"$home/sales.csv"
  "${clean[@]}" prowess run 'Report the amount by region in @../sales.csv' --yes skill_run 2>"$home/said" | grep -q North ||
    { cat "$home/said"; return 1; }
  echo "wheel: Python $1: import prowess, prowess list, prowess run"
}

for version in $(sed -n 's/.*Python :: \(3\.[0-9]*\)".*/\1/p' pyproject.toml); do
  found=$(find_python "$version")
  if [ -n "$found" ]; then (try "$version" "$found"); else echo "wheel: NOT RUN: Python $version is not on this machine"; fi
done
