#!/usr/bin/env bash
# Makes the virtual environment, or brings it up to date; says nothing when there is nothing to do.
#
#   tools/environment.sh run     what running needs: requirements.txt and lingpipe itself
#   tools/environment.sh dev     and what the checks need: requirements-dev.txt
#
# Settings, as variables:  PYTHON=python3.12  the Python to build with (else the first that fits)
#                          VENV=/some/folder  where the environment goes (else .venv)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

level=${1:-run}
venv=${VENV:-.venv}
fits='import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))'

say() { printf '%s\n' "$*" >&2; }
fail() { say "error: $*"; exit 1; }

# Prints the first Python that fits, or explains what was found instead.
find_python() {
    local candidate candidates=(python3.11 python3.12 python3.13 python3 python) found=()
    if [ -n "${PYTHON:-}" ]; then
        candidates=("$PYTHON")
    fi
    for candidate in "${candidates[@]}"; do
        if "$candidate" -c "$fits" 2>/dev/null; then
            printf '%s\n' "$candidate"
            return
        fi
        if command -v "$candidate" >/dev/null 2>&1; then
            found+=("$candidate is $("$candidate" --version 2>&1 | head -n 1)")
        fi
    done
    if [ ${#found[@]} -eq 0 ]; then
        found=("no ${PYTHON:-python3} was found")
    fi
    fail "lingpipe needs Python 3.11, 3.12 or 3.13, but $(IFS=';'; echo "${found[*]}")." \
         "Install one, or name yours with PYTHON=/path/to/python3.11."
}

# What the environment was made from: a change in any of it makes the environment stale.
fingerprint() {
    local files=(pyproject.toml requirements.txt)
    [ "$1" = dev ] && files+=(requirements-dev.txt)
    printf '%s in %s\n' "$1" "$PWD"
    cksum "${files[@]}"
}

# Runs pip and shows its log only when it fails.
install() {
    local log="$venv/install.log"
    if ! "$venv/bin/python" -m pip install --disable-pip-version-check --no-input -q "$@" \
            >"$log" 2>&1 </dev/null; then
        tail -n 15 "$log" >&2
        fail "pip could not install: $* (the whole log is $log). Is the package index reachable?"
    fi
}

case $level in
    run | dev) ;;
    *) fail "the level is 'run' or 'dev', not '$level'." ;;
esac

if [ -e "$venv" ] && ! "$venv/bin/python" -c "$fits" 2>/dev/null; then
    [ -e "$venv/pyvenv.cfg" ] || fail "$venv is not a virtual environment; move it away or set VENV."
    say "$venv has no working Python: making it anew."
    rm -rf "$venv"
fi
for done_level in run dev; do
    if [ "$level" = run ] || [ "$done_level" = dev ]; then
        stamp="$venv/stamp-$done_level"
        if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$(fingerprint "$done_level")" ]; then
            exit 0
        fi
    fi
done

start=$SECONDS
if [ ! -e "$venv" ]; then
    python=$(find_python)
    say "Making $venv with $("$python" --version 2>&1) and installing what lingpipe needs;" \
        "the first time takes one to three minutes."
    "$python" -m venv "$venv" >&2 ||
        fail "$python cannot make virtual environments. On Debian or Ubuntu: apt-get install python3-venv"
else
    say "Bringing $venv up to date."
fi
rm -f "$venv"/stamp-*
if [ "$level" = dev ]; then
    install -r requirements-dev.txt
else
    install -r requirements.txt
fi
install --no-deps --editable .
fingerprint run >"$venv/stamp-run"
[ "$level" = dev ] && fingerprint dev >"$venv/stamp-dev"
say "The environment is ready: $venv ($((SECONDS - start)) s)."
