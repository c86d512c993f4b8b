#!/usr/bin/env bash
# Every check of the project, as `make test` and continuous integration run them; stops at the first
# that fails. Arguments go to pytest: tools/check.sh tests/pipeline -k bubble
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

tools/environment.sh dev
bin=${VENV:-.venv}/bin

# check NAME COMMAND...: one line when the command succeeds, its whole output when it fails.
check() {
    local name=$1 start=$SECONDS output
    shift
    if ! output=$("$@" 2>&1); then
        printf '%s\n%s: failed\n' "$output" "$name"
        exit 1
    fi
    printf '%-5s ok (%d s)\n' "$name" "$((SECONDS - start))"
}

check ruff "$bin/ruff" check --output-format concise .
check mypy "$bin/mypy"
exec "$bin/python" -m pytest -n 2 --dist loadfile "$@"
