#!/bin/bash
# tools/quickstart, once the programs are built: it ends with what was reached beside what is possible.
set -euo pipefail

dir=$TEST_TMPDIR/quickstart
out=$TEST_TMPDIR/out
tools/quickstart --bin_dir="$PWD" --dir="$dir" --rows=30000 > "$out" || {
  cat "$out"
  exit 1
}
last=$(tail -n 1 "$out")
echo "$last"
[[ $last =~ ^AUC\ (0\.[0-9]{2})\ of\ (0\.[0-9]{2})\ possible$ ]]
# Well above chance, and no better than the planted model (to its sampling error on the same examples).
awk -v reached="${BASH_REMATCH[1]}" -v possible="${BASH_REMATCH[2]}" \
  'BEGIN { exit !(reached >= 0.6 && reached <= possible + 0.01) }'
