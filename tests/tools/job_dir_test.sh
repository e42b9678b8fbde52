#!/bin/bash
# convert and simulate: paths in a job from standard input, or in a copy of a job file, are relative to --job_dir.
set -u
convert=$PWD/tools/convert
simulate=$PWD/tools/simulate
work=$(mktemp -d "${TEST_TMPDIR:-/tmp}/job_dir.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
fails=0
fail() { echo "FAILED: $*"; fails=$((fails + 1)); }

mkdir "$work/jobs" "$work/elsewhere"
printf '1\t3\ta\n0\t4\tb\n1\t5\ta\n0\t6\tc\n' > "$work/jobs/train.txt"
cat > "$work/elsewhere/copy.textproto" <<'END'
name: "clicks"
data { train { files: "train.txt" } criteo { integers: 1 categoricals: 1 } batch_size: 2 }
model {
  layer { name: "out" embedding { ids: "cat" table: "weights" pooling: SUM } }
  loss { sigmoid_cross_entropy { logits: "out" label: "label" } }
}
table { name: "weights" width: 1 is_sparse: true is_distributed: true optimizer { sgd { learning_rate: 0.1 } } }
optimizer { sgd { learning_rate: 0.1 } }
distribute { servers: 1 trainers: 1 }
train { lanes: 1 }
END
cd "$work/elsewhere" || exit 1

for job in /dev/stdin copy.textproto; do
  "$convert" --job=$job --job_dir=../jobs --output=out --overwrite < copy.textproto > log 2>&1 ||
    fail "convert --job=$job: $(cat log)"
  grep -q '^files=1 examples=4 ' log || fail "convert --job=$job: $(cat log)"
  "$simulate" --job=$job --job_dir=../jobs --steps=2 --try='lifecycle.admit_after=2' < copy.textproto > log 2>&1 ||
    fail "simulate --job=$job: $(cat log)"
  grep -q '^2 steps of 2 examples' log || fail "simulate --job=$job: $(cat log)"
done

# refuse TEXT COMMAND...: ends with 2 and says so
refuse() {
  local text=$1
  shift
  "$@" < copy.textproto > log 2>&1
  local code=$?
  [ $code = 2 ] || fail "$*: exit code $code"
  grep -qF -- "$text" log || fail "$*: '$text' is not in '$(cat log)'"
}
for program in "$convert --output=out" "$simulate --steps=2"; do
  # shellcheck disable=SC2086
  refuse "train.txt" $program --job=/dev/stdin
  # shellcheck disable=SC2086
  refuse "--job_dir=/nowhere: there is no such directory" $program --job=/dev/stdin --job_dir=/nowhere
done

[ $fails = 0 ] && echo "all passed"
exit $((fails > 0))
