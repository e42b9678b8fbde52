#!/bin/bash
# One launch for two hosts: this machine, and this machine once more over Debian's sshd, under addresses of
# 203.0.113.0/24, which only ssh's configuration knows. The sshd has a port, a key and a configuration of its own.
source tests/e2e/processes/cluster.sh

launch=$root/tools/launch
# Names with what a shell would take for something else.
here="$work/it's a \"place\""
mkdir -p "$here" && cd "$here" || exit 1
job=job.textproto
make_data train.txt
make_job $job

sshd=
silent=
stop_sshd() {
  [ -z "$sshd" ] || kill "$sshd" 2>/dev/null
  [ -z "$silent" ] || kill "$silent" 2>/dev/null
  finish
}
trap stop_sshd EXIT

# Starts sshd, and a port that never answers: 203.0.113.1 is this machine, 203.0.113.2 is silent, and 203.0.113.3
# refuses the key.
start_sshd() {
  local dir=$work/ssh since port
  mkdir -p "$dir"
  # sshd wants it if it runs as root.
  [ "$(id -u)" -ne 0 ] || mkdir -p /run/sshd
  ssh-keygen -q -t ed25519 -N "" -f "$dir/key" && ssh-keygen -q -t ed25519 -N "" -f "$dir/other_key" &&
    ssh-keygen -q -t ed25519 -N "" -f "$dir/host_key" && cp "$dir/key.pub" "$dir/authorized_keys" || return 1
  cat > "$dir/sshd_config" <<END
ListenAddress 127.0.0.1
HostKey $dir/host_key
AuthorizedKeysFile $dir/authorized_keys
PidFile none
UsePAM no
StrictModes no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
END
  for port in $(shuf -i 10000-30000 -n 20); do
    /usr/sbin/sshd -D -e -p "$port" -f "$dir/sshd_config" 2> "$dir/sshd.log" &
    sshd=$!
    since=$(now)
    until grep -q "Server listening" "$dir/sshd.log" || ! kill -0 "$sshd" 2>/dev/null || after 10 "$since"; do
      sleep 0.02
    done
    grep -q "Server listening" "$dir/sshd.log" && break
  done
  grep -q "Server listening" "$dir/sshd.log" || { cat "$dir/sshd.log"; return 1; }
  python3 -c '
import socket, time
s = socket.create_server(("127.0.0.1", 0))
print(s.getsockname()[1], flush=True)
time.sleep(3600)' > "$dir/silent" &
  silent=$!
  until [ -s "$dir/silent" ]; do sleep 0.02; done
  cat > "$dir/config" <<END
Host 203.0.113.*
  HostName 127.0.0.1
  IdentitiesOnly yes
  StrictHostKeyChecking no
  UserKnownHostsFile /dev/null
  LogLevel ERROR
Host 203.0.113.1
  Port $port
  IdentityFile $dir/key
Host 203.0.113.2
  Port $(cat "$dir/silent")
Host 203.0.113.3
  Port $port
  IdentityFile $dir/other_key
END
}
start_sshd || { echo "no sshd; tools/setup installs openssh-server"; exit 1; }

# start_launch <hosts> [flags]: stdout to launch.out, stderr to launch.log
start_launch() {
  local hosts=$1
  shift
  rm -rf checkpoints
  "$launch" --job=$job -H "$hosts" --master_addr=127.0.0.1 --servers=1 --log_dir=mylog \
    --ssh_options="-F '$work/ssh/config'" "$@" > "$work/launch.out" 2> "$work/launch.log" &
  pid[launch]=$!
}
last_line() { tail -n 1 "$work/launch.out"; }
points=checkpoints
digest() { "$checkpoint" digest "$points" 2>/dev/null | tail -n 1; }
wait_checkpoint() {
  local since
  since=$(now)
  until compgen -G "$points/step-*" > /dev/null; do
    after 30 "$since" && fail "no checkpoint" && return 1
    sleep 0.05
  done
}
done_of() { tail -n 1 "$1" | tr ' ' '\n' | grep -E '^(done$|steps=|examples=|loss=|auc=)'; }
# Processes of this test but sshd: those that run in its directory.
ours() {
  local each
  for each in $(pgrep -f -- "--agent|--job=$job|$work/ssh/config"); do
    [ "$(readlink "/proc/$each/cwd")" = "$here" ] && echo "$each"
  done
}
# The trainer with an id, on whatever host.
trainer_process() {
  local each
  for each in $(pgrep -f -- "--trainer_id=$1 "); do
    [ "$(readlink "/proc/$each/cwd")" = "$here" ] && echo "$each"
  done
}
# expect_nobody [seconds]: no process is left, or soon none
expect_nobody() {
  local since left
  since=$(now)
  while left=$(ours); [ -n "$left" ] && ! after "${1:-60}" "$since"; do sleep 0.05; done
  [ -z "$left" ] || fail "left over: $(ps -o pid,args -p "${left//$'\n'/,}")"
}
# Two leases, and three seconds more than promised: this machine may be busy.
limit=$((2 * lease + 3))
# agent_of <trainer>: the agent that runs it
agent_of() { ps -o ppid= -p "$(trainer_process "$1")" | tr -d ' '; }
expect_done() {
  wait_end 60 launch
  expect_rc 0 launch
  [ -n "$alone_done" ] && [ "$(done_of "$work/launch.out")" = "$alone_done" ] || fail "last line: $(last_line)"
  expect_digest "$alone"
  expect_nobody
}

scene "one host"
"$launch" --job=$job --servers=1 --trainers=2 --log_dir=mylog > "$work/launch.out" 2> "$work/launch.log" ||
  fail "one launch fails"
alone=$(digest)
alone_done=$(done_of "$work/launch.out")

scene "a trainer on another host"
start_launch 127.0.0.1:1,203.0.113.1:1
expect_done
expect_log launch "launch: 203.0.113.1: 1 trainer on "
[ -s mylog/trainer.1.log ] || fail "no log of trainer 1"

scene "server and chief on another host, and words that a shell would split"
mkdir -p "digests of 'one' run"
points="check 'points'"
start_launch 203.0.113.1:1,127.0.0.1:1 --set "checkpoint.dir=\"$points\"" --env="GREETING=it's \"a\" \$b" \
  --set train.epochs=10000 --set train.digest_every_steps=10 -- --digest_log="digests of 'one' run/log"
wait_checkpoint
remote=$(trainer_process 0)
tr '\0' '\n' < "/proc/$remote/environ" | grep -qxF "GREETING=it's \"a\" \$b" || fail "trainer 0 has another GREETING"
# ps fills short numbers with spaces, which it does not read back.
agent=$(ps -o ppid= -p "$remote" | tr -d ' ')
[ "$(ps -o comm= -p "$agent")" = launch ] || fail "trainer 0 has no agent"
[ "$agent" != "${pid[launch]}" ] || fail "trainer 0 is not on another host"
kill -TERM "${pid[launch]}"
wait_end 30 launch
expect_rc 5 launch
[[ $(last_line) == "done steps="*" stopped=1" ]] || fail "last line: $(last_line)"
[ -s "digests of 'one' run/log" ] || fail "no digests"
expect_nobody
points=checkpoints

scene "trainers that serve, from a hostfile"
rm -rf checkpoints
cat > hosts.txt <<'END'
# The two hosts of this test.
127.0.0.1 address=127.0.0.1

203.0.113.1 slots=1 address=127.0.0.1   # over ssh
END
"$launch" --job=$job --hostfile=hosts.txt --servers=0 --log_dir=mylog --ssh_options="-F '$work/ssh/config'" \
  > "$work/launch.out" 2> "$work/launch.log" &
pid[launch]=$!
expect_done

scene "a process on another host is killed"
start_launch 127.0.0.1:1,203.0.113.1:1 --set train.epochs=10000
wait_checkpoint
kill -KILL "$(trainer_process 1)"
wait_end $((2 * lease + 10)) launch
expect_rc 137 launch
expect_log launch 'launch: trainer.1 on 203.0.113.1 failed: killed by signal 9 \(Killed\); ending the others'
expect_log launch 'launch: trainer.1 on 203.0.113.1 failed: .*; the last lines of mylog/trainer.1.log:'
expect_nobody

scene "a process on another host has wrong data"
start_launch 127.0.0.1:1,203.0.113.1:1 -- --nonsense
wait_end 30 launch
expect_rc 2 launch
expect_log launch 'launch:   trainer: unknown flag --nonsense'
expect_nobody

# All processes on the other host, so that none of them hears of a death from its peers.
scene "launch is killed"
start_launch 203.0.113.1:2 --set train.epochs=10000
wait_checkpoint
kill -KILL "${pid[launch]}"
wait_end 5 launch
expect_nobody "$limit"

scene "the connection breaks"
start_launch 203.0.113.1:2 --set train.epochs=10000
wait_checkpoint
kill -KILL "$(pgrep -P "${pid[launch]}" -x ssh)"
wait_end "$limit" launch
expect_rc 3 launch
expect_log launch ' on 203.0.113.1 failed: the connection to 203.0.113.1 is lost \(ssh: killed by signal 9'
expect_nobody "$limit"

scene "the agent is killed"
start_launch 203.0.113.1:2 --set train.epochs=10000
wait_checkpoint
kill -KILL "$(agent_of 1)"
wait_end "$limit" launch
expect_rc 3 launch
expect_log launch ' on 203.0.113.1 failed: the connection to 203.0.113.1 is lost \(ssh: '
expect_nobody "$limit"

# It does not hear that its connection is closed.
scene "the agent is frozen"
start_launch 203.0.113.1:2 --set train.epochs=10000
wait_checkpoint
kill -STOP "$(agent_of 1)"
wait_end "$limit" launch
expect_rc 3 launch
expect_log launch ' on 203.0.113.1 failed: host 203.0.113.1: its agent has said nothing for [0-9]+s: it is stopped'
expect_nobody "$limit"

scene "one host, for longer"
rm -rf checkpoints
"$launch" --job=$job --servers=1 --trainers=2 --log_dir=mylog --set train.epochs=12 > "$work/launch.out" 2>&1 ||
  fail "one launch fails"
long=$(digest)

# started_again <pid>: this process is killed, and the job ends as if nobody had been
started_again() {
  kill -KILL "$1"
  wait_end 60 launch
  expect_rc 0 launch
  expect_log launch 'launch: restart 1 \(--restarts=5, 4 left\): .*203.0.113.1.*; the job starts again from '
  [[ $(last_line) == "done "*" restarts=1 lost_s="*" repeated_steps="* ]] || fail "last line: $(last_line)"
  expect_digest "$long"
  expect_nobody "$limit"
}

scene "the agent is killed, and the job starts again"
start_launch 127.0.0.1:1,203.0.113.1:1 --set train.epochs=12 --restarts=5
wait_checkpoint
started_again "$(agent_of 1)"

scene "the connection breaks, and the job starts again"
start_launch 127.0.0.1:1,203.0.113.1:1 --set train.epochs=12 --restarts=5
wait_checkpoint
started_again "$(pgrep -P "${pid[launch]}" -x ssh)"

scene "a trainer on the other host is killed, and the job starts again"
start_launch 127.0.0.1:1,203.0.113.1:1 --set train.epochs=12 --restarts=5
wait_checkpoint
started_again "$(trainer_process 1)"

# Nobody tells either side: ssh takes what it is given, and passes nothing on.
scene "the network is cut"
start_launch 203.0.113.1:2 --set train.epochs=10000
wait_checkpoint
since=$(now)
kill -STOP "$(pgrep -P "${pid[launch]}" -x ssh)"
wait_end "$limit" launch
expect_rc 3 launch
expect_log launch ' on 203.0.113.1 failed: host 203.0.113.1: its agent has said nothing for [0-9]+s: '
expect_nobody "$limit"
after "$limit" "$since" && fail "the last process ended later than two leases after the cut"

scene "launch is frozen"
start_launch 203.0.113.1:2 --set train.epochs=10000
wait_checkpoint
kill -STOP "${pid[launch]}"
since=$(now)
while [ -n "$(trainer_process 0)$(trainer_process 1)" ] && ! after "$limit" "$since"; do sleep 0.05; done
[ -z "$(trainer_process 0)$(trainer_process 1)" ] || fail "trainers have not ended two leases later"
kill -CONT "${pid[launch]}"
wait_end 10 launch
expect_rc 3 launch
expect_nobody

scene "a host that does not answer"
since=$(now)
start_launch 127.0.0.1:1,203.0.113.2:1 --ssh_timeout_s=2
wait_end 10 launch
expect_rc 3 launch
expect_log launch 'launch: host 203.0.113.2( was not ready within 2 s|: no connection)'
after 8 "$since" && fail "the deadline of 2 s came after more than 8 s"
expect_nobody

scene "a host that refuses the key"
start_launch 127.0.0.1:1,203.0.113.3:1
wait_end 30 launch
expect_rc 3 launch
expect_log launch 'launch: host 203.0.113.3: no connection \(ssh: exit code 255\): .*Permission denied \(publickey\)'
expect_nobody

conclude
