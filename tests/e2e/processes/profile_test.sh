#!/bin/bash
# --profile with real processes: traces and tables of a launch and of processes started by hand, the same bits as
# without, nothing without the flag, and what is left when a process is killed.
source tests/e2e/processes/cluster.sh

launch=$root/tools/launch
merge=$root/tools/merge_traces
check=$root/tests/e2e/processes/check_trace.py
job=$work/job.textproto
make_data "$work/train.txt"
make_job "$job"
logs=$work/mylog
trace=$work/trace.json
flags=(--job="$job" --servers=2 --trainers=2 --log_dir="$logs")

# run_launch [flags]: stdout to launch.out, stderr to launch.log
run_launch() {
  rm -rf "$work/checkpoints"
  "$launch" "${flags[@]}" "$@" > "$work/launch.out" 2> "$work/launch.log" &
  pid[launch]=$!
  wait_end 60 launch
}
check_trace() { python3 "$check" "$@" || fail "the trace is wrong"; }
expect_out() { grep -Eq -- "$1" "$work/launch.out" || fail "launch does not print /$1/"; }

scene "without"
run_launch
expect_rc 0 launch
plain=$(digest)
[ -z "$(find "$work" -name '*.json')" ] || fail "a trace without --profile"
! grep -q "where a step went" "$work/launch.out" || fail "a table without --profile"

scene "a launch"
run_launch --profile="$trace" --profile_steps=10:30
expect_rc 0 launch
expect_digest "$plain"
check_trace "$trace" 10:30 trainer.0 trainer.1 server.0 server.1
expect_out '^trainer 0: 20 steps of'
expect_out '^trainer 1: 20 steps of'
expect_out '^where a step went'
expect_out '^  computing '
expect_out "^servers' work"
expect_out '^  server 1: .* % busy'
[[ $(tail -n 1 "$work/launch.out") == "done steps="* ]] || fail "last line: $(tail -n 1 "$work/launch.out")"
[ -z "$(find "$logs" -name '*.json')" ] || fail "parts are left"
rm -f "$trace"

scene "in one process"
rm -rf "$work/checkpoints"
"$trainer" --job="$job" --role=local --profile="$trace" --profile_steps=10:30 > "$work/local.log" 2>&1 ||
  fail "local training fails"
expect_digest "$plain"
expect_log local '^trainer 0: 20 steps of'
expect_log local 'the server in this process'
python3 -m json.tool "$trace" > /dev/null || fail "the trace is no JSON"

scene "started by hand, put together by hand"
rm -rf "$work/checkpoints"
job_flags=(--set distribute.servers=2 --set distribute.trainers=2 --profile_steps=10:30)
for i in 0 1; do start_server $i "${job_flags[@]}" --profile="$work/server.$i.json"; done
wait_ready 2
for i in 0 1; do start_trainer $i "${job_flags[@]}" --profile="$work/trainer.$i.json"; done
wait_end 60 server.0 server.1 trainer.0 trainer.1
expect_rc 0 server.0 server.1 trainer.0 trainer.1
expect_log trainer.1 '^trainer 1: 20 steps of'
expect_log server.1 "^servers' work"
"$merge" --output="$trace" "$work"/{server,trainer}.{0,1}.json > "$work/merge.log" ||
  fail "the traces cannot be put together"
check_trace "$trace" 10:30 trainer.0 trainer.1 server.0 server.1
expect_log merge '^trainer 1: 20 steps of'
refuse 4 'no trace of --profile' "$merge" --output="$trace" "$work/train.txt"
refuse 2 'two traces are of server 0' "$merge" --output="$trace" "$work/server.0.json" "$work/server.0.json"

scene "a window that is not reached"
rm -rf "$work/checkpoints"
"$trainer" --job="$job" --role=local --profile="$trace" --profile_steps=5000:5001 > "$work/local.log" 2>&1 ||
  fail "local training fails"
expect_log local 'trainer 0: nothing was recorded: it ran none of the steps 5000:5001; see --profile_steps'

# The others end because of it; what they have done is shown.
scene "a trainer is killed in the window"
rm -f "$trace"
WEIR_FAULT_POINT=kill:trainer.1:last_part:25 run_launch --profile="$trace" --profile_steps=10:30
expect_rc 137 launch
check_trace "$trace" 10:25:27 trainer.0 server.0 server.1
expect_out 'no trace of trainer 1, which was killed'
expect_out '^where a step went'

scene "wrong flags"
refuse 2 'launch: --profile_steps=9: BEGIN:END is wanted' "$launch" "${flags[@]}" --profile="$trace" --profile_steps=9
refuse 2 'trainer: --profile=/no/such/file: /no/such is no directory that can be written' \
  "$trainer" --job="$job" --role=local --profile=/no/such/file
refuse 2 'trainer: --profile is of steps of training' \
  "$trainer" --job="$job" --role=predict --checkpoint="$work/checkpoints" --output="$work/out" --profile="$trace"

conclude
