#!/bin/bash
# Processes that die, freeze and stall in mid-training, at named points. Each scene asserts who is named, exit codes,
# how long it took in leases, that nobody is left, that the newest checkpoint verifies, and that the resumed run ends
# with the bits of a run that nothing disturbed.
#
#   faults_test.sh PART...    parts: killed, saving, connecting_server, connecting_trainer, cold, frozen,
#                             frozen_ahead, reader, stopped, async
#
# Several parts run at the same time, each with a cluster of its own: most of their time they wait for leases.
if [ $# -gt 1 ]; then
  logs=$(mktemp -d "${TEST_TMPDIR:-/tmp}/weir_faults.XXXXXX") || exit 1
  declare -A part_of=()
  for part; do
    bash "$0" "$part" >"$logs/$part" 2>&1 &
    part_of[$!]=$part
  done
  failed=0
  for process in "${!part_of[@]}"; do
    wait "$process" || failed=1
    echo "#### ${part_of[$process]}"
    cat "$logs/${part_of[$process]}"
  done
  rm -rf "$logs"
  exit "$failed"
fi
source tests/e2e/processes/cluster.sh

job=$work/job.textproto
make_data "$work/train.txt"
make_job "$job"

fresh() { rm -rf "$work/checkpoints"; }

# The run that nothing disturbs.
undisturbed() {
  scene "undisturbed"
  fresh
  cluster 2 2
  wait_end 60 trainer.0 trainer.1 server.0 server.1
  expect_rc 0 trainer.0 trainer.1 server.0 server.1
  expect_log trainer.0 '^done steps=6[01] '
  reference=$(digest)
  [ -n "$reference" ] || fail "the undisturbed run left no checkpoint"
}

# resume <servers> <trainers>: goes on from what is there and ends with the bits of the undisturbed run
resume() {
  trainer_flags=(--resume)
  cluster "$1" "$2"
  local all=() i
  for ((i = 0; i < $1; ++i)); do all+=("server.$i"); done
  for ((i = 0; i < $2; ++i)); do all+=("trainer.$i"); done
  wait_end 60 "${all[@]}"
  expect_rc 0 "${all[@]}"
  trainer_flags=()
  expect_digest "$reference"
}

# killed <fault> <victim> <the others' pattern> <step of the newest checkpoint> [seconds, else two leases]: the victim
# dies, all others end with 3 and name it
killed() {
  local fault=$1 victim=$2 pattern=$3 step=$4 limit=${5:-$((2 * lease))} others=() name died
  scene "$fault"
  fresh
  export WEIR_FAULT_POINT=$fault
  cluster 2 2
  unset WEIR_FAULT_POINT
  for name in server.0 server.1 trainer.0 trainer.1; do [ "$name" = "$victim" ] || others+=("$name"); done
  wait_end 60 "$victim"
  expect_rc 137 "$victim"
  died=${ended_at[$victim]}
  wait_end 30 "${others[@]}"
  expect_rc 3 "${others[@]}"
  for name in "${others[@]}"; do
    expect_log "$name" "$pattern"
    # Three seconds more than promised: this machine may be busy.
    awk -v d="$died" -v e="${ended_at[$name]}" -v l="$limit" 'BEGIN { exit !(e - d <= l + 3) }' ||
      fail "$name took more than $limit s (and 3) to end"
  done
  expect_no_orphans
  if [ "$step" = none ]; then
    ls "$work/checkpoints" 2>/dev/null | grep -q '^step-' && fail "there is a checkpoint"
    return
  fi
  [ "$(newest)" = "$(printf 'step-%012d' "$step")" ] || fail "newest checkpoint is '$(newest)', expected step $step"
  "$checkpoint" verify "$work/checkpoints" > /dev/null || fail "a checkpoint does not verify"
}

part_killed() {
  undisturbed
  killed kill:server.1:last_part:30 server.1 'server 1' 20
  resume 2 2
  killed kill:server.0:between_parts:30 server.0 'server 0' 20
  resume 1 2
  killed kill:trainer.1:between_parts:30 trainer.1 'trainer 1' 20
  resume 3 1
  killed kill:trainer.0:last_part:45 trainer.0 'trainer 0' 40
  resume 2 3
}

part_saving() {
  undisturbed
  # While a checkpoint is published: the half-written one of step 40 counts for nothing.
  killed kill:server.1:publishing:40 server.1 'server 1' 20
  resume 2 2
  killed kill:trainer.0:publishing:40 trainer.0 'trainer 0' 20
  resume 2 2
  killed kill:trainer.1:first_part:0 trainer.1 'trainer 1' none
}

# While connecting: whoever has not come is waited for until connect_deadline_s.
part_connecting_server() { killed kill:server.1:connecting server.1 'server 1' none 15; }
part_connecting_trainer() { killed kill:trainer.1:connecting trainer.1 'trainer 1' none 15; }

# Rows that the servers' memory has no room for: what a killed server leaves on its disk counts for nothing, the
# checkpoint for all.
part_cold() {
  sed -i -e 's/width: 4 /width: 8000 /' -e 's/\[1200, 8\]/[4]/' "$job"
  # Megabytes a step: who notices when is the other parts' matter.
  undisturbed
  sed -i 's/width: 8000 /width: 8000 disk { dir: "rows" memory_mb: 32 } /' "$job"
  killed kill:server.1:last_part:30 server.1 'server 1' 20 20
  [ -n "$(ls "$work/rows/vectors.server-1")" ] || fail "the killed server left no rows on its disk"
  resume 2 2
  expect_log server.1 'table.vectors.written_to_disk=[1-9]'
  killed kill:trainer.0:publishing:40 trainer.0 'trainer 0' 20 20
  resume 1 3
  expect_log server.0 'table.vectors.read_from_disk=[1-9]'

  # SIGSTOP stands in for a killed process that takes its time to end.
  scene "a server that starts while a killed one has its rows on disk"
  start_server 0 --set distribute.servers=1
  wait_ready 1
  kill -STOP "${pid[server.0]}"
  start second "$pserver" --job="$job" --endpoint=127.0.0.1:0 --server_id=0 --set distribute.servers=1
  wait_end $((lease + 5)) second
  expect_rc 3 second
  expect_log second 'waits for .*/rows/vectors.server-0/LOCK, held by '
  expect_log second 'vectors.server-0/LOCK: .*; after 2s it is still held by .*: end that server and start again'
  start third "$pserver" --job="$job" --endpoint=127.0.0.1:0 --server_id=0 --set distribute.servers=1
  wait_log third 'waits for .*/rows/vectors.server-0/LOCK, held by '
  kill -KILL "${pid[server.0]}"
  wait_log third '^ready server=0'
}

# A process that sleeps for less than a lease changes nothing; for longer, it is dead and stays dead.
part_frozen() {
  undisturbed
  scene "half a lease"
  fresh
  export WEIR_FAULT_POINT=stop:trainer.1:first_part:30
  cluster 2 2
  unset WEIR_FAULT_POINT
  wait_log trainer.1 'this process has reached its fault point'
  sleep "$(awk -v l="$lease" 'BEGIN { print l / 2 }')"
  kill -CONT "${pid[trainer.1]}"
  wait_end 60 trainer.0 trainer.1 server.0 server.1
  expect_rc 0 trainer.0 trainer.1 server.0 server.1
  expect_digest "$reference"

  frozen_for_long
  resume 2 2
  alive_without_progress
  resume 2 2
}

# The same where the next step's rows are pulled ahead: their pull, which waits at the servers, hides nobody.
part_frozen_ahead() {
  undisturbed
  frozen_for_long --set distribute.prefetch_rows=true
  alive_without_progress --set distribute.prefetch_rows=true
  resume 2 2
}

# frozen_for_long [flags of all]
frozen_for_long() {
  scene "longer than a lease $*"
  fresh
  export WEIR_FAULT_POINT=stop:trainer.1:first_part:30
  cluster 2 2 "$@"
  unset WEIR_FAULT_POINT
  wait_log trainer.1 'this process has reached its fault point'
  wait_end 20 trainer.0
  expect_rc 3 trainer.0
  expect_log trainer.0 'trainer 1 .*is dead'
  kill -CONT "${pid[trainer.1]}"
  wait_end 20 trainer.1 server.0 server.1
  expect_rc 3 server.0 server.1
  [ "${rc[trainer.1]}" != 0 ] || fail "a trainer that was declared dead ended with 0"
  expect_log trainer.1 'dead|cannot go on|lease'
}

# alive_without_progress [flags of all]
alive_without_progress() {
  scene "alive without progress $*"
  fresh
  export WEIR_FAULT_POINT=stall:trainer.1:first_part:30
  cluster 2 2 "$@"
  unset WEIR_FAULT_POINT
  wait_log server.0 'trainer 1 .*is slow'
  wait_end 30 trainer.0 server.0 server.1
  expect_rc 3 trainer.0 server.0 server.1
  expect_log trainer.0 'trainer 1'
  kill -KILL "${pid[trainer.1]}"
  wait_end 5 trainer.1
}

# A trainer whose data does not come: named slow with its streams, then an error, and its process ends though the read
# never does.
part_reader() {
  undisturbed
  scene "a reader that stalls"
  fresh
  export WEIR_FAULT_POINT=stall:trainer.1:reader:20
  cluster 2 2
  unset WEIR_FAULT_POINT
  wait_log trainer.1 'slow: trainer 1 .*data of stream [4-7]'
  wait_end 30 trainer.0 trainer.1 server.0 server.1
  expect_rc 3 trainer.0 trainer.1 server.0 server.1
  expect_log trainer.0 'trainer 1'
  expect_log trainer.1 'reading has not ended within 2s and is not waited for any longer: stream [4-7]'
  resume 2 2
}

# SIGTERM or SIGHUP to any process: one common step border, a checkpoint, every exit code 5;
# resumed, the bits are the same.
part_stopped() {
  undisturbed
  local victim signal step
  for victim in server.1 trainer.0 trainer.1 trainer.1:HUP server.0:HUP; do
    signal=TERM
    [[ "$victim" == *:* ]] && signal=${victim#*:} && victim=${victim%:*}
    scene "SIG$signal to $victim"
    fresh
    # The other trainer waits while the signal is on its way: so it certainly comes in mid-training.
    export WEIR_FAULT_POINT=stop:trainer.1:first_part:30
    cluster 2 2
    unset WEIR_FAULT_POINT
    wait_log trainer.1 'this process has reached its fault point'
    kill "-$signal" "${pid[$victim]}"
    sleep 0.4
    kill -CONT "${pid[trainer.1]}"
    wait_end 30 trainer.0 trainer.1 server.0 server.1
    expect_rc 5 trainer.0 trainer.1 server.0 server.1
    expect_log trainer.0 '^done steps=3[0-9] '
    step=$(newest)
    [[ "$step" == step-00000000003[0-9] ]] || fail "newest checkpoint is '$step', expected one of steps 30 to 39"
    resume 2 2
  done

  # The pull of the next step's rows waits at the servers meanwhile.
  scene "SIGTERM to a trainer that pulls ahead"
  fresh
  export WEIR_FAULT_POINT=stop:trainer.1:first_part:30
  cluster 2 2 --set distribute.prefetch_rows=true
  unset WEIR_FAULT_POINT
  wait_log trainer.1 'this process has reached its fault point'
  kill -TERM "${pid[trainer.0]}"
  sleep 0.4
  kill -CONT "${pid[trainer.1]}"
  wait_end 30 trainer.0 trainer.1 server.0 server.1
  expect_rc 5 trainer.0 trainer.1 server.0 server.1
  expect_log trainer.0 '^done steps=3[0-9] '
  resume 2 2

  scene "a second SIGTERM stops at once"
  fresh
  export WEIR_FAULT_POINT=stall:trainer.1:first_part:30
  cluster 2 2
  unset WEIR_FAULT_POINT
  wait_log trainer.1 'this process has reached its fault point'
  kill -TERM "${pid[trainer.0]}"
  sleep 1.2
  kill -TERM "${pid[trainer.0]}"
  wait_end 2 trainer.0
  expect_rc 143 trainer.0

  scene "servers without trainers end on SIGTERM"
  start_server 0 --set distribute.servers=1
  wait_ready 1
  kill -TERM "${pid[server.0]}"
  wait_end 5 server.0
  expect_rc 5 server.0
  expect_log server.0 'server 0 ends, as it was asked to, without trainer 0 \(not joined\), trainer 1 \(not joined\)'
}

# Async: the dead one is named, the others go on to the end.
part_async() {
  scene "a trainer dies in async"
  fresh
  export WEIR_FAULT_POINT=kill:trainer.1:between_parts:20
  cluster 2 2 --set distribute.sync=false
  unset WEIR_FAULT_POINT
  wait_end 60 trainer.1
  expect_rc 137 trainer.1
  wait_end 60 trainer.0 server.0 server.1
  expect_rc 0 trainer.0 server.0 server.1
  expect_log server.0 'trainer 1 .*is dead.*the others go on'
  expect_log trainer.0 '^done steps='
  "$checkpoint" verify "$work/checkpoints" > /dev/null || fail "a checkpoint does not verify"

  scene "the chief dies in async"
  fresh
  export WEIR_FAULT_POINT=kill:trainer.0:between_parts:20
  cluster 2 2 --set distribute.sync=false
  unset WEIR_FAULT_POINT
  wait_end 60 trainer.0
  expect_rc 137 trainer.0
  wait_end 60 trainer.1 server.0 server.1
  expect_rc 0 trainer.1 server.0 server.1
  expect_log server.0 'trainer 1 .*is the chief from now on, instead of trainer 0'
  expect_log trainer.1 '^checkpoint step='
  # The newest checkpoint is of the end: it holds every step of trainer 1.
  local steps
  steps=$(sed -n 's/^done steps=\([0-9]*\) .*/\1/p' "$work/trainer.1.log")
  [ -n "$steps" ] &&
    [ "$(sed -n '/^data {/,/^}/p' "$work/checkpoints/$(newest)/MANIFEST" | grep trainer_steps | sed -n 2p)" = \
      "  trainer_steps: $steps" ] ||
    fail "the newest checkpoint, $(newest), does not hold the $steps steps of trainer 1"
  "$checkpoint" verify "$work/checkpoints" > /dev/null || fail "a checkpoint does not verify"

  scene "another takes the place of a dead trainer in async"
  fresh
  export WEIR_FAULT_POINT=kill:trainer.1:between_parts:20
  cluster 2 2 --set distribute.sync=false --set train.epochs=1000000
  unset WEIR_FAULT_POINT
  wait_end 60 trainer.1
  expect_rc 137 trainer.1
  wait_log server.0 'trainer 1 .*is dead'
  wait_log server.1 'trainer 1 .*is dead'
  start_trainer 1 --set distribute.sync=false --set train.epochs=1000000 --set train.log_every_seconds=0.2
  wait_log trainer.1 'takes the place of a dead one and goes on at step (19|20|21)$'
  wait_log trainer.1 '^step='
  kill -TERM "${pid[trainer.0]}"
  wait_end 60 trainer.0 trainer.1 server.0 server.1
  expect_rc 5 trainer.0 trainer.1 server.0 server.1
  "$checkpoint" verify "$work/checkpoints" > /dev/null || fail "a checkpoint does not verify"

  scene "a server dies in async"
  fresh
  export WEIR_FAULT_POINT=kill:server.1:last_part:20
  cluster 2 2 --set distribute.sync=false
  unset WEIR_FAULT_POINT
  wait_end 60 server.1
  wait_end 30 trainer.0 trainer.1 server.0
  expect_rc 3 trainer.0 trainer.1
  expect_log trainer.0 'server 1'
}

declare -F "part_$1" >/dev/null || { echo "faults_test: there is no part '$1'" >&2; exit 1; }
"part_$1"
conclude
