#!/bin/bash
# The transpile binary: what it prints, where, and how it ends.
set -u
transpile=transpiler/transpile
job=tests/transpiler/testdata/job.textproto
fails=0
fail() { echo "FAILED: $*"; fails=$((fails + 1)); }

# Two processes print the same bytes, for every process and in every format.
for args in "--print=plan" "--print=agreement" "--print=single" \
    "--role=trainer --trainer_id=1" "--role=trainer --print=startup" \
    "--role=pserver --server=1" "--role=pserver --server=1 --print=startup" \
    "--role=replica --trainer_id=1 --set distribute.dense=ALL_REDUCE" \
    "--role=replica --print=startup --set distribute.dense=ALL_REDUCE"; do
  for format in text textproto json; do
    "$transpile" --job=$job $args --format=$format > "$TEST_TMPDIR/a" 2> "$TEST_TMPDIR/err" ||
      fail "$args $format: $(cat "$TEST_TMPDIR/err")"
    "$transpile" --job=$job $args --format=$format --out="$TEST_TMPDIR/b" || fail "$args $format --out"
    [ -s "$TEST_TMPDIR/a" ] || fail "$args $format printed nothing"
    cmp -s "$TEST_TMPDIR/a" "$TEST_TMPDIR/b" || fail "$args $format: other bytes"
  done
done

for format in text json html; do
  "$transpile" --job=$job --print=explain --format=$format > "$TEST_TMPDIR/a" || fail "explain $format"
  "$transpile" --job=$job --print=explain --format=$format --out="$TEST_TMPDIR/b" || fail "explain $format --out"
  cmp -s "$TEST_TMPDIR/a" "$TEST_TMPDIR/b" || fail "explain $format: other bytes"
done
"$transpile" --job=$job --print=explain | grep -q "balance of servers, max/mean: " || fail "explain: no balance"
"$transpile" --job=$job --print=explain --format=json | grep -q '"bytes_at_rest": "' || fail "explain: no JSON"
reduces="--set distribute.dense=ALL_REDUCE --print=explain"
for format in text json html; do
  "$transpile" --job=$job $reduces --format=$format > "$TEST_TMPDIR/a" || fail "explain of all-reduce, $format"
  [ -s "$TEST_TMPDIR/a" ] || fail "explain of all-reduce, $format: printed nothing"
done
"$transpile" --job=$job $reduces --link_gbit=2.5 --link_us=7 | grep -q "on 2.5 Gbit/s and 7 us; a ring " ||
  fail "explain of all-reduce: no link"

# Trainers of a host merge, as far as the job lets them.
hosts="$transpile --job=$job --print=explain --trainers_per_host=2"
$hosts | grep -q "^merge_hosts: 1 host of 2 trainers: 50 % of the bytes without it, " || fail "--trainers_per_host"
$hosts --set distribute.merge_hosts=false | grep -q "^  with merge_hosts: .* between hosts and servers instead of " ||
  fail "--trainers_per_host and merge_hosts=false"
"$transpile" --job=$job --print=explain --set distribute.merge_hosts=true | grep -q "^merge_hosts: " &&
  fail "hosts with one trainer merge"

# A calibration is measured once; the next call reads it and prints the same prediction.
explain_speed="$transpile --job=$job --print=explain --calibrate=$TEST_TMPDIR/calibration"
$explain_speed --calibrate_seconds=1 > "$TEST_TMPDIR/a" 2> "$TEST_TMPDIR/err" ||
  fail "--calibrate: $(cat "$TEST_TMPDIR/err")"
grep -q "^predicted step .* examples/s: each process on a machine with .*, links of 10 Gbit/s and 50 us$" \
  "$TEST_TMPDIR/a" || fail "--calibrate: $(grep predicted "$TEST_TMPDIR/a")"
$explain_speed > "$TEST_TMPDIR/b" 2> "$TEST_TMPDIR/err" || fail "--calibrate again: $(cat "$TEST_TMPDIR/err")"
[ -s "$TEST_TMPDIR/err" ] && fail "--calibrate again: $(cat "$TEST_TMPDIR/err")"
cmp -s "$TEST_TMPDIR/a" "$TEST_TMPDIR/b" || fail "--calibrate again: other bytes"
$explain_speed --one_machine | grep -q "^predicted step .*: all processes on one machine .*, shared memory$" ||
  fail "--one_machine"
$explain_speed --trainers_per_host=2 | grep -q "^predicted step .*: 2 trainers or one server on a machine with " ||
  fail "--calibrate --trainers_per_host"
$explain_speed --one_machine --set distribute.merge_hosts=true | grep -q "^merge_hosts: 1 host of 2 trainers: " ||
  fail "--one_machine and merge_hosts=true"
$explain_speed --link_gbit=0.001 | grep -q "held up most by links of " || fail "--calibrate --link_gbit"
$explain_speed | grep -q "^  .*: .*a step of .* instead of " || fail "--calibrate: other choices have no step time"
$explain_speed --format=json | grep -q '"step_seconds": ' || fail "--calibrate, json"
$explain_speed --format=html | grep -q "<h2>Predicted speed</h2>" || fail "--calibrate, html"
$explain_speed --set train.device=CUDA | grep -q "^no step time is predicted: train.device: CUDA" ||
  fail "--calibrate of a device"

# The split programs against the unsplit one; the job has no data files, so batches are generated.
"$transpile" --job=$job --verify --steps=3 > "$TEST_TMPDIR/out" 2> "$TEST_TMPDIR/err" ||
  fail "--verify: $(cat "$TEST_TMPDIR/err")"
grep -q "^equal after each of 3 steps of generated batches: " "$TEST_TMPDIR/out" ||
  fail "--verify: $(cat "$TEST_TMPDIR/out")"

# --set may be given many times.
"$transpile" --job=$job --print=plan --set distribute.servers=3 --set distribute.trainers=4 |
  grep -q "3 servers, 4 trainers" || fail "--set twice"

# After each pass a numbered dump; the last one is what runs.
"$transpile" --job=$job --role=trainer --dump_dir="$TEST_TMPDIR/dump" > "$TEST_TMPDIR/a" || fail "--dump_dir"
n=0
for pass in $("$transpile" --print=passes); do
  n=$((n + 1))
  [ -s "$TEST_TMPDIR/dump/$(printf %02d $n)_$pass.main.program" ] || fail "no dump of pass $n, $pass"
  # Stopping there prints the same bytes.
  "$transpile" --job=$job --stop_after=$pass > "$TEST_TMPDIR/b" || fail "--stop_after=$pass"
  cmp -s "$TEST_TMPDIR/b" "$TEST_TMPDIR/dump/$(printf %02d $n)_$pass.main.program" ||
    fail "--stop_after=$pass: other bytes"
done
[ $n -ge 9 ] || fail "--print=passes lists $n"
cmp -s "$TEST_TMPDIR/a" "$TEST_TMPDIR"/dump/*_receive_parameters.main.program ||
  fail "the dump of receive_parameters is not what runs"
[ -s "$(echo "$TEST_TMPDIR"/dump/*_make_server_program.server1.startup.program)" ] || fail "no dump of server 1"

# A front end's tool: a program file in, the programs of all processes out, in any format.
"$transpile" --job=$job --out_dir="$TEST_TMPDIR/all" > "$TEST_TMPDIR/names" || fail "--out_dir"
[ "$(wc -l < "$TEST_TMPDIR/names")" = 7 ] || fail "--out_dir printed $(cat "$TEST_TMPDIR/names")"
for pass in build_forward append_backward append_optimizer; do
  for format in program textproto json; do
    "$transpile" --job=$job --stop_after=$pass --format=${format/program/text} --out="$TEST_TMPDIR/given.$format" ||
      fail "$pass $format"
    rm -rf "$TEST_TMPDIR/again"
    "$transpile" --job=$job --program="$TEST_TMPDIR/given.$format" --out_dir="$TEST_TMPDIR/again" > /dev/null ||
      fail "--program from $pass, $format"
    for name in trainer.main trainer.startup server0.main server0.startup server1.main server1.startup; do
      cmp -s "$TEST_TMPDIR/all/$name.program" "$TEST_TMPDIR/again/$name.program" ||
        fail "$name of --program from $pass, $format, is another"
    done
  done
done

# The program of the job lies beside the job, wherever the text of the job comes from.
mkdir -p "$TEST_TMPDIR/copy" && cp $job "$TEST_TMPDIR/copy/job.textproto"
"$transpile" --job=$job --print=plan > "$TEST_TMPDIR/a" || fail "--print=plan"
"$transpile" --job=/dev/stdin --job_dir=tests/transpiler/testdata --print=plan < $job > "$TEST_TMPDIR/b" ||
  fail "--job_dir and standard input"
cmp -s "$TEST_TMPDIR/a" "$TEST_TMPDIR/b" || fail "--job_dir and standard input: other bytes"
"$transpile" --job="$TEST_TMPDIR/copy/job.textproto" --job_dir=tests/transpiler/testdata --print=plan \
  > "$TEST_TMPDIR/b" || fail "--job_dir and a copy of the job"
cmp -s "$TEST_TMPDIR/a" "$TEST_TMPDIR/b" || fail "--job_dir and a copy of the job: other bytes"
"$transpile" --job=/dev/stdin --job_dir=tests/transpiler/testdata --verify --steps=1 < $job > "$TEST_TMPDIR/out" ||
  fail "--job_dir and --verify"

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
"$transpile" --job=$job --print=differences --trained_with=$job > "$TEST_TMPDIR/out" || fail "--print=differences"
[ -s "$TEST_TMPDIR/out" ] && fail "a job differs from itself: $(cat "$TEST_TMPDIR/out")"
cat > "$TEST_TMPDIR/model.textproto" <<'END'
name: "model"
data { train { files: "t" } csv { column { name: "label" } column { name: "u" type: ID } } }
model {
  layer { name: "e" embedding { ids: "u" table: "t" pooling: SUM } }
  layer { name: "out" fc { input: "e" size: 1 } }
  loss { sigmoid_cross_entropy { logits: "out" label: "label" } }
}
table { name: "t" width: 2 is_sparse: true is_distributed: true }
optimizer { sgd {} }
train { seed: 3 epochs: 2 }
END
model=$TEST_TMPDIR/model.textproto
"$transpile" --job="$model" --set train.seed=77 --set model.layer[1].fc.bias=false \
  --set model.loss[0].weight=2 --print=differences --trained_with="$model" > "$TEST_TMPDIR/out" ||
  fail "--print=differences of another model"
cmp "$TEST_TMPDIR/out" - <<'END' || fail "other differences: $(cat "$TEST_TMPDIR/out")"
--set model.layer[1].fc.bias: model.layer[1].fc.bias was true in the checkpoint's job, and is false here
--set train.seed: train.seed was 3 in the checkpoint's job, and is 77 here
END
"$transpile" --job="$model" --set train.seed=77 --set train.epochs=5 --print=checkpoint_job --trained_with="$model" \
  > "$TEST_TMPDIR/own.textproto" || fail "--print=checkpoint_job"
grep -q '^  epochs: 5$' "$TEST_TMPDIR/own.textproto" || fail "epochs are not those of the job"
"$transpile" --job="$TEST_TMPDIR/own.textproto" --print=differences --trained_with="$model" > "$TEST_TMPDIR/out" ||
  fail "--print=checkpoint_job is no job"
[ -s "$TEST_TMPDIR/out" ] && fail "the job of the checkpoint differs: $(cat "$TEST_TMPDIR/out")"
expect_error "--job is required" --role=trainer
expect_error "nowhere.textproto: No such file or directory" --job=nowhere.textproto --role=trainer
expect_error "fluid_example.program: No such file or directory" --job="$TEST_TMPDIR/copy/job.textproto" --print=plan
expect_error "--job_dir=nowhere: there is no such directory" --job=$job --job_dir=nowhere --print=plan
expect_error "--role=trainer, --role=pserver or --role=replica is required" --job=$job
expect_error "--role must be trainer, pserver or replica, got 'worker'" --job=$job --role=worker
expect_error "--trainer_id must be in [0, 2), got 2" --job=$job --role=trainer --trainer_id=2
expect_error "updates nothing itself" --job=$job --role=replica
expect_error "--trainer_id must be in [0, 2), got 2" --job=$job --role=replica --trainer_id=2
expect_error "there is no server 2; distribute.servers is 2" --job=$job --role=pserver --server=2
expect_error "--print must be main" --job=$job --role=trainer --print=all
expect_error "--print=differences or --print=checkpoint_job, and --trained_with=FILE, go together" \
  --job=$job --print=differences
expect_error "there is no pass 'slice_variable' (did you mean 'slice_variables'?); passes are build_forward, " \
  --job=$job --stop_after=slice_variable
expect_error "nowhere.program" --job=$job --program=nowhere.program --role=trainer
expect_error "format" --job=$job --role=trainer --format=xml
expect_error "--format must be text, json or html with --print=explain, got 'textproto'" \
  --job=$job --print=explain --format=textproto
expect_error "--link_gbit must be positive, got 0" --job=$job $reduces --link_gbit=0
expect_error "--link_us must not be negative, got -1" --job=$job $reduces --link_us=-1
expect_error "--trainers_per_host must be at least 1, got 0" --job=$job --print=explain --trainers_per_host=0
expect_error "--trainers_per_host is about what trainers exchange with servers, and distribute.servers is 0" \
  --job=$job --print=explain --trainers_per_host=2 --set distribute.servers=0
expect_error "--trainers_per_host is for trainers on other hosts than the servers, and with --one_machine" \
  --job=$job --print=explain --trainers_per_host=2 --calibrate="$TEST_TMPDIR/calibration" --one_machine
expect_error "--trainers_per_host is for --print=explain" --job=$job --print=plan --trainers_per_host=2
expect_error "--one_machine is for predictions: --calibrate=FILE" --job=$job --print=explain --one_machine
expect_error "--calibrate is for --print=explain" --job=$job --print=plan --calibrate="$TEST_TMPDIR/calibration"
sed 's/^program: .*/program: "0123456789abcdef"/' "$TEST_TMPDIR/calibration" > "$TEST_TMPDIR/other"
expect_error "was measured for another model (program 0123456789abcdef, this job has " \
  --job=$job --print=explain --calibrate="$TEST_TMPDIR/other"
sed 's/^crowding/crowdign/' "$TEST_TMPDIR/calibration" > "$TEST_TMPDIR/broken"
expect_error "unknown field 'crowdign' (did you mean 'crowding'?)" \
  --job=$job --print=explain --calibrate="$TEST_TMPDIR/broken"
sed 's/^cores.*/cores: 0/' "$TEST_TMPDIR/calibration" > "$TEST_TMPDIR/broken"
expect_error "/broken: cores must be at least 1, got 0" --job=$job --print=explain --calibrate="$TEST_TMPDIR/broken"
sed 's/^crowding.*/crowding: -1/' "$TEST_TMPDIR/calibration" > "$TEST_TMPDIR/broken"
expect_error "crowding must be finite and not negative, got -1" \
  --job=$job --print=explain --calibrate="$TEST_TMPDIR/broken"
sed '/^tcp {/,/^}/d' "$TEST_TMPDIR/calibration" > "$TEST_TMPDIR/broken"
expect_error "/broken: there is no 'tcp'" --job=$job --print=explain --calibrate="$TEST_TMPDIR/broken"
expect_error "--calibrate_seconds must be positive and at most 3600, got inf" \
  --job=$job --print=explain --calibrate="$TEST_TMPDIR/none" --calibrate_seconds=inf
expect_error "--one_machine is for --print=explain" --job=$job --print=plan --one_machine
expect_error "--verify needs sync" --job=$job --verify --set distribute.sync=false
expect_error "data.train" --job=$job --print=explain --sample=3
expect_error "unknown flag --jobb (did you mean --job?)" --jobb=$job
expect_error "distribute.servers must be at least 0, got -1" --job=$job --print=plan --set distribute.servers=-1
expect_error "distribute.servers 0 contradicts sync: false" --job=$job --print=plan --set distribute.servers=0 \
  --set distribute.sync=false

"$transpile" --help | grep -q -- "--trainer_id" || fail "--help"

[ $fails = 0 ] && echo "all passed"
exit $((fails > 0))
