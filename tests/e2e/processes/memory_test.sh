#!/bin/bash
# Rows live on the servers only: a table that grows makes servers larger and trainers not. Peak memory of real
# processes, with few ids and with 40,000 different ones, rows of 512 floats (2 KiB, and as much for Adagrad:
# 160 MB in all).
source tests/e2e/processes/cluster.sh

job=$work/job.textproto
examples=40000
cat > "$job" <<END
name: "memory"
data {
  train { files: "train.txt" }
  criteo { integers: 1 categoricals: 1 }
  shuffle: NO_SHUFFLE
  batch_size: 512
}
model {
  layer { name: "pooled" embedding { ids: "cat" table: "vectors" pooling: SUM } }
  layer { name: "out" fc { input: "pooled" input: "dense" size: 1 } }
  loss { sigmoid_cross_entropy { logits: "out" label: "label" } }
}
table { name: "vectors" width: 512 is_sparse: true is_distributed: true }
optimizer { adagrad { learning_rate: 0.05 } }
distribute { sync: true servers: 2 trainers: 2 }
train { epochs: 1 seed: 1 lanes: 8 threads: 1 }
END

# data <ids>: every example has one id, of so many in turn
data() {
  awk -v n=$examples -v ids="$1" \
    'BEGIN { for (i = 0; i < n; ++i) printf "%d\t%d\t%x\n", i % 3 == 0, i % 7, i % ids }' > "$work/train.txt"
}

# watch <name...>: peak[name] in kilobytes until they have ended, from the kernel's high-water mark
declare -A peak=()
watch() {
  local since name alive=1
  since=$(now)
  while [ $alive = 1 ] && ! after 120 "$since"; do
    alive=0
    for name in "$@"; do
      kb=$(awk '/^VmHWM/ { print $2 }' "/proc/${pid[$name]}/status" 2>/dev/null)
      [ -n "$kb" ] && peak[$name]=$kb && alive=1
    done
    sleep 0.05
  done
}

all=(server.0 server.1 trainer.0 trainer.1)
# measure <ids>: sets $servers_kb and $trainers_kb, the larger of two each
measure() {
  scene "$1 ids"
  data "$1"
  peak=()
  cluster 2 2
  watch "${all[@]}"
  wait_end 60 "${all[@]}"
  expect_rc 0 "${all[@]}"
  servers_kb=$((peak[server.0] > peak[server.1] ? peak[server.0] : peak[server.1]))
  trainers_kb=$((peak[trainer.0] > peak[trainer.1] ? peak[trainer.0] : peak[trainer.1]))
  echo "$1 ids: a server $servers_kb kB, a trainer $trainers_kb kB"
}

measure 50
few_servers=$servers_kb few_trainers=$trainers_kb
measure $examples
# Half of 40,000 rows of 4 KiB lie on each server: 80 MB.
[ $((servers_kb - few_servers)) -ge 60000 ] ||
  fail "servers grew by $((servers_kb - few_servers)) kB only: the rows are not there"
# A step of a trainer has at most 256 examples: 512 KiB of rows, in a few places at once.
[ $((trainers_kb - few_trainers)) -le 15000 ] ||
  fail "a trainer grew by $((trainers_kb - few_trainers)) kB with the table"

conclude
