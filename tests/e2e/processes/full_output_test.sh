#!/bin/bash
# Every program ends with exit code 1 and one line on stderr when its standard output takes nothing, as on a full disk.
source tests/e2e/processes/cluster.sh

tools=$root/tools
transpile=$root/transpiler/transpile
job=$work/job.textproto
make_data "$work/train.txt"
make_job "$job"
one=(--set distribute.servers=1 --set distribute.trainers=1 --set train.max_steps=4)

# full <command...>: the command does its work, and cannot print
full() {
  local name=${1##*/} code
  "$@" > /dev/full 2> "$work/err.log"
  code=$?
  [ "$code" -eq 1 ] || fail "$* ends with $code, expected 1: $(tail -n 3 "$work/err.log")"
  grep -Eq "^$name: the standard output cannot be written(: No space left on device| \(a full disk)" "$work/err.log" ||
    fail "$* does not say that its output is lost: $(tail -n 3 "$work/err.log")"
}

scene "help"
for program in "$trainer" "$pserver" "$transpile" "$tools"/{checkpoint,convert,doctor,generate_ctr} \
  "$tools"/{launch,merge_traces,simulate}; do
  full "$program" --help
done

scene "training and prediction"
full "$trainer" --role=local --job="$job" "${one[@]}" --set checkpoint.every_steps=4 --digest_log="$work/digests" \
  --digest_every=2 --profile="$work/local.trace" --profile_steps=1:3
[ -d "$work/checkpoints/step-000000000004" ] || fail "the training has left no checkpoint"
full "$trainer" --role=predict --job="$job" --checkpoint="$work/checkpoints" --input="$work/train.txt" \
  --output="$work/scores.txt"
[ -s "$work/scores.txt" ] || fail "the prediction has written no scores"
full "$tools/launch" --job="$job" "${one[@]}" --servers=1 --trainers=1 --log_dir="$work/launched"

scene "a server"
"$pserver" --job="$job" "${one[@]}" --endpoint=127.0.0.1:0 --server_id=0 --port_file="$work/server.0.port" \
  > /dev/full 2> "$work/server.0.log" &
pid[server.0]=$!
wait_ready 1
"$trainer" --job="$job" "${one[@]}" --trainer_id=0 --pservers="$pservers" > /dev/null 2> "$work/trainer.0.log" ||
  fail "the trainer ends with $?"
wait "${pid[server.0]}"
code=$?
unset "pid[server.0]"
[ "$code" -eq 1 ] || fail "the server ends with $code, expected 1"
grep -q "^pserver: the standard output cannot be written" "$work/server.0.log" || fail "the server does not say so"

scene "checkpoints"
for command in list verify digest; do
  full "$checkpoint" $command "$work/checkpoints"
done
full "$checkpoint" export "$work/checkpoints" --output="$work/model.npz"
full "$checkpoint" export "$work/checkpoints" --table=vectors --output="$work/vectors.rows"
full "$checkpoint" rows "$work/vectors.rows"
full "$checkpoint" rows "$work/vectors.rows" --output="$work/vectors.npz"
full "$checkpoint" compare "$work/digests" "$work/digests"

scene "programs of processes"
for print in main startup plan agreement single passes explain; do
  full "$transpile" --job="$job" --print=$print --role=trainer
done
full "$transpile" --job="$job" --role=trainer --format=json
full "$transpile" --job="$job" --out_dir="$work/programs"
full "$transpile" --job="$job" --verify --steps=1
sed 's/width: 4/width: 8/' "$job" > "$work/other.textproto"
full "$transpile" --job="$job" --print=differences --trained_with="$work/other.textproto"
full "$transpile" --job="$job" --print=checkpoint_job --trained_with="$work/other.textproto"

scene "tools"
full "$tools/convert" --job="$job" --output="$work/examples"
full "$tools/convert" --describe="$work/examples/train.txt.examples"
full "$tools/doctor"
full "$tools/doctor" --format=json
full "$tools/generate_ctr" --output="$work/generated" --rows=100 --eval_rows=100 --ids=10
full "$tools/merge_traces" --output="$work/merged.trace" "$work/local.trace"
full "$tools/simulate" --job="$job" --steps=1

conclude
