#!/bin/bash
# tools/slurm_job on Slurm as two nodes of this host: figures and checkpoint of one launch, a stop, which starts no job
# that depends on success, requeues by hand and by itself, a trainer that is killed, a wrong job, and what the script
# says where there is no Slurm. Skips the rest of it, and says so in the XML of the test, where Slurm is not installed
# or the user is not root.
source tests/e2e/processes/cluster.sh
source tests/e2e/processes/slurm.sh
trap 'stop_slurm; finish' EXIT

for variable in $(compgen -e | grep -E '^(SLURM|SBATCH_|WEIR_BIN_DIR)'); do unset "$variable"; done
slurm_job=$root/tools/slurm_job
launch=$root/tools/launch
job=$work/job.textproto
make_data "$work/train.txt"
make_job "$job"
# With an evaluation the figures are those of all examples, also after a resume.
sed -i -e 's/^  train { files: "train.txt" }/&\n  eval { files: "train.txt" }/' "$job"
cd "$work" || exit 1

# figures <file>: loss and AUC of the last line of a launch, of node 0 in the output of slurm_job
figures() { grep -hE '^(0: )?done ' "$1" | tail -n 1 | grep -oE ' (steps|loss|auc)=[^ ]+' | tr -d '\n'; }

# submit [arguments of slurm_job]: sets id
submit() {
  rm -rf "$work/checkpoints"
  id=$(sbatch --parsable --nodes=2 --output="$work/job.log" "$slurm_job" "$job" --servers=2 --trainers=2 "$@") ||
    fail "sbatch fails"
}
pid_of_trainer() { pgrep -af -- "--job=$job" | grep -e "--trainer_id=$1" | cut -d ' ' -f 1; }
# field <name>: of the job, as Slurm has it
field() { scontrol --oneliner show job "$id" | grep -oE " $1=[^ ]+" | cut -d = -f 2; }
# expect_state <seconds> <state> <exit code, or a regular expression of some>: the job comes to this end
expect_state() {
  local since state
  since=$(now)
  until state=$(field JobState) && [[ ! $state =~ ^(PENDING|CONFIGURING|RUNNING|COMPLETING)$ ]]; do
    if after "$1" "$since"; then
      fail "job $id is $state after $1 s"
      scancel --signal=KILL --full "$id"
      return
    fi
    sleep 0.1
  done
  [[ "$state $(field ExitCode)" =~ ^$2\ $3:0$ ]] || fail "job $id is $state $(field ExitCode), expected $2 $3:0"
  expect_no_children
}

scene "without Slurm"
refuse 2 "not in a job of Slurm: .*SLURM_JOB_NODELIST is missing; start it by 'sbatch .*or without Slurm 'launch " \
  "$slurm_job" "$job"
refuse 2 "no program srun on PATH" \
  env SLURM_JOB_ID=1 SLURM_JOB_NODELIST=n0 PATH="$work" /bin/bash "$slurm_job" "$job"
refuse 2 "started by srun, on each node: start it once" \
  env SLURM_JOB_ID=1 SLURM_JOB_NODELIST=n0 SLURM_STEP_ID=0 "$slurm_job" "$job"
refuse 0 "sbatch --nodes=N tools/slurm_job JOB" "$slurm_job" --help

lacks=$(slurm_lacks)
if [ -n "$lacks" ]; then
  echo "SKIPPED [jobs of Slurm]: $lacks"
  [ -z "${XML_OUTPUT_FILE:-}" ] || cat > "$XML_OUTPUT_FILE" <<END_OF_XML
<?xml version="1.0" encoding="UTF-8"?>
<testsuites><testsuite name="slurm_test">
<testcase classname="slurm" name="without Slurm">$([ "$failures" -eq 0 ] || echo '<failure message="see the log"/>')
</testcase><testcase classname="slurm" name="jobs of Slurm"><skipped message="$lacks"/></testcase>
</testsuite></testsuites>
END_OF_XML
  conclude
fi

# Ports follow from job ids: the first id is one whose jobs here find their ports free.
first_free_id() {
  local first i
  while :; do
    first=$((1 + RANDOM % 690))
    for i in {0..9}; do ports_are_free $((10240 + 32 * (first + i))) 2 || continue 2; done
    echo "$first"
    return
  done
}
scene "Slurm starts"
start_slurm "FirstJobId=$(first_free_id)" || conclude

scene "two nodes: the figures and the checkpoint of one launch"
"$launch" --job="$job" --servers=2 --trainers=2 > "$work/alone.out" 2> "$work/alone.log" || fail "one launch fails"
alone=$(digest)
submit
expect_state 60 COMPLETED 0
[[ $(figures "$work/alone.out") == *auc=* && $(figures "$work/job.log") == "$(figures "$work/alone.out")" ]] ||
  fail "ends with '$(figures "$work/job.log")', one launch with '$(figures "$work/alone.out")'"
expect_digest "$alone"
expect_log job "^slurm_job: job $id on n\[0-1\]; they meet at 127.0.0.1:$((10240 + 32 * (id % 704))); "
expect_log job '^1: launch: node 1 of 2: 1 server and 1 trainer on '
for log in node.0/pserver.0 node.0/trainer.0 node.1/pserver.1 node.1/trainer.1; do
  [ -s "$work/mylog/slurm.$id/$log.log" ] || fail "no log $log"
done

scene "two nodes without servers"
submit --servers=0 --set distribute.dense=ALL_REDUCE
expect_state 60 COMPLETED 0
expect_digest "$alone"

scene "a stop, and a requeue that goes on from its checkpoint"
longer=(--set train.epochs=40 --set checkpoint.every_steps=200)
rm -rf "$work/checkpoints"
"$launch" --job="$job" --servers=2 --trainers=2 "${longer[@]}" > "$work/alone.out" 2> "$work/alone.log" ||
  fail "one launch fails"
alone=$(digest)
submit "${longer[@]}"
wait_checkpoint
next=$(sbatch --parsable --dependency=afterok:"$id" --output=/dev/null --wrap=true) || fail "sbatch fails"
scancel --signal=TERM --batch "$id"
expect_state 60 FAILED 5
expect_log job "^slurm_job: stopped; 'scontrol requeue $id' goes on from the checkpoint"
since=$(now)
until [[ $(scontrol --oneliner show job "$next") =~ Reason=DependencyNeverSatisfied ]]; do
  after 30 "$since" && fail "what depends on a stopped job: $(scontrol --oneliner show job "$next")" && break
  sleep 0.1
done
scancel "$next"
stopped=$(grep -E '^0: done .* stopped=1$' "$work/job.log" | grep -oE 'steps=[0-9]+' | cut -d = -f 2)
[[ -n $stopped && $(newest) = step-$(printf %012d "$stopped") ]] ||
  fail "stopped at step '$stopped', the newest checkpoint is '$(newest)'"
scontrol requeue "$id" || fail "no requeue"
expect_state 90 COMPLETED 0
[ "$(field Restarts)" = 1 ] || fail "was started again $(field Restarts) times"
[ "$(figures "$work/job.log")" = "$(figures "$work/alone.out")" ] ||
  fail "ends with '$(figures "$work/job.log")', a run without a stop with '$(figures "$work/alone.out")'"
expect_digest "$alone"
expect_log job "^slurm_job: started again \(1\): goes on from the newest checkpoint"
[ -s "$work/mylog/slurm.$id.1/node.1/trainer.1.log" ] || fail "no log of the second start"

scene "a job that is stopped requeues itself if it is told to"
submit --requeue_when_stopped "${longer[@]}"
wait_checkpoint
scancel --signal=TERM --batch "$id"
since=$(now)
until [ "$(field Restarts)" = 1 ]; do
  after 60 "$since" && fail "job $id is $(field JobState), started again $(field Restarts) times" && break
  sleep 0.1
done
expect_state 90 COMPLETED 0
[ "$(figures "$work/job.log")" = "$(figures "$work/alone.out")" ] ||
  fail "ends with '$(figures "$work/job.log")', a run without a stop with '$(figures "$work/alone.out")'"
expect_digest "$alone"

scene "a second stop ends the job at once"
# Without this trainer the others come to no step border; launch would continue one that is stopped.
submit --set train.epochs=100000 --env WEIR_FAULT_POINT=stall:trainer.1:first_part:30
wait_log job 'this process has reached its fault point'
scancel --signal=TERM --batch "$id"
wait_log job 'told to stop: the job ends at a step border'
scancel --signal=TERM --batch "$id"
wait_log job 'told to stop: the job ends at once'
# launch was killing when its trainer ended by itself, or the other way round.
expect_state 60 FAILED '(3|129|143)'

scene "a trainer of the other node is killed"
submit --set train.epochs=100000
wait_checkpoint
kill -KILL "$(pid_of_trainer 1)"
expect_state $((2 * lease + 30)) FAILED 137
expect_log job '^1: launch: trainer.1 failed: killed by signal 9'
expect_log job '^0: slurm_job: launch on node 0 \(n0\) ended with exit code 3$'

scene "a wrong job"
submit --set optimizer.adam.learning_rate=-1
expect_state 60 FAILED 2
expect_log job 'learning_rate must be positive, got -1'
submit --nnodes=3
expect_state 60 FAILED 2
expect_log job "^slurm_job: --nnodes: the nodes are those of Slurm's job"
submit --bin_dir="$work"
expect_state 60 FAILED 2
expect_log job "^slurm_job: no program launch: looked for $work/launch "

conclude
