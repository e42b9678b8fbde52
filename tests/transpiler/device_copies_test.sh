#!/bin/bash
# With train.device: CUDA plan and explanation say what each step copies because of where operators run.
set -u
transpile=transpiler/transpile
job=tests/transpiler/testdata/job.textproto
fails=0
fail() { echo "FAILED: $*"; fails=$((fails + 1)); }

# Nothing of it for the CPU.
for print in plan explain; do
  "$transpile" --job=$job --print=$print > "$TEST_TMPDIR/cpu" 2> "$TEST_TMPDIR/err" ||
    fail "$print: $(cat "$TEST_TMPDIR/err")"
  grep -q 'device CUDA' "$TEST_TMPDIR/cpu" && fail "$print of a job on the CPU speaks of a device"
  "$transpile" --job=$job --print=$print --set train.device=CUDA > "$TEST_TMPDIR/cuda" || fail "$print on CUDA"
  # What data and servers bring goes to the device.
  grep -Eq '^device CUDA: each step copies .* to the device for ' "$TEST_TMPDIR/cuda" ||
    fail "$print: $(cat "$TEST_TMPDIR/cuda")"
  grep -q 'to the host for square' "$TEST_TMPDIR/cuda" && fail "$print: square has a kernel"
  "$transpile" --job=$job --print=$print --set train.device=CUDA --set 'train.cpu_ops="square"' \
    > "$TEST_TMPDIR/square" || fail "$print with cpu_ops"
  grep -Eq '^device CUDA: each step copies .* to the host for square \(op [0-9]+\)$' "$TEST_TMPDIR/square" ||
    fail "$print: $(cat "$TEST_TMPDIR/square")"
done

for format in json html; do
  "$transpile" --job=$job --print=explain --format=$format --set train.device=CUDA \
    --set 'train.cpu_ops="square"' > "$TEST_TMPDIR/square" || fail "explain $format"
  grep -Eq 'device CUDA: each step copies .* to the host for square \(op [0-9]+\)' "$TEST_TMPDIR/square" ||
    fail "explain $format shows no copy"
done

[ $fails = 0 ] && echo "passed"
exit $((fails > 0))
