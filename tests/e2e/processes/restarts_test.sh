#!/bin/bash
# launch --restarts: a job whose processes die ends by itself, with the digest of an undisturbed one.
source tests/e2e/processes/cluster.sh

launch=$root/tools/launch
job=$work/job.textproto
make_data "$work/train.txt"
make_job "$job"
logs=$work/mylog
flags=(--job="$job" --servers=2 --trainers=2 --log_dir="$logs" --set train.epochs=12 --restarts=5)

start_launch() {
  "$launch" "${flags[@]}" "$@" > "$work/launch.out" 2> "$work/launch.log" &
  pid[launch]=$!
}
last_line() { tail -n 1 "$work/launch.out"; }
child() { pgrep -P "${pid[launch]}" -f -- "$1"; }
# wait_child <flag>: the process of launch with this flag, once it is there
wait_child() {
  local since
  since=$(now)
  until child "$1"; do
    after 20 "$since" && fail "no process with $1" && return 1
    sleep 0.02
  done
}
# wait_line <text>: until launch's errors have it
wait_line() {
  local since
  since=$(now)
  until grep -q -- "$1" "$work/launch.log"; do
    after 30 "$since" && fail "no line with '$1'" && return 1
    sleep 0.02
  done
}

scene "undisturbed"
start_launch
wait_end 60 launch
expect_rc 0 launch
whole=$(digest)
[[ $(last_line) == "done "* && $(last_line) != *restarts* ]] || fail "last line: $(last_line)"

scene "a trainer and a server die"
rm -rf "$work/checkpoints"
start_launch
wait_checkpoint
kill -KILL "$(child --trainer_id=1)"
wait_line 'restart 1 (--restarts=5, 4 left): trainer.1 failed: killed by signal 9 (Killed); the job starts again'
wait_line 'the job starts again from step '
kill -KILL "$(wait_child --server_id=0)"
wait_line 'restart 2 (--restarts=5, 3 left): pserver.0 failed: killed .*; the job starts again from .* in 1 s'
wait_end 60 launch
expect_rc 0 launch
expect_digest "$whole"
[[ $(last_line) == *" restarts=2 lost_s="*" repeated_steps="* ]] || fail "last line: $(last_line)"
[ -s "$logs/trainer.1.log" ] || fail "the log of the first start is gone"
[ -s "$logs/restart.2/trainer.1.log" ] || fail "no log of the second restart"
expect_no_children

scene "it dies before it has a checkpoint, and an earlier run has left some"
rm -rf "$work/checkpoints"
start_launch --set train.seed=9 --set train.max_steps=40
wait_end 60 launch
expect_rc 0 launch
start_launch --set checkpoint.every_steps=100000
kill -KILL "$(wait_child --trainer_id=0)"
wait_line 'the job starts again from its newest checkpoint, or its beginning if it has none'
wait_end 60 launch
expect_rc 0 launch
expect_digest "$whole"
expect_no_children

scene "--resume of an earlier run"
rm -rf "$work/checkpoints"
start_launch --set train.max_steps=100
wait_end 60 launch
start_launch --restarts=1/hour -- --resume
kill -KILL "$(wait_child --trainer_id=1)"
wait_end 60 launch
expect_rc 0 launch
expect_digest "$whole"

scene "no restart is left"
rm -rf "$work/checkpoints"
start_launch --restarts=1 --set train.epochs=100000
kill -KILL "$(wait_child --trainer_id=1)"
wait_line 'restart 1 (--restarts=1, 0 left)'
kill -KILL "$(wait_child --trainer_id=0)"
wait_end 30 launch
expect_rc 137 launch
expect_log launch 'launch: the job is not started again: no restart is left \(--restarts=1\)'
expect_no_children

scene "a mistake would repeat"
rm -rf "$work/checkpoints"
printf 'this is no line\n' > "$work/bad.txt"
start_launch --set 'data.train.files="bad.txt"'
wait_end 30 launch
expect_rc 2 launch
expect_log launch 'launch: the job is not started again: it would fail again \(exit code 2\)'
! grep -q 'restart 1' "$work/launch.log" || fail "started again"

scene "a stop is no death, also between two starts"
rm -rf "$work/checkpoints"
start_launch --set train.epochs=100000
wait_checkpoint
kill -TERM "${pid[launch]}"
wait_end 30 launch
expect_rc 5 launch
! grep -q 'restart 1' "$work/launch.log" || fail "started again"
start_launch --set train.epochs=100000
kill -KILL "$(wait_child --trainer_id=1)"
wait_line 'restart 1 '
kill -KILL "$(wait_child --trainer_id=1)"
wait_line 'restart 2 .* in 1 s'
kill -TERM "${pid[launch]}"
wait_end 10 launch
expect_rc 5 launch
expect_log launch 'Terminated: the job is not started again'
expect_no_children

scene "flags that contradict each other"
refuse 2 '--restarts=often: must be a number of restarts' "$launch" "${flags[@]}" --restarts=often
refuse 2 'give one of them' "$launch" "${flags[@]}" --keep_going
refuse 2 'there is no --restarts' "$launch" --job="$job" --min_trainers=1
refuse 2 '--resume_run needs the name of the run' "$trainer" --job="$job" --role=local --resume_run
refuse 2 'give one of them' "$trainer" --job="$job" --role=local --resume_run --resume --run_id=a

conclude
