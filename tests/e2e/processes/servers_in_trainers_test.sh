#!/bin/bash
# Jobs without server processes: launch starts trainers alone, which serve one another until all are done.
source tests/e2e/processes/cluster.sh

launch=$root/tools/launch
job=$work/job.textproto
make_data "$work/train.txt"
make_job "$job"
logs=$work/mylog

# start_launch [flags]: stdout to launch.out, stderr to launch.log
start_launch() {
  "$launch" --job="$job" --servers=0 --trainers=2 --log_dir="$logs" "$@" > "$work/launch.out" 2> "$work/launch.log" &
  pid[launch]=$!
}
last_line() { tail -n 1 "$work/launch.out"; }

scene "one process"
"$trainer" --job="$job" --role=local --set distribute.servers=0 --set 'cluster={pserver: "a:1" pserver: "b:1"}' \
  > "$work/local.log" 2>&1 || fail "local training fails"
alone=$(digest)
"$trainer" --job="$job" --role=predict --set distribute.servers=0 --checkpoint="$work/checkpoints" \
  --input="$work/train.txt" --output="$work/alone.scores" > "$work/alone.log" 2>&1 || fail "prediction alone fails"

scene "prediction by trainers"
start_launch -- --role=predict --checkpoint="$work/checkpoints" --input="$work/train.txt" --output="$work/scores"
wait_end 60 launch
expect_rc 0 launch
cmp "$work/alone.scores" "$work/scores" || fail "other scores"

scene "a whole job"
rm -rf "$work/checkpoints"
start_launch
wait_end 60 launch
expect_rc 0 launch
[[ $(last_line) == "done steps="*" examples=3840 "* ]] || fail "last line: $(last_line)"
expect_digest "$alone"
expect_log launch "2 trainers, each with a server on"
[ ! -e "$logs/pserver.0.log" ] || fail "a pserver was started"
expect_no_children

scene "SIGTERM"
rm -rf "$work/checkpoints"
start_launch --set train.epochs=10000
wait_checkpoint
kill -TERM "${pid[launch]}"
wait_end 30 launch
expect_rc 5 launch
[[ $(last_line) == "done steps="*" stopped=1" ]] || fail "last line: $(last_line)"
expect_no_children

scene "a trainer is killed, and its server with it"
rm -rf "$work/checkpoints"
start_launch --set train.epochs=10000 --keep_going
wait_checkpoint
since=$(now)
kill -KILL "$(pgrep -P "${pid[launch]}" -f -- --trainer_id=1)"
wait_end $((2 * lease + 1)) launch
expect_rc 137 launch
grep -Eq "^trainer: .*trainer 1 .*is dead" "$logs/trainer.0.log" || fail "trainer 0 does not name trainer 1"
expect_no_children

scene "a server beside trainers that serve"
refuse 2 "distribute.servers is 0: every trainer has a server inside" \
  "$pserver" --job="$job" --set distribute.servers=0 --endpoint=127.0.0.1:0 --server_id=0

conclude
