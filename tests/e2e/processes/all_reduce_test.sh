#!/bin/bash
# Jobs whose trainers hold the dense parameters, over real processes: with servers for rows of tables and without, by
# both backends, with the digest of one process; and a trainer that is killed.
source tests/e2e/processes/cluster.sh

launch=$root/tools/launch
job=$work/job.textproto
make_data "$work/train.txt"
make_job "$job"
logs=$work/mylog

# start_launch [flags]: stdout to launch.out, stderr to launch.log
start_launch() {
  rm -rf "$work/checkpoints"
  "$launch" --job="$job" --trainers=2 --log_dir="$logs" --set distribute.dense=ALL_REDUCE "$@" \
    > "$work/launch.out" 2> "$work/launch.log" &
  pid[launch]=$!
}
# expect_done: the job ends well, with the examples and the digest of one process.
expect_done() {
  wait_end 60 launch
  expect_rc 0 launch
  [[ $(tail -n 1 "$work/launch.out") == "done steps="*" examples=3840 "* ]] ||
    fail "last line: $(tail -n 1 "$work/launch.out")"
  expect_digest "$alone"
  expect_no_children
}

scene "one process"
"$trainer" --job="$job" --role=local > "$work/local.log" 2>&1 || fail "local training fails"
alone=$(digest)
rm -rf "$work/checkpoints"
"$trainer" --job="$job" --role=local --set distribute.dense=ALL_REDUCE > "$work/own.log" 2>&1 ||
  fail "local training of its own replica fails"
expect_digest "$alone"

scene "rows on servers"
start_launch --servers=2
expect_done

scene "rows on the trainers"
start_launch --servers=0
expect_done

for backend in WIRE GLOO; do
  for servers in 0 2; do
    for update in REPLICATED SHARDED; do
      scene "$servers servers, update: $update, bytes moved by $backend"
      start_launch --servers="$servers" --set "comm.backend=$backend" --set "distribute.update=$update"
      expect_done
    done
  done
done

scene "the address of a named interface"
start_launch --servers=1 --set comm.interface=lo
expect_done
grep -q "other trainers reach this one at 127.0.0.1" "$logs/trainer.1.log" || fail "trainer 1 does not say where it is"
refuse 2 "comm.interface: this machine has no network interface 'nowhere0'; there are .*lo \\(127.0.0.1" \
  "$trainer" --job="$job" --trainer_id=0 --pservers=127.0.0.1:6171 --trainers=1 \
  --set distribute.servers=1 --set distribute.dense=ALL_REDUCE --set comm.interface=nowhere0

scene "a backend that needs a device"
refuse 2 "comm.backend: NCCL moves gradients between CUDA devices.*train.device is CPU" \
  "$trainer" --job="$job" --role=local --set distribute.dense=ALL_REDUCE --set comm.backend=NCCL
# Before the device is opened: also where there is none.
refuse 2 'comm.backend: NCCL: NCCL is not there: /nowhere/libnccl.so.2: .*; this machine can use WIRE, GLOO$' \
  env WEIR_NCCL_LIBRARY=/nowhere/libnccl.so.2 "$trainer" --job="$job" --trainer_id=0 --pservers=127.0.0.1:6171 \
  --trainers=1 --set distribute.servers=1 --set distribute.dense=ALL_REDUCE --set train.device=CUDA \
  --set comm.backend=NCCL

averaged=
for backend in WIRE GLOO; do
  scene "replicas that are averaged, over $backend"
  start_launch --servers=0 --set "comm.backend=$backend" --set distribute.reproducible=false \
    --set "distribute.local_sgd={every_steps: 4}"
  wait_end 60 launch
  expect_rc 0 launch
  [[ $(tail -n 1 "$work/launch.out") == "done steps="*" examples=3840 "* ]] ||
    fail "last line: $(tail -n 1 "$work/launch.out")"
  [ "$(digest)" != "$alone" ] || fail "averages have the digest of one process"
  [ -z "$averaged" ] || expect_digest "$averaged"
  averaged=$(digest)
  expect_no_children
done

scene "bytes moved by the default"
start_launch --servers=0
expect_done

scene "updates shared out among three trainers"
start_launch --servers=1 --trainers=3 --set distribute.update=SHARDED
expect_done

scene "a resume with servers for everything"
"$launch" --job="$job" --servers=2 --trainers=2 --log_dir="$logs" --set train.epochs=8 -- --resume \
  > "$work/launch.out" 2> "$work/launch.log" || fail "no resume: $(tail -n 3 "$work/launch.log")"
grep -q "resumed from" "$logs/trainer.0.log" || fail "trainer 0 has not resumed"
resumed=$(digest)
rm -rf "$work/checkpoints"
"$trainer" --job="$job" --role=local --set train.epochs=8 > "$work/local8.log" 2>&1 || fail "local training fails"
expect_digest "$resumed"

scene "Fluid's name for it"
rm -rf "$work/checkpoints"
"$trainer" --job="$job" --role=local --set distribute.servers=0 --set distribute.mode=NCCL2 \
  > "$work/nccl2.log" 2>&1 || fail "local NCCL2 fails"
expect_digest "$alone"

scene "predictions"
"$trainer" --job="$job" --role=predict --checkpoint="$work/checkpoints" --input="$work/train.txt" \
  --output="$work/alone.scores" > "$work/alone.log" 2>&1 || fail "prediction alone fails"
"$launch" --job="$job" --servers=0 --trainers=2 --log_dir="$logs" --set distribute.dense=ALL_REDUCE \
  -- --role=predict --checkpoint="$work/checkpoints" --input="$work/train.txt" --output="$work/scores" \
  > "$work/launch.out" 2> "$work/launch.log" || fail "prediction by two fails: $(tail -n 3 "$work/launch.log")"
cmp "$work/alone.scores" "$work/scores" || fail "other scores"
"$launch" --job="$job" --servers=1 --trainers=2 --log_dir="$logs" --set distribute.dense=ALL_REDUCE \
  --set distribute.update=SHARDED \
  -- --role=predict --checkpoint="$work/checkpoints" --input="$work/train.txt" --output="$work/sharded.scores" \
  > "$work/launch.out" 2> "$work/launch.log" || fail "prediction of shares fails: $(tail -n 3 "$work/launch.log")"
cmp "$work/alone.scores" "$work/sharded.scores" || fail "other scores where updates are shared out"

for servers_and_backend in "1 WIRE" "0 WIRE" "0 GLOO"; do
  read -r servers backend <<< "$servers_and_backend"
  scene "a trainer is killed, $servers servers, backend $backend"
  start_launch --servers="$servers" --keep_going \
    --set "comm.backend=$backend" --set train.epochs=10000
  wait_checkpoint
  kill -KILL "$(pgrep -P "${pid[launch]}" -f -- --trainer_id=1)"
  wait_end $((2 * lease + 2)) launch
  grep -Eq "^trainer: .*trainer 1\b" "$logs/trainer.0.log" || fail "trainer 0 does not name trainer 1"
  expect_no_children
done

# gone_within <seconds> <pid>: a process that launch has started ends
gone_within() {
  local since
  since=$(now)
  while kill -0 "$2" 2>/dev/null; do
    after "$1" "$since" && fail "process $2 has not ended within $1 s" && return 1
    sleep 0.02
  done
}

for servers_and_backend in "1 WIRE" "1 GLOO" "0 GLOO"; do
  read -r servers backend <<< "$servers_and_backend"
  scene "a trainer is stopped, $servers servers, backend $backend"
  start_launch --servers="$servers" --keep_going \
    --set "comm.backend=$backend" --set train.epochs=10000
  wait_checkpoint
  stopped=$(pgrep -P "${pid[launch]}" -f -- --trainer_id=1)
  other=$(pgrep -P "${pid[launch]}" -f -- --trainer_id=0)
  kill -STOP "$stopped"
  # Two seconds more than promised: this machine may be busy.
  gone_within $((2 * lease + 2)) "$other"
  grep -Eq "^trainer: .*trainer 1\b" "$logs/trainer.0.log" || fail "trainer 0 does not name trainer 1"
  kill -CONT "$stopped"
  wait_end $((2 * lease + 2)) launch
  expect_no_children
done

conclude
