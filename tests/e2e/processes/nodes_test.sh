#!/bin/bash
# A launch for each of two nodes, both on this machine: the result of one launch, servers on either node, a trainer and
# a server that are killed, a stop, and nodes that contradict each other.
source tests/e2e/processes/cluster.sh

launch=$root/tools/launch
job=$work/job.textproto
make_data "$work/train.txt"
make_job "$job"

# free_port: a port with two free ones above it
free_port() {
  local port next
  while :; do
    port=$((RANDOM % 20000 + 10000))
    for next in $port $((port + 1)) $((port + 2)); do
      (exec 3<>"/dev/tcp/127.0.0.1/$next") 2>/dev/null && continue 2
    done
    echo "$port"
    return
  done
}

# start_node <rank> [flags]: stdout to node.<rank>.out, stderr to node.<rank>.log
start_node() {
  local rank=$1
  shift
  "$launch" --job="$job" --nnodes=2 --node_rank="$rank" --nproc_per_node=1 --log_dir="$work/mylog" "$@" \
    > "$work/node.$rank.out" 2> "$work/node.$rank.log" &
  pid[node.$rank]=$!
}
# start_nodes [flags]: both
start_nodes() {
  rm -rf "$work/checkpoints"
  port=$(free_port)
  start_node 0 --master_addr=127.0.0.1 --master_port="$port" "$@"
  start_node 1 --master_addr=127.0.0.1 --master_port="$port" "$@"
}
# done_of <file>: what a last line says beside the time
done_of() { tail -n 1 "$1" | tr ' ' '\n' | grep -E '^(done$|steps=|examples=|loss=|auc=)'; }
expect_both_done() {
  wait_end 60 node.0 node.1
  expect_rc 0 node.0 node.1
  [ -n "$alone_done" ] && [ "$(done_of "$work/node.0.out")" = "$alone_done" ] ||
    fail "last line: $(tail -n 1 "$work/node.0.out")"
  expect_digest "$alone"
  expect_no_children
}

scene "one launch"
"$launch" --job="$job" --servers=2 --trainers=2 --log_dir="$work/mylog" > "$work/alone.out" 2> "$work/alone.log" ||
  fail "one launch fails"
alone=$(digest)
alone_done=$(done_of "$work/alone.out")

scene "two nodes, a server on each"
start_nodes --servers=2
expect_both_done
expect_log node.1 "launch: node 1 of 2: 1 server and 1 trainer on "
[ -s "$work/mylog/node.1/trainer.1.log" ] || fail "no log of trainer 1"
[ -s "$work/mylog/node.0/pserver.0.log" ] || fail "no log of pserver 0"
[ -s "$work/mylog/node.1/pserver.1.log" ] || fail "no log of pserver 1"

scene "the second node starts first, and has an address of its own"
rm -rf "$work/checkpoints"
port=$(free_port)
start_node 1 --master_addr=127.0.0.1 --master_port="$port" --servers=2 --node_addr=127.0.0.2
wait_log node.1 'server 1 .*meets'
start_node 0 --master_addr=127.0.0.1 --master_port="$port" --servers=2
expect_both_done
grep -q "^\[pserver.1\] ready server=1 endpoint=127.0.0.2:$((port + 2))$" "$work/node.1.out" ||
  fail "server 1: $(grep ready "$work/node.1.out")"

scene "two nodes, the dense parameters all-reduced"
start_nodes --servers=1 --set distribute.dense=ALL_REDUCE
expect_both_done

scene "two nodes with a server each, the dense parameters all-reduced"
start_nodes --servers=2 --set distribute.dense=ALL_REDUCE
expect_both_done

scene "servers and trainers of two nodes meet at a directory"
start_nodes --servers=2 --node_addr=127.0.0.2 -- --init_method="file://$work/meet"
expect_both_done

scene "the only server of two nodes"
start_nodes --servers=1
expect_both_done
expect_log node.1 "launch: node 1 of 2: 1 trainer on "

scene "a list of the servers, one on each node"
rm -rf "$work/checkpoints"
port=$(free_port)
start_node 0 --pservers="127.0.0.1:$port,127.0.0.2:$port" --node_addr=127.0.0.1
start_node 1 --pservers="127.0.0.1:$port,127.0.0.2:$port" --node_addr=127.0.0.2
expect_both_done
[ -s "$work/mylog/node.1/pserver.1.log" ] || fail "node 1 has started no server"

scene "SIGTERM at one node ends both"
start_nodes --servers=1 --set train.epochs=10000
wait_checkpoint
kill -TERM "${pid[node.1]}"
wait_end 30 node.0 node.1
expect_rc 0 node.0 node.1
[[ $(tail -n 1 "$work/node.0.out") == "done steps="*" stopped=1" ]] || fail "last line: $(tail -n 1 "$work/node.0.out")"
expect_no_children

scene "a trainer of the other node is killed"
start_nodes --servers=1 --set train.epochs=10000
wait_checkpoint
kill -KILL "$(pgrep -P "${pid[node.1]}" -f -- --trainer_id=1)"
wait_end $((2 * lease + 10)) node.0 node.1
expect_rc 137 node.1
expect_rc 3 node.0
expect_log node.1 'launch: trainer.1 failed: killed by signal 9 \(Killed\)'
expect_log node.0 'trainer 1 .*is dead'
expect_no_children

# Nobody there sees the end of the job.
scene "a trainer of a node without servers is frozen"
start_nodes --servers=1 --set distribute.sync=false --set train.epochs=40
wait_checkpoint
kill -STOP "$(pgrep -P "${pid[node.1]}" -f -- --trainer_id=1)"
wait_end 60 node.0 node.1
expect_rc 0 node.0
expect_rc 3 node.1
expect_log node.1 'launch: trainer.1 was stopped by a signal \(SIGSTOP\) for two leases \(4 s\): killed'
expect_no_children

scene "a server of the other node is killed"
start_nodes --servers=2 --set train.epochs=10000
wait_checkpoint
kill -KILL "$(pgrep -P "${pid[node.1]}" -f -- --server_id=1)"
wait_end $((2 * lease + 10)) node.0 node.1
expect_rc 137 node.1
expect_rc 3 node.0
expect_log node.1 'launch: pserver.1 failed: killed by signal 9 \(Killed\)'
expect_no_children

scene "one launch, for longer"
rm -rf "$work/checkpoints"
"$launch" --job="$job" --servers=2 --trainers=2 --log_dir="$work/mylog" --set train.epochs=12 > "$work/long.out" 2>&1 ||
  fail "one launch fails"
long=$(digest)

# Processes of the other node may still speak to a server that was started again.
restarts() {
  local servers=$1 node=$2 victim=$3
  scene "$victim is killed, and both nodes start again, $servers servers"
  start_nodes --servers="$servers" --set train.epochs=12 --restarts=5
  wait_checkpoint
  kill -KILL "$(pgrep -P "${pid[node.$node]}" -f -- "--$victim")"
  wait_end 60 node.0 node.1
  expect_rc 0 node.0 node.1
  expect_log "node.$node" 'launch: restart 1 .* failed: killed by signal 9 \(Killed\)'
  [[ $(tail -n 1 "$work/node.0.out") == "done "*" restarts="* ]] || fail "last line: $(tail -n 1 "$work/node.0.out")"
  expect_digest "$long"
  expect_no_children
}
restarts 2 1 trainer_id=1
restarts 2 0 server_id=0
restarts 1 0 server_id=0
restarts 0 1 trainer_id=1

scene "nodes with different numbers of servers"
rm -rf "$work/checkpoints"
port=$(free_port)
start_node 0 --master_addr=127.0.0.1 --master_port="$port" --servers=2
start_node 1 --master_addr=127.0.0.1 --master_port="$port" --servers=3
wait_end 30 node.1
expect_rc 2 node.1
expect_log node.1 'there are 3 servers, .* that there are 2; give all processes the same number'
kill -TERM "${pid[node.0]}" 2>/dev/null
wait_end 30 node.0
expect_no_children

scene "nodes with different numbers of trainers"
rm -rf "$work/checkpoints"
port=$(free_port)
start_node 0 --master_addr=127.0.0.1 --master_port="$port" --servers=1
start_node 1 --master_addr=127.0.0.1 --master_port="$port" --servers=1 --nproc_per_node=2
wait_end 30 node.1
expect_rc 2 node.1
expect_log node.1 'distribute.trainers|trainers: '
kill -TERM "${pid[node.0]}" 2>/dev/null
wait_end 30 node.0
expect_no_children

scene "two nodes without servers: the trainers meet at the master"
start_nodes --servers=0
expect_both_done

scene "two nodes without servers, all-reduced"
start_nodes --servers=0 --set distribute.dense=ALL_REDUCE
expect_both_done

scene "two nodes without servers: a trainer of the other node is killed"
start_nodes --servers=0 --set train.epochs=10000
wait_checkpoint
kill -KILL "$(pgrep -P "${pid[node.1]}" -f -- --trainer_id=1)"
wait_end $((2 * lease + 10)) node.0 node.1
expect_rc 137 node.1
expect_log node.1 'launch: trainer.1 failed: killed by signal 9 \(Killed\)'
expect_no_children

scene "two nodes without servers meet at a directory"
rm -rf "$work/checkpoints"
port=$(free_port)
start_node 0 --master_addr=127.0.0.1 --master_port="$port" --servers=0 -- --init_method="file://$work/meet"
start_node 1 --master_addr=127.0.0.1 --master_port="$port" --servers=0 -- --init_method="file://$work/meet"
expect_both_done

scene "flags that contradict each other"
refuse 2 "launch: --node_rank=2, but --nnodes is 2: ranks are 0 to 1" \
  "$launch" --job="$job" --nnodes=2 --node_rank=2 --master_addr=127.0.0.1 --servers=1
refuse 2 "launch: --node_rank is 0 but the variable NODE_RANK is 1" \
  env NODE_RANK=1 "$launch" --job="$job" --nnodes=2 --node_rank=0 --master_addr=127.0.0.1 --servers=1

conclude
