#!/bin/bash
# examples/multi_host on real processes: endpoints from flags, from the environment and from the job file start the same
# cluster, which ends with the same bits.
source tests/e2e/processes/cluster.sh

mkdir -p "$work/examples/multi_host"
cp -L examples/multi_host/start examples/multi_host/job.textproto "$work/examples/multi_host/"
job=$work/examples/multi_host/job.textproto
"$root/tools/generate_ctr" --output="$work/examples/synthetic_ctr/data" --rows=8000 --eval_rows=1000 --ids=100 \
  > /dev/null ||
  fail "no data"

# A port that nobody has now, out of the range from which the system takes its own.
free_port() {
  local port
  while :; do
    port=$((10000 + RANDOM % 20000))
    grep -qi "$(printf ':%04X ' "$port")" /proc/net/tcp /proc/net/tcp6 2>/dev/null || break
  done
  echo "$port"
}

# run_in <flags|environment|file>: "<done line without its times> <digest>" in $result
run_in() {
  local how=$1 a b i
  a=127.0.0.1:$(free_port)
  b=127.0.0.1:$(free_port)
  scene "$how"
  cp -L examples/multi_host/job.textproto "$job"
  # Flags and environment must not need what the file says; it names other addresses then.
  [ "$how" = file ] && sed -i "s/127.0.0.1:6170/$a/; s/127.0.0.1:6171/$b/" "$job"
  rm -rf "$work/checkpoints"
  local more=(--set "checkpoint.dir=$work/checkpoints" --set train.max_steps=12 --set train.threads=1
    --set deadlines.connect_deadline_s=20)
  for i in 0 1; do
    start "server.$i" env BIN="$root" SERVERS="$a,$b" \
      "$work/examples/multi_host/start" "$how" server "$i" "${more[@]}"
    start "trainer.$i" env BIN="$root" SERVERS="$a,$b" \
      "$work/examples/multi_host/start" "$how" trainer "$i" "${more[@]}"
  done
  wait_end 60 trainer.0 trainer.1 server.0 server.1
  expect_rc 0 trainer.0 trainer.1 server.0 server.1
  expect_log server.1 "^ready server=1 endpoint=$b$"
  result="$(grep '^done ' "$work/trainer.0.log" | sed -E 's/ seconds=[^ ]+ examples_per_s=[^ ]+//') $(digest)"
  echo "$result"
  [[ $result == "done steps=12 "*" values="* ]] || fail "no end: $result"
}

run_in flags
by_flags=$result
run_in environment
[ "$result" = "$by_flags" ] || fail "environment: '$result', flags: '$by_flags'"
run_in file
[ "$result" = "$by_flags" ] || fail "file: '$result', flags: '$by_flags'"

scene "an environment that contradicts itself"
refuse 2 'PADDLE_TRAINERS_NUM is 2 but PADDLE_NUM_TRAINERS is 3' \
  env BIN="$root" PADDLE_NUM_TRAINERS=3 "$work/examples/multi_host/start" environment trainer 0

conclude
