#!/usr/bin/env bash
# The demo: trains a small multilingual model on a pipeline of two stages, scores it on the test
# split, and translates a few lines into several languages. Run again, it goes on where it was; a
# finished run is only scored and used again.
#
#   tools/demo.sh [LOGDIR]      the run directory, else runs/tiny
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

tools/environment.sh run
PATH="$(cd "${VENV:-.venv}/bin" && pwd):$PATH"
logdir=${1:-runs/tiny}
start=$SECONDS

# Shows a command as one would type it, then runs it.
run() {
    printf '\n$ %s\n' "$*"
    "$@"
}

run lingpipe train --model=mt.multilingual.Tiny --logdir="$logdir"
run lingpipe evaluate --logdir="$logdir" --split=test

mkdir -p "$logdir/demo"
printf '%s\n' 'Monday' 'January' 'Delete' 'Add another' 'Gulf Standard Time' \
    'Enter a valid date.' >"$logdir/demo/en.txt"
for language in fr de es fi ru; do
    run lingpipe decode --logdir="$logdir" --to="$language" \
        --input="$logdir/demo/en.txt" --output="$logdir/demo/$language.txt"
    paste "$logdir/demo/en.txt" "$logdir/demo/$language.txt" | awk -F '\t' '{printf "  %-22s %s\n", $1, $2}'
done

cat <<END

Done in $((SECONDS - start)) s. The model is small and its corpus is 900 short lines a language, so
expect phrases that it saw, not fluency. What the run left in $logdir:
  params.txt, plan.txt        what was trained, and which cells lie on which stage
  metrics.jsonl, eval.jsonl   a line for each logged step and for each evaluation
  checkpoints/, vocab/        all that decoding needs, wherever the folder is moved
  demo/                       the lines above
Your own lines:  echo 'Sunday' | .venv/bin/lingpipe decode --logdir=$logdir --to=fr
END
