#!/bin/bash
# launch with the real pserver and trainer: a whole job, a clean stop and its resume,
# a process that dies, one that cannot start.
source tests/e2e/processes/cluster.sh

launch=$root/tools/launch
job=$work/job.textproto
make_data "$work/train.txt"
make_job "$job"
logs=$work/mylog
flags=(--job="$job" --servers=2 --trainers=2 --log_dir="$logs")

# start_launch [flags]: stdout to launch.out, stderr to launch.log
start_launch() {
  "$launch" "${flags[@]}" "$@" > "$work/launch.out" 2> "$work/launch.log" &
  pid[launch]=$!
}
last_line() { tail -n 1 "$work/launch.out"; }
# child <flag>: pid of the process of the launch that was started with it
child() { pgrep -P "${pid[launch]}" -f -- "$1"; }

scene "one process"
"$trainer" --job="$job" --role=local > "$work/local.log" 2>&1 || fail "local training fails"
alone=$(digest)
alone_steps=$(grep -oE "^done steps=[0-9]+" "$work/local.log" | cut -d " " -f 2)
rm -rf "$work/checkpoints"

scene "a whole job"
start_launch
wait_end 60 launch
expect_rc 0 launch
[[ $(last_line) == "done $alone_steps examples=3840 "* ]] || fail "last line: $(last_line)"
expect_digest "$alone"
for name in pserver.0 pserver.1 trainer.0 trainer.1; do
  [ -s "$logs/$name.log" ] || fail "no $logs/$name.log"
  grep -q "^\[$name\] " "$work/launch.out" "$work/launch.log" || fail "nothing of $name on the console"
done
grep -q "^done $alone_steps " "$logs/trainer.0.log" || fail "the chief's log has no done line"
expect_no_children

# Every process reads it; paths in it are relative to the working directory.
scene "a job from a pipe"
rm -rf "$work/checkpoints"
(cd "$work" && "$launch" --job=/dev/stdin --servers=1 --trainers=2 --log_dir="$logs") < <(cat "$job") \
  > "$work/launch.out" 2> "$work/launch.log" || fail "launch --job=/dev/stdin"
expect_digest "$alone"
rm -rf "$work/checkpoints"
(cd "$work" && "$trainer" --job=<(cat "$job") --role=local) > "$work/local.log" 2>&1 || fail "a trainer of a pipe"
expect_digest "$alone"
refuse 2 '/dev/stdin is empty; what comes from a pipe' "$trainer" --job=/dev/stdin --role=local < /dev/null

# Data and checkpoints are in $work, the working directory and a copy of the job file elsewhere.
scene "paths of a job are relative to --job_dir"
rm -rf "$work/checkpoints"
mkdir "$work/elsewhere"
cp "$job" "$work/elsewhere/copy.textproto"
(cd "$work/elsewhere" && "$launch" --job=/dev/stdin --job_dir="$work" --servers=2 --trainers=2) < <(cat "$job") \
  > "$work/launch.out" 2> "$work/launch.log" || fail "launch --job=/dev/stdin --job_dir"
expect_digest "$alone"
rm -rf "$work/checkpoints"
(cd "$work/elsewhere" && "$launch" --job=copy.textproto --job_dir=.. --servers=2 --trainers=2) \
  > "$work/launch.out" 2> "$work/launch.log" || fail "launch of a copy with --job_dir"
expect_digest "$alone"
rm -rf "$work/checkpoints"
(cd "$work/elsewhere" && "$trainer" --job=/dev/stdin --job_dir=.. --role=local) < "$job" > "$work/local.log" 2>&1 ||
  fail "a trainer of a pipe with --job_dir"
expect_digest "$alone"
[ ! -e "$work/elsewhere/checkpoints" ] || fail "checkpoints are in the working directory"
refuse 2 'trainer: --job_dir=/nowhere: there is no such directory' \
  "$trainer" --job="$job" --job_dir=/nowhere --role=local
refuse 2 'pserver: --job_dir=/nowhere: there is no such directory' \
  "$pserver" --job="$job" --job_dir=/nowhere --endpoint=127.0.0.1:0 --server_id=0

scene "SIGTERM, then resume"
rm -rf "$work/checkpoints"
start_launch --set train.epochs=10000
wait_checkpoint
kill -TERM "${pid[launch]}"
wait_end 30 launch
expect_rc 5 launch
[[ $(last_line) == "done steps="*" stopped=1" ]] || fail "last line: $(last_line)"
"$checkpoint" verify "$work/checkpoints" > /dev/null || fail "the checkpoint does not verify"
steps=$(last_line | grep -oE 'steps=[0-9]+' | cut -d = -f 2)
expect_no_children
start_launch --set train.epochs=10000 --set train.max_steps=$((steps + 7)) -- --resume
wait_end 60 launch
expect_rc 0 launch
resumed=$(digest)
rm -rf "$work/checkpoints"
start_launch --set train.epochs=10000 --set train.max_steps=$((steps + 7))
wait_end 60 launch
expect_rc 0 launch
expect_digest "$resumed"

scene "a trainer is killed"
rm -rf "$work/checkpoints"
start_launch --set train.epochs=10000
wait_checkpoint
since=$(now)
kill -KILL "$(child --trainer_id=1)"
wait_end 30 launch
expect_rc 137 launch
expect_log launch 'launch: trainer.1 failed: killed by signal 9 \(Killed\); ending the others'
expect_log launch 'launch: trainer.1 failed: killed by signal 9 \(Killed\); the last lines of .*/trainer.1.log:'
# Two leases, and what it takes to notice.
after $((2 * lease + 3)) "$since" && fail "the end took more than two leases"
"$checkpoint" verify "$work/checkpoints" > /dev/null || fail "the checkpoint does not verify"
expect_no_children

scene "an asynchronous job goes on without it"
rm -rf "$work/checkpoints"
start_launch --keep_going --set distribute.sync=false --set train.epochs=40
wait_checkpoint
kill -KILL "$(child --trainer_id=1)"
wait_end 60 launch
expect_rc 137 launch
expect_log launch 'launch: trainer.1 failed: killed by signal 9 \(Killed\); the others go on'
[[ $(last_line) == "done steps="* ]] || fail "last line: $(last_line)"

scene "an asynchronous trainer is frozen"
rm -rf "$work/checkpoints"
start_launch --set distribute.sync=false --set train.epochs=10000
wait_checkpoint
kill -STOP "$(child --trainer_id=1)"
wait_end 30 launch
expect_rc 3 launch
expect_log launch 'launch: trainer.1 was stopped by a signal \(SIGSTOP\) for two leases \(4 s\): killed'
"$checkpoint" verify "$work/checkpoints" > /dev/null || fail "the checkpoint does not verify"
expect_no_children

scene "an asynchronous job goes on without a frozen trainer"
rm -rf "$work/checkpoints"
start_launch --keep_going --set distribute.sync=false --set train.epochs=10
wait_checkpoint
kill -STOP "$(child --trainer_id=1)"
wait_end 60 launch
expect_rc 3 launch
expect_log launch 'launch: trainer.1 was stopped by a signal \(SIGSTOP\) for two leases \(4 s\): killed'
[[ $(last_line) == "done steps="* ]] || fail "last line: $(last_line)"
expect_no_children

# The others end by themselves, whom nobody would end otherwise.
scene "a frozen trainer of a synchronous job without servers that keeps going"
rm -rf "$work/checkpoints"
"$launch" --job="$job" --servers=0 --trainers=2 --log_dir="$logs" --keep_going --set train.epochs=10000 \
  > "$work/launch.out" 2> "$work/launch.log" &
pid[launch]=$!
wait_checkpoint
kill -STOP "$(child --trainer_id=1)"
wait_end 30 launch
expect_rc 3 launch
expect_log launch 'launch: trainer.1 was stopped by a signal \(SIGSTOP\) for two leases \(4 s\): killed'
expect_no_children

scene "a server is asked to end before a trainer has joined"
rm -rf "$work/checkpoints"
WEIR_FAULT_POINT=stop:trainer.0:connecting "$launch" --job="$job" --servers=2 --trainers=1 --log_dir="$logs" \
  --set deadlines.connect_deadline_s=1000 --set deadlines.progress_deadline_s=1000 \
  > "$work/launch.out" 2> "$work/launch.log" &
pid[launch]=$!
wait_log launch 'this process has reached its fault point'
kill -TERM "$(child --server_id=0)"
wait_log launch 'pserver.0. .*server 0 ends, as it was asked to, without trainer 0'
kill -CONT "$(child --trainer_id=0)"
wait_end 30 launch
expect_rc 3 launch
expect_log launch 'trainer.0. .*waits for server 0 at .*: to join, for 1 s; the last try: .*refused'
expect_log launch \
  'launch: pserver.0 \(exit code 5\) ended before the trainers were done: pserver.1, trainer.0 did not end'
expect_no_children

scene "launch itself is killed"
rm -rf "$work/checkpoints"
start_launch --set train.epochs=10000
wait_checkpoint
kill -KILL "${pid[launch]}"
wait_end 5 launch
since=$(now)
while pgrep -f -- "--job=$job" > /dev/null && ! after 5 "$since"; do sleep 0.05; done
expect_no_children

scene "a job that is wrong"
sed 's/learning_rate: 0.001/learnig_rate: 0.001/' "$job" > "$work/typo.textproto"
refuse 2 'launch: .*typo.textproto:[0-9]+:[0-9]+: unknown field .learnig_rate. \(did you mean .learning_rate.\?\)' \
  "$launch" --job="$work/typo.textproto" --servers=1 --trainers=1 --log_dir="$logs"
refuse 2 'launch: pserver.[01] failed: exit code 2; the last lines' \
  "$launch" "${flags[@]}" --set optimizer.adam.learning_rate=-1

scene "trainers that cannot start"
refuse 2 'launch: trainer.[01] failed: exit code 2; the last lines' "$launch" "${flags[@]}" -- --nonsense
refuse 2 'unknown flag --nonsense' "$launch" "${flags[@]}" -- --nonsense
expect_no_children

conclude
