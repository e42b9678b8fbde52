#!/bin/bash
# A process with nothing to do sleeps: how often our threads of a server that waits for its trainers, and of a trainer
# that waits for another one, give up a core of their own accord, and so wake up. gRPC's threads are not counted: their
# number grows with the cores of the machine, and each wakes up some two times a second.
source tests/e2e/processes/cluster.sh

job=$work/job.textproto
make_data "$work/train.txt"
make_job "$job"
deadlines=(--set deadlines.heartbeat_s=1 --set deadlines.lease_s=10 --set deadlines.slow_warning_s=10
  --set deadlines.progress_deadline_s=60 --set deadlines.connect_deadline_s=60)
seconds=3

# switches <name>: prints the voluntary context switches of our threads so far
switches() {
  local task
  for task in /proc/"${pid[$1]}"/task/*; do
    grep -Eq '^(weir-|pserver|trainer)' "$task/comm" && cat "$task/status"
  done 2>/dev/null | awk '/^voluntary_ctxt_switches/ { sum += $2 } END { print sum + 0 }'
}

# count <name...>: prints the wake-ups of each in some seconds; $largest is the largest number
count() {
  local name wakes
  local -A before=()
  for name in "$@"; do before[$name]=$(switches "$name"); done
  sleep $seconds
  largest=0
  for name in "$@"; do
    wakes=$(($(switches "$name") - before[$name]))
    echo "$name: $wakes wake-ups in $seconds s"
    [ $wakes -gt 0 ] || fail "$name: no wake-up was counted"
    [ $wakes -le $largest ] || largest=$wakes
  done
}

# expect_idle <most a second> <name...>: in one of six tries, since a start on a busy machine takes its time
expect_idle() {
  local most=$1
  shift
  for _ in 1 2 3 4 5 6; do
    count "$@"
    [ $largest -le $((most * seconds)) ] && return
  done
  # Which threads they are.
  for name in "$@"; do
    grep -H voluntary_ctxt_switches /proc/"${pid[$name]}"/task/*/status
    sleep $seconds
    grep -H voluntary_ctxt_switches /proc/"${pid[$name]}"/task/*/status
    grep -H . /proc/"${pid[$name]}"/task/*/comm
  done
  # Whether somebody else connects to them.
  cat /proc/net/tcp
  fail "$*: $largest wake-ups in $seconds s, more than $most a second"
}

scene "a server without trainers"
sizes=(--set distribute.servers=1 --set distribute.trainers=2)
start_server 0 "${sizes[@]}" "${deadlines[@]}"
wait_ready 1
expect_idle 5 server.0

scene "a trainer that waits for another one"
start_server 0 "${sizes[@]}" "${deadlines[@]}"
wait_ready 1
start_trainer 0 "${sizes[@]}" "${deadlines[@]}"
sleep 1
expect_idle 10 server.0 trainer.0

conclude
