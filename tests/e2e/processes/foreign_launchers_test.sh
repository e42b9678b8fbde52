#!/bin/bash
# Trainers that other launchers start: torchrun, mpirun, srun, Fluid's scripts, and hands. Each way must give the steps,
# examples, loss and digest of one process. Launchers that are not installed are skipped, which the last lines and the
# XML of the test say: torchrun (on PATH, or $WEIR_TORCHRUN), mpirun, and Slurm with its daemons, which need root.
#
# What torchrun sets is also set by this test itself, beside a process that holds MASTER_PORT as torchrun's agent does.
source tests/e2e/processes/cluster.sh
source tests/e2e/processes/slurm.sh

for variable in $(compgen -e | grep -E '^(OMPI_|PMIX_|PRTE_|SLURM|TORCHELASTIC_|FLAGS_|PADDLE_)') RANK WORLD_SIZE \
  LOCAL_RANK LOCAL_WORLD_SIZE GROUP_RANK MASTER_ADDR MASTER_PORT; do
  unset "$variable"
done

make_data "$work/train.txt"
make_job "$work/hybrid.textproto"
# The loss of the evaluation is that of all examples; that of training is of a trainer's own.
sed -i -e 's/^distribute .*/distribute { sync: true servers: 1 dense: ALL_REDUCE }/' \
  -e 's/^  train { files: "train.txt" }/&\n  eval { files: "train.txt" }/' "$work/hybrid.textproto"
sed 's/servers: 1/servers: 0/' "$work/hybrid.textproto" > "$work/collective.textproto"
job=$work/collective.textproto
hybrid=$work/hybrid.textproto

# ------------------------------------------------------------------------------------- what the test says of itself
cases=() case_failures=0
end_case() {
  [ -n "${case_name:-}" ] || return
  if [ "$failures" -gt "$case_failures" ]; then cases+=("failed $case_name"); else cases+=("passed $case_name"); fi
  case_name=
}
# go_on <case>: with the checkpoints of the one before; begin <case>: without
go_on() {
  end_case
  case_failures=$failures
  scene "$1"
}
begin() {
  rm -rf "$work/checkpoints"
  go_on "$1"
}
# skip <what> <why>
skip() {
  end_case
  echo "SKIPPED [$1]: $2"
  cases+=("skipped $1: $2")
}
report() {
  local line outcome
  end_case
  echo "---- ${#cases[@]} cases"
  printf '%s\n' "${cases[@]}"
  [ -n "${XML_OUTPUT_FILE:-}" ] || return
  {
    echo '<?xml version="1.0" encoding="UTF-8"?>'
    echo '<testsuites><testsuite name="foreign_launchers_test">'
    for line in "${cases[@]}"; do
      outcome=${line%% *} line=${line#* }
      line=${line//&/&amp;} line=${line//</&lt;} line=${line//\"/&quot;}
      echo "<testcase classname=\"foreign_launchers\" name=\"${line%%: *}\">"
      case $outcome in
        failed) echo '<failure message="see the log"/>' ;;
        skipped) echo "<skipped message=\"${line#*: }\"/>" ;;
      esac
      echo '</testcase>'
    done
    echo '</testsuite></testsuites>'
  } > "$XML_OUTPUT_FILE"
}

# ------------------------------------------------------------------------------------------------------- helpers
# The trainer as launchers start it, with a log of its own for each rank.
cat > "$work/run_trainer" <<END
#!/bin/bash
rank=\${RANK:-\${OMPI_COMM_WORLD_RANK:-\${SLURM_PROCID:-x}}}
exec "$trainer" --threads=1 "\$@" > "$work/trainer.\$rank.log" 2>&1
END
cat > "$work/run_server" <<END
#!/bin/bash
rank=\${RANK:-\${OMPI_COMM_WORLD_RANK:-\${SLURM_PROCID:-x}}}
exec "$pserver" --threads=1 "\$@" > "$work/server.\$rank.log" 2>&1
END
chmod +x "$work/run_trainer" "$work/run_server"

# done_line <log>: without its times
done_line() { grep -h '^done ' "$work/$1.log" | sed -E 's/ seconds=[^ ]+ examples_per_s=[^ ]+//'; }

# expect_same [log of trainer 0]: the end of one process
expect_same() {
  [ "$(done_line "${1:-trainer.0}")" = "$alone_line" ] ||
    fail "ends with '$(done_line "${1:-trainer.0}")', one process with '$alone_line'"
  expect_digest "$alone"
}

# start_torch <rank> <world> <nodes> <port> [flags]: the variables of torchrun
start_torch() {
  local rank=$1 world=$2 nodes=$3 port=$4
  shift 4
  start "trainer.$rank" env RANK="$rank" WORLD_SIZE="$world" LOCAL_RANK=$((rank / nodes)) \
    LOCAL_WORLD_SIZE=$((world / nodes)) GROUP_RANK=$((rank % nodes)) GROUP_WORLD_SIZE="$nodes" ROLE_NAME=default \
    ROLE_RANK="$rank" ROLE_WORLD_SIZE="$world" MASTER_ADDR=127.0.0.1 MASTER_PORT="$port" \
    TORCHELASTIC_RUN_ID=none TORCHELASTIC_RESTART_COUNT=0 TORCHELASTIC_MAX_RESTARTS=0 \
    TORCHELASTIC_USE_AGENT_STORE=True OMP_NUM_THREADS=1 "$trainer" --threads=1 "$@"
}

# start_agent <port>: holds the port, takes connections and says nothing
start_agent() {
  rm -f "$work/agent.ready"
  start agent python3 -c '
import socket, sys
listener = socket.socket(socket.AF_INET6)
listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
listener.bind(("::", int(sys.argv[1])))
listener.listen()
open(sys.argv[2], "w").close()
taken = []
while True:
    taken.append(listener.accept())' "$1" "$work/agent.ready"
  local since
  since=$(now)
  until [ -e "$work/agent.ready" ]; do
    after 20 "$since" && fail "no agent" && return
    sleep 0.02
  done
}

# --------------------------------------------------------------------------------------------------------- scenes
begin "one process"
"$trainer" --job="$job" --role=local > "$work/local.log" 2>&1 || fail "local training fails"
alone=$(digest)
alone_line=$(done_line local)
[[ $alone_line == "done steps=60 examples=3840 loss="*" auc="* ]] || fail "no reference: '$alone_line'"
[ -n "$alone" ] || fail "no digest"

begin "torchrun's variables beside its agent"
port=$(free_port 16)
start_agent "$port"
for rank in 2 0 1; do start_torch "$rank" 3 1 "$port" --job="$job"; done
wait_end 60 trainer.0 trainer.1 trainer.2
expect_rc 0 trainer.0 trainer.1 trainer.2
expect_same
expect_log trainer.0 "meets 2 others at tcp://127.0.0.1:$((port + 1)) to $((port + 16))"

go_on "torchrun's variables and predictions"
"$trainer" --job="$job" --role=predict --checkpoint="$work/checkpoints" --input="$work/train.txt" \
  --output="$work/alone.scores" > "$work/alone.log" 2>&1 || fail "prediction alone fails"
port=$(free_port 16)
start_agent "$port"
for rank in 0 1; do
  start_torch "$rank" 2 1 "$port" --job="$job" --role=predict --checkpoint="$work/checkpoints" \
    --input="$work/train.txt" --output="$work/scores"
done
wait_end 60 trainer.0 trainer.1
expect_rc 0 trainer.0 trainer.1
cmp "$work/alone.scores" "$work/scores" || fail "other scores"

begin "torchrun's variables and a server started by hand"
port=$(free_port 17)
start_agent "$port"
meet=tcp://127.0.0.1:$((port + 17))
start server.0 "$pserver" --job="$hybrid" --trainers=2 --init_method="$meet"
for rank in 0 1; do start_torch "$rank" 2 2 "$port" --job="$hybrid" --init_method="$meet"; done
wait_end 60 trainer.0 trainer.1 server.0
expect_rc 0 trainer.0 trainer.1 server.0
expect_same

begin "RANK and MASTER_ADDR of a script"
port=$(free_port)
for rank in 1 0; do
  start "trainer.$rank" env RANK="$rank" WORLD_SIZE=2 MASTER_ADDR=localhost MASTER_PORT="$port" \
    "$trainer" --job="$job" --threads=1
done
wait_end 60 trainer.0 trainer.1
expect_rc 0 trainer.0 trainer.1
expect_same
expect_log trainer.1 "meets 1 others at tcp://localhost:$port"

for backend in GLOO WIRE; do
  if ! grep -q '^0\{31\}1 ' /proc/net/if_inet6 2>/dev/null; then
    skip "IPv6, $backend" "this machine has no ::1"
    continue
  fi
  begin "trainers meet at an IPv6 address, $backend"
  port=$(free_port)
  for rank in 1 0; do
    start "trainer.$rank" "$trainer" --job="$job" --threads=1 --trainers=2 --trainer_id="$rank" \
      --init_method="tcp://[::1]:$port" --set "comm.backend=$backend"
  done
  wait_end 60 trainer.0 trainer.1
  expect_rc 0 trainer.0 trainer.1
  expect_same
  begin "a list of IPv6 addresses, $backend"
  endpoints=[::1]:$(free_port),[::1]:$(free_port)
  for rank in 0 1; do
    start "trainer.$rank" "$trainer" --job="$job" --threads=1 --trainer_id="$rank" --pservers="$endpoints" \
      --set "comm.backend=$backend"
  done
  wait_end 60 trainer.0 trainer.1
  expect_rc 0 trainer.0 trainer.1
  expect_same
  begin "a server at an IPv6 address, $backend"
  endpoints=[::1]:$(free_port)
  start server.0 "$pserver" --job="$hybrid" --trainers=2 --pservers="$endpoints" --server_id=0 \
    --set "comm.backend=$backend"
  for rank in 0 1; do
    start "trainer.$rank" "$trainer" --job="$hybrid" --threads=1 --trainers=2 --trainer_id="$rank" \
      --pservers="$endpoints" --set "comm.backend=$backend"
  done
  wait_end 60 trainer.0 trainer.1 server.0
  expect_rc 0 trainer.0 trainer.1 server.0
  expect_same
done

begin "Fluid's nccl2 mode"
endpoints=127.0.0.1:$(free_port),127.0.0.1:$(free_port)
for rank in 0 1; do
  start "trainer.$rank" env FLAGS_selected_gpus="$rank" PADDLE_TRAINER_ID="$rank" PADDLE_TRAINERS_NUM=2 \
    PADDLE_CURRENT_ENDPOINT="$(cut -d, -f$((rank + 1)) <<< "$endpoints")" PADDLE_TRAINER_ENDPOINTS="$endpoints" \
    "$trainer" --job="$job" --threads=1
done
wait_end 60 trainer.0 trainer.1
expect_rc 0 trainer.0 trainer.1
expect_same

begin "Fluid's pserver mode"
port=$(free_port)
start server.0 env TRAINING_ROLE=PSERVER PADDLE_PSERVERS_IP_PORT_LIST=127.0.0.1:"$port" PADDLE_TRAINERS_NUM=2 \
  POD_IP=127.0.0.1 PADDLE_PORT="$port" "$pserver" --job="$hybrid" --threads=1
for rank in 0 1; do
  start "trainer.$rank" env TRAINING_ROLE=TRAINER PADDLE_PSERVERS_IP_PORT_LIST=127.0.0.1:"$port" \
    PADDLE_TRAINER_ENDPOINTS=127.0.0.1:1,127.0.0.1:2 PADDLE_TRAINERS_NUM=2 PADDLE_TRAINER_ID="$rank" \
    PADDLE_WITH_GLOO=0 "$trainer" --job="$hybrid" --threads=1
done
wait_end 60 trainer.0 trainer.1 server.0
expect_rc 0 trainer.0 trainer.1 server.0
expect_same

begin "files in a shared directory, after a run that was killed"
meet=file://$work/meet
start dead.1 "$trainer" --job="$job" --trainers=2 --trainer_id=1 --init_method="$meet"
since=$(now)
until compgen -G "$work/meet/trainer.1.*.here" > /dev/null; do
  after 20 "$since" && fail "no file" && break
  sleep 0.02
done
kill -KILL "${pid[dead.1]}"
wait "${pid[dead.1]}" 2>/dev/null
unset 'pid[dead.1]'
# An address of the default route would do, too, but the machine of a test may have none.
for rank in 0 1; do
  start "trainer.$rank" "$trainer" --job="$job" --trainers=2 --trainer_id="$rank" --threads=1 \
    --endpoint=127.0.0.1:0 --init_method="$meet"
done
wait_end 60 trainer.0 trainer.1
expect_rc 0 trainer.0 trainer.1
expect_same
rm -rf "$work/meet"

begin "who is missing is named, and a signal ends the wait at once"
port=$(free_port)
for rank in 0 1; do
  start "trainer.$rank" "$trainer" --job="$job" --trainers=3 --trainer_id="$rank" \
    --init_method=tcp://127.0.0.1:"$port"
done
wait_log trainer.0 "has waited for .* at tcp://127.0.0.1:$port for trainer 2; 2 of 3 are there"
wait_log trainer.1 "has waited for .* at tcp://127.0.0.1:$port for trainer 2"
since=$(now)
kill -TERM "${pid[trainer.0]}"
wait_end 5 trainer.0 trainer.1
expect_rc 5 trainer.0 trainer.1
expect_log trainer.0 "^trainer: ended by a signal, after .* for trainer 2"
expect_log trainer.1 "^trainer: trainer 0 has ended the meeting at .*ended by a signal"
start trainer.0 "$trainer" --job="$job" --trainers=2 --trainer_id=0 --set deadlines.connect_deadline_s=2 \
  --init_method=tcp://127.0.0.1:"$port"
wait_end 10 trainer.0
expect_rc 3 trainer.0
expect_log trainer.0 "^trainer: waited for 2s \(deadlines.connect_deadline_s\) at .* for trainer 1; 1 of 2 are there"

begin "a trainer is killed while it waits, and comes again"
port=$(free_port)
start_meeting() {
  start "trainer.$1" "$trainer" --job="$job" --trainers=3 --trainer_id="$1" --threads=1 \
    --init_method=tcp://127.0.0.1:"$port"
}
start_meeting 0
start_meeting 1
wait_log trainer.0 "trainer 1 .* is there"
kill -KILL "${pid[trainer.1]}"
wait "${pid[trainer.1]}" 2>/dev/null
wait_log trainer.0 "trainer 1 .* has left before all were there"
start_meeting 1
start_meeting 2
wait_end 60 trainer.0 trainer.1 trainer.2
expect_rc 0 trainer.0 trainer.1 trainer.2
expect_same

begin "contradictions are refused"
port=$(free_port)
start trainer.0 "$trainer" --job="$job" --trainers=2 --trainer_id=0 --init_method=tcp://127.0.0.1:"$port"
wait_log trainer.0 "meets 1 others"
one=(--job="$job" --trainer_id=1 --init_method=tcp://127.0.0.1:"$port")
refuse 2 "trainer 1 \(.*\) says that there are 3 trainers, trainer 0 \(.*\) that there are 2" \
  "$trainer" "${one[@]}" --trainers=3
refuse 2 "trainer 1 \(.*\) is of run 'yesterday', trainer 0 \(.*\) of run none" \
  "$trainer" "${one[@]}" --trainers=2 --run_id=yesterday
refuse 2 "trainer 1 \(.*\) is of job 'other', and another job meets here" \
  "$trainer" "${one[@]}" --trainers=2 --set 'name="other"'
expect_log trainer.0 "trainer 1 \(.*\) is of job 'other', trainer 0 \(.*\) of job 'e2e'"
refuse 2 "trainer 0 cannot listen at tcp://127.0.0.1:$port: Address already in use; another program" \
  "$trainer" --job="$job" --trainers=2 --trainer_id=0 --init_method=tcp://127.0.0.1:"$port"
refuse 2 "this machine has no address 203.0.113.9 \(it has .*127.0.0.1" \
  "$trainer" --job="$job" --trainers=2 --trainer_id=0 --init_method=tcp://203.0.113.9:"$port" --endpoint=127.0.0.1:0
refuse 2 "RANK is 0 but SLURM_PROCID is 1" \
  env RANK=0 SLURM_PROCID=1 SLURM_NTASKS=2 SLURM_STEP_ID=0 "$trainer" --job="$job" --init_method=tcp://127.0.0.1:"$port"
refuse 2 "PADDLE_TRAINER_ID is 1 but RANK is 0" \
  env PADDLE_TRAINER_ID=1 RANK=0 WORLD_SIZE=2 "$trainer" --job="$job" --init_method=tcp://127.0.0.1:"$port"
refuse 2 "Open MPI has started this trainer and gives no address .*--init_method=tcp://HOST:PORT" \
  env OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=2 "$trainer" --job="$job"
refuse 2 "must be env://, tcp://HOST:PORT or file:///PATH" "$trainer" --job="$job" --trainer_id=0 --init_method=mpi://
# The meeting goes on. A trainer that listens on every interface tells the address that leads there.
start trainer.1 "$trainer" "${one[@]}" --trainers=2 --endpoint=0.0.0.0:0
kill -0 "${pid[trainer.0]}" || fail "trainer 0 has not waited"
wait_end 60 trainer.0 trainer.1
expect_rc 0 trainer.0 trainer.1

# -------------------------------------------------------------------------------------------------------- torchrun
torchrun=${WEIR_TORCHRUN:-$(command -v torchrun)}
if [ -z "$torchrun" ]; then
  skip "torchrun" "no torchrun on PATH or in WEIR_TORCHRUN"
else
  begin "torchrun"
  start launcher "$torchrun" --nproc-per-node=3 --master-port="$(free_port 16)" --no-python \
    "$work/run_trainer" --job="$job"
  wait_end 120 launcher
  expect_rc 0 launcher
  expect_same
  begin "torchrun on two nodes"
  port=$(free_port 16)
  for node in 0 1; do
    start "launcher.$node" "$torchrun" --nnodes=2 --node-rank="$node" --nproc-per-node=1 --master-addr=127.0.0.1 \
      --master-port="$port" --no-python "$work/run_trainer" --job="$job"
  done
  wait_end 120 launcher.0 launcher.1
  expect_rc 0 launcher.0 launcher.1
  expect_same
fi

# ---------------------------------------------------------------------------------------------------------- mpirun
if ! command -v mpirun > /dev/null; then
  skip "mpirun" "no mpirun on PATH"
else
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
  mpirun=(mpirun --oversubscribe --mca btl_vader_single_copy_mechanism none)
  begin "mpirun"
  start launcher "${mpirun[@]}" -n 3 "$work/run_trainer" --job="$job" --init_method=tcp://127.0.0.1:"$(free_port)"
  wait_end 120 launcher
  expect_rc 0 launcher
  expect_same
  begin "mpirun without an address"
  start launcher "${mpirun[@]}" -n 2 "$work/run_trainer" --job="$job"
  wait_end 60 launcher
  expect_rc 2 launcher
  expect_log trainer.0 "Open MPI has started this trainer and gives no address"
  begin "one mpirun for a server and trainers"
  meet=tcp://127.0.0.1:$(free_port)
  start launcher "${mpirun[@]}" -n 1 "$work/run_server" --job="$hybrid" --trainers=2 --init_method="$meet" : \
    -n 2 "$work/run_trainer" --job="$hybrid" --init_method="$meet"
  wait_end 120 launcher
  expect_rc 0 launcher
  # Ranks count through: the server has 0.
  expect_same trainer.1
  expect_log server.0 "^ready server=0 "
fi

# ------------------------------------------------------------------------------------------------------------ srun
trap 'stop_slurm; finish' EXIT

lacks=$(slurm_lacks)
if [ -n "$lacks" ]; then
  skip "srun" "$lacks"
else
  begin "Slurm starts"
  if start_slurm; then
    begin "srun on two nodes"
    start launcher srun -N2 -n3 --chdir="$work" "$work/run_trainer" --job="$job" \
      --init_method=tcp://127.0.0.1:"$(free_port)"
    wait_end 120 launcher
    expect_rc 0 launcher
    expect_same
    begin "srun and files"
    start launcher srun -N2 -n2 --chdir="$work" "$work/run_trainer" --job="$job" --endpoint=127.0.0.1:0 \
      --init_method="file://$work/meet"
    wait_end 120 launcher
    expect_rc 0 launcher
    expect_same
    begin "a batch script: servers and trainers by two sruns"
    cat > "$work/batch" <<END
#!/bin/bash
export MASTER_ADDR=127.0.0.1 MASTER_PORT=$(free_port)
# The shell of the script is no task, whatever SLURM_PROCID says.
"$trainer" --job="$job" --trainers=2 > "$work/shell.log" 2>&1
echo "ended with \$?" >> "$work/shell.log"
srun -N1 -n1 --overlap "$work/run_server" --job="$hybrid" --trainers=2 --init_method=env:// &
srun -N2 -n2 --overlap "$work/run_trainer" --job="$hybrid" --init_method=env://
code=\$?
wait
exit \$code
END
    start launcher sbatch --wait -N2 -n2 --overcommit --chdir="$work" --output="$work/batch.log" "$work/batch"
    wait_end 120 launcher
    expect_rc 0 launcher
    expect_same
    expect_log server.0 "^ready server=0 "
    expect_log shell "SLURM_PROCID is that of the batch script and no trainer's: start the trainers by srun"
    expect_log shell "ended with 2"
    begin "srun without an address"
    start launcher srun -N2 -n2 --chdir="$work" "$work/run_trainer" --job="$job"
    wait_end 60 launcher
    expect_rc 2 launcher
    expect_log trainer.0 "Slurm has started this trainer and gives no address .*SLURM_JOB_NODELIST"
  fi
fi

report
conclude
