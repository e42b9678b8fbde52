# Real processes for tests: a small job, servers and trainers by name, what they said and how they ended. Sourced by the
# tests beside it; Bazel starts them in the runfiles' root.
#
# Processes are named server.0, trainer.1, ...; each has $work/<name>.log (stdout and stderr), and its exit code in
# rc[<name>] once it was waited for. Faults come from WEIR_FAULT_POINT (pserver/fault_point.h).

set -u
shopt -s extglob

root=$PWD
pserver=$root/pserver/pserver
trainer=$root/trainer/trainer
checkpoint=$root/tools/checkpoint
work=$(mktemp -d "${TEST_TMPDIR:-/tmp}/weir_e2e.XXXXXX") || exit 1
export GLOG_minloglevel=0
unset http_proxy https_proxy TRAINING_ROLE PADDLE_TRAINING_ROLE PADDLE_PSERVERS_IP_PORT_LIST PADDLE_TRAINER_ID \
  PADDLE_TRAINERS_NUM PADDLE_NUM_TRAINERS PADDLE_TRAINER_ENDPOINTS POD_IP PADDLE_PORT PADDLE_CURRENT_ENDPOINT \
  RANK WORLD_SIZE LOCAL_RANK MASTER_ADDR MASTER_PORT WEIR_FAULT_POINT

declare -A pid=() rc=() ended_at=()
failures=0
# Seconds; the job's own.
lease=2

finish() {
  local name
  for name in "${!pid[@]}"; do
    kill -CONT "${pid[$name]}" 2>/dev/null
    kill -KILL "${pid[$name]}" 2>/dev/null
  done
  wait 2>/dev/null
  if [ "$failures" -gt 0 ] && [ "${KEEP_WORK:-}" = "" ]; then
    for name in "$work"/*.log; do
      [ -e "$name" ] && echo "---- ${name##*/}" && tail -n 15 "$name"
    done
  fi
  [ "${KEEP_WORK:-}" = "" ] && rm -rf "$work"
}
trap finish EXIT

now() { date +%s.%N; }
# after <seconds> <since>: true when that much time has passed
after() { awk -v a="$1" -v b="$2" -v n="$(now)" 'BEGIN { exit !(n - b >= a) }'; }

fail() {
  echo "FAILED [${case_name:-}]: $*"
  failures=$((failures + 1))
}

# case <name>: a new scene in an empty directory
scene() {
  local name
  for name in "${!pid[@]}"; do
    kill -CONT "${pid[$name]}" 2>/dev/null
    kill -KILL "${pid[$name]}" 2>/dev/null
    wait "${pid[$name]}" 2>/dev/null
  done
  pid=() rc=() ended_at=()
  case_name=$1
  rm -f "$work"/*.log "$work"/*.port
  echo "== $1"
}

# 3,840 examples in Criteo layout with two integers and three categoricals: 60 steps of 64. Always the same.
make_data() {
  awk 'BEGIN {
    x = 1
    for (i = 0; i < 3840; ++i) {
      for (j = 0; j < 6; ++j) { x = (x * 16807) % 2147483647; r[j] = x }
      a = r[0] % 50; b = r[1] % 20; c = r[2] % 200; d = r[3] % 30; e = r[4] % 1000
      y = ((c % 3 == 0) + (d % 2) + (a > 25) + (r[5] % 100 < 30)) >= 2
      printf "%d\t%s\t%d\t%x\t%x\t%s\n", y, (i % 17 == 0 ? "" : a), b, c, d, (i % 13 == 0 ? "" : sprintf("%x", e))
    }
  }' > "$1"
}

# The job that all tests train: rows on every server, a parameter cut in two
# (3 * 4 + 2 = 14 inputs, 14 x 1200 = 16,800).
make_job() {
  cat > "$1" <<END
name: "e2e"
data {
  train { files: "train.txt" }
  criteo { integers: 2 categoricals: 3 }
  batch_size: 64
}
model {
  layer { name: "vectors_of" embedding { ids: "cat" table: "vectors" } }
  layer { name: "input" concat { input: "vectors_of" input: "dense" } }
  layer { name: "tower" mlp { input: "input" sizes: [1200, 8] } }
  layer { name: "out" fc { input: "tower" size: 1 } }
  loss { sigmoid_cross_entropy { logits: "out" label: "label" } }
}
table { name: "vectors" width: 4 is_sparse: true is_distributed: true optimizer { adagrad { learning_rate: 0.05 } } }
optimizer { adam { learning_rate: 0.001 } }
distribute { sync: true servers: 2 trainers: 2 }
train { epochs: 1 seed: 1 lanes: 8 threads: 1 }
checkpoint { dir: "checkpoints" every_steps: 20 keep_last: 100 }
deadlines {
  heartbeat_s: 0.2 lease_s: $lease slow_warning_s: 1 progress_deadline_s: 5 connect_deadline_s: 15 rpc_s: 2
}
END
}

# expect_no_children: no process of the job is left
expect_no_children() {
  ! pgrep -f -- "--job=$job" > /dev/null || fail "left over: $(pgrep -af -- "--job=$job")"
}

# wait_checkpoint: returns when there is one
wait_checkpoint() {
  local since
  since=$(now)
  until compgen -G "$work/checkpoints/step-*" > /dev/null; do
    after 30 "$since" && fail "no checkpoint" && return 1
    sleep 0.05
  done
}

# start <name> <command...>
start() {
  local name=$1
  shift
  "$@" > "$work/$name.log" 2>&1 &
  pid[$name]=$!
}

# start_server <i> [flags]
start_server() {
  local i=$1
  shift
  rm -f "$work/server.$i.port"
  start "server.$i" "$pserver" --job="$job" --endpoint=127.0.0.1:0 --server_id="$i" \
    --port_file="$work/server.$i.port" "$@"
}

# wait_ready <n>: servers 0 to n-1 listen; $pservers has their endpoints
wait_ready() {
  local i since
  since=$(now)
  pservers=
  for ((i = 0; i < $1; ++i)); do
    until [ -s "$work/server.$i.port" ]; do
      if after 20 "$since" || ! kill -0 "${pid[server.$i]}" 2>/dev/null; then
        fail "server $i did not become ready"
        return 1
      fi
      sleep 0.02
    done
    pservers+="${pservers:+,}$(cat "$work/server.$i.port")"
  done
}

# start_trainer <i> [flags]
start_trainer() {
  local i=$1
  shift
  start "trainer.$i" "$trainer" --job="$job" --trainer_id="$i" --pservers="$pservers" "$@"
}

# cluster <servers> <trainers> [flags of all]; flags of trainers alone in trainer_flags=()
trainer_flags=()
cluster() {
  local servers=$1 trainers=$2 i
  shift 2
  local sizes=(--set distribute.servers="$servers" --set distribute.trainers="$trainers")
  for ((i = 0; i < servers; ++i)); do start_server "$i" "${sizes[@]}" "$@"; done
  wait_ready "$servers" || return 1
  for ((i = 0; i < trainers; ++i)); do start_trainer "$i" "${sizes[@]}" "$@" "${trainer_flags[@]}"; done
}

# wait_end <seconds> <name...>: they end by themselves; rc[<name>] is set.
# Those that do not are killed, which is a failure.
wait_end() {
  local seconds=$1 since name code
  shift
  since=$(now)
  for name in "$@"; do
    while kill -0 "${pid[$name]}" 2>/dev/null && [ "$(ps -o stat= -p "${pid[$name]}" | cut -c1)" != Z ]; do
      if after "$seconds" "$since"; then
        fail "$name has not ended within $seconds s"
        kill -CONT "${pid[$name]}" 2>/dev/null
        kill -KILL "${pid[$name]}"
        break
      fi
      sleep 0.02
    done
    ended_at[$name]=$(now)
    wait "${pid[$name]}" 2>/dev/null
    code=$?
    rc[$name]=$code
    unset "pid[$name]"
  done
}

# expect_rc <code> <name...>
expect_rc() {
  local code=$1 name
  shift
  for name in "$@"; do
    [ "${rc[$name]:-none}" = "$code" ] || fail "$name ended with ${rc[$name]:-none}, expected $code"
  done
}

# expect_log <name> <extended regular expression>
expect_log() {
  grep -Eq -- "$2" "$work/$1.log" || fail "$1 does not say /$2/"
}

# wait_log <name> <extended regular expression>: appears within 20 s
wait_log() {
  local since
  since=$(now)
  until grep -Eq -- "$2" "$work/$1.log" 2>/dev/null; do
    if after 20 "$since"; then
      fail "$1 has not said /$2/ within 20 s"
      return 1
    fi
    sleep 0.02
  done
}

# refuse <code> <regular expression> <command...>: ends by itself, soon, with that code and that text
refuse() {
  local code=$1 pattern=$2 out status
  shift 2
  out=$(timeout -k 1 20 "$@" 2>&1)
  status=$?
  [ "$status" = "$code" ] && grep -Eq -- "$pattern" <<<"$out" && return
  fail "exit code $status, expected $code and /$pattern/, of: ${*//$work\//}"
  tail -n 5 <<<"$out"
}

# Digest of the newest complete checkpoint: "values=... state=..."
digest() { "$checkpoint" digest "$work/checkpoints" 2>/dev/null | tail -n 1; }
newest() {
  "$checkpoint" digest "$work/checkpoints" > /dev/null 2>&1 && ls "$work/checkpoints" | grep '^step-' | tail -n 1
}

expect_digest() {
  local got
  got=$(digest)
  [ -n "$got" ] && [ "$got" = "$1" ] || fail "digest is '$got', expected '$1'"
}

# No process of the scene is left.
expect_no_orphans() {
  local name
  for name in "${!pid[@]}"; do
    kill -0 "${pid[$name]}" 2>/dev/null && fail "$name still runs"
  done
}

conclude() {
  [ "$failures" -eq 0 ] && echo "all expectations met"
  exit "$((failures > 0))"
}
