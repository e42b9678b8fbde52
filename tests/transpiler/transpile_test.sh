#!/bin/bash
# The transpile binary: what it prints, where, and how it ends.
set -u
transpile=transpiler/transpile
job=tests/transpiler/testdata/job.textproto
fails=0
fail() { echo "FAILED: $*"; fails=$((fails + 1)); }

# Two processes print the same bytes, for every process and in every format.
for args in "--print=plan" "--print=agreement" "--print=single" "--role=trainer --trainer_id=1" "--role=trainer --print=startup" \
    "--role=pserver --server=1" "--role=pserver --server=1 --print=startup"; do
  for format in text textproto json; do
    "$transpile" --job=$job $args --format=$format > "$TEST_TMPDIR/a" 2> "$TEST_TMPDIR/err" || fail "$args $format: $(cat "$TEST_TMPDIR/err")"
    "$transpile" --job=$job $args --format=$format --out="$TEST_TMPDIR/b" || fail "$args $format --out"
    [ -s "$TEST_TMPDIR/a" ] || fail "$args $format printed nothing"
    cmp -s "$TEST_TMPDIR/a" "$TEST_TMPDIR/b" || fail "$args $format: other bytes"
  done
done

# --set may be given many times.
"$transpile" --job=$job --print=plan --set distribute.servers=3 --set distribute.trainers=4 | grep -q "3 servers, 4 trainers" ||
  fail "--set twice"

# Bad input: exit code 2, the message and nothing else.
expect_error() {
  local message=$1
  shift
  "$transpile" "$@" > "$TEST_TMPDIR/out" 2> "$TEST_TMPDIR/err"
  local code=$?
  [ $code = 2 ] || fail "$*: exit code $code"
  [ -s "$TEST_TMPDIR/out" ] && fail "$*: printed something"
  [ "$(wc -l < "$TEST_TMPDIR/err")" = 1 ] || fail "$*: $(cat "$TEST_TMPDIR/err")"
  grep -qF -- "$message" "$TEST_TMPDIR/err" || fail "$*: '$message' is not in '$(cat "$TEST_TMPDIR/err")'"
}
expect_error "--job is required" --role=trainer
expect_error "nowhere.textproto: No such file or directory" --job=nowhere.textproto --role=trainer
expect_error "--role=trainer or --role=pserver is required" --job=$job
expect_error "--role must be trainer or pserver, got 'worker'" --job=$job --role=worker
expect_error "--trainer_id must be in [0, 2), got 2" --job=$job --role=trainer --trainer_id=2
expect_error "there is no server 2; distribute.servers is 2" --job=$job --role=pserver --server=2
expect_error "--print must be main" --job=$job --role=trainer --print=all
expect_error "format" --job=$job --role=trainer --format=xml
expect_error "unknown flag --jobb (did you mean --job?)" --jobb=$job
expect_error "distribute.servers must be at least 1, got 0" --job=$job --print=plan --set distribute.servers=0

"$transpile" --help | grep -q -- "--trainer_id" || fail "--help"

[ $fails = 0 ] && echo "all passed"
exit $((fails > 0))
