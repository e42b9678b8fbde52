#!/bin/bash
# One job, many clusters, real processes: sync training ends with the same bits on any number of servers and trainers,
# with any placement, slicing and thread count, in one process, and from dumped programs; what does change the
# arithmetic changes them.
source tests/e2e/processes/cluster.sh

transpile=$root/transpiler/transpile
job=$work/job.textproto
make_data "$work/train.txt"
make_job "$job"

# run <servers> <trainers> [flags]: to the end; leaves the digest in $got
run() {
  local all=() i
  rm -rf "$work/checkpoints"
  cluster "$@" || return
  for ((i = 0; i < $1; ++i)); do all+=("server.$i"); done
  for ((i = 0; i < $2; ++i)); do all+=("trainer.$i"); done
  wait_end 60 "${all[@]}"
  expect_rc 0 "${all[@]}"
  got=$(digest)
  [ -n "$got" ] || fail "no checkpoint"
}

# rows_of <servers>: every shard has rows
rows_of() {
  local rows
  rows=$(awk '/^shards \{/ { ++n; sum[n] = 0 } /^    row_count: / { sum[n] += $2 }
              END { for (i = 1; i <= n; ++i) printf "%d ", sum[i] }' "$work/checkpoints/$(newest)/MANIFEST")
  [ "$(wc -w <<<"$rows")" = "$1" ] && ! grep -qw 0 <<<"$rows" ||
    fail "rows by server: '$rows', expected some on each of $1"
}

same() {
  scene "$*"
  run "$@"
  [ "$got" = "$reference" ] || fail "digest is '$got', the reference is '$reference'"
  rows_of "$1"
}

scene "reference"
trainer_flags=(--digest_log="$work/reference.digests")
run 2 2 --set train.digest_every_steps=20
trainer_flags=()
reference=$got
expect_log trainer.0 '^digest step=20 values=[0-9a-f]{16} state=[0-9a-f]{16}'
rows_of 2
# The cut parameter really lies on both servers.
grep -c 'variable: "tower.0.w"$' "$work"/checkpoints/step-*60/MANIFEST | grep -qx 2 ||
  fail "tower.0.w is not cut in two"

same 1 1
same 2 4
trainer_flags=(--digest_log="$work/other.digests")
same 2 3 --set train.digest_every_steps=20
trainer_flags=()
"$checkpoint" compare "$work/reference.digests" "$work/other.digests" | grep -qx 'equal at 3 steps, 20 to 60' ||
  fail "the logs of digests are not equal: $("$checkpoint" compare "$work/reference.digests" "$work/other.digests")"
same 3 4 --set distribute.split_method=HASH_NAME
same 5 3 --set train.threads=2
same 2 1 --set distribute.slice_var_up=false
same 2 3 --set distribute.prefetch_rows=true
expect_log trainer.2 'prefetch_rows: a step takes .* ms with rows that are pulled ahead'
same 2 4 --set distribute.merge_hosts=true
expect_log trainer.0 'trainers 0, 1, 2, 3 of this host merge what they send to 2 of 2 servers; trainer 0 sends'
same 3 3 --set distribute.merge_hosts=true --set distribute.prefetch_rows=true

scene "a global norm, which servers wait for"
clip=(--set optimizer.clip.by_global_norm.max_norm=0.01)
run 1 1 "${clip[@]}"
clipped=$got
run 3 2 "${clip[@]}"
[ -n "$got" ] && [ "$got" = "$clipped" ] || fail "digest is '$got' on three servers, '$clipped' on one"
[ "$got" != "$reference" ] || fail "the clip changed nothing"

scene "local"
rm -rf "$work/checkpoints"
start local "$trainer" --job="$job" --role=local --threads=2
wait_end 60 local
expect_rc 0 local
expect_digest "$reference"

# Programs from files are what runs.
dump() {
  "$transpile" --job="$job" --role="$1" "$2" --print="$3" --format=textproto > "$work/$4" 2> "$work/transpile.log" ||
    { fail "transpile --role=$1 $2 --print=$3"; cat "$work/transpile.log"; }
}
dump trainer --trainer_id=0 main trainer.main.textproto
dump trainer --trainer_id=0 startup trainer.startup.textproto
for i in 0 1; do
  dump pserver --server=$i main server.$i.main.textproto
  dump pserver --server=$i startup server.$i.startup.textproto
done

# from_files: like run 2 2, with the programs in $work
from_files() {
  rm -rf "$work/checkpoints"
  for i in 0 1; do
    start_server $i --program="$work/server.$i.main.textproto" --startup_program="$work/server.$i.startup.textproto"
  done
  wait_ready 2 || return
  for i in 0 1; do
    start_trainer $i --program="$work/trainer.main.textproto" --startup_program="$work/trainer.startup.textproto"
  done
  wait_end 60 trainer.0 trainer.1 server.0 server.1
  got=$(digest)
}

scene "dumped programs"
from_files
expect_rc 0 trainer.0 trainer.1 server.0 server.1
expect_digest "$reference"

scene "dumped programs, relu edited to tanh"
cp "$work/trainer.main.textproto" "$work/whole"
sed -i 's/"relu"/"tanh"/; s/"relu_grad"/"tanh_grad"/' "$work/trainer.main.textproto"
cmp -s "$work/trainer.main.textproto" "$work/whole" && fail "the program has no relu to edit"
from_files
expect_rc 0 trainer.0 trainer.1 server.0 server.1
[ -n "$got" ] && [ "$got" != "$reference" ] ||
  fail "an edited program ended with digest '$got', the job with '$reference'"

scene "a program with a recv removed is refused"
awk '/^  ops \{$/ { op = $0; inside = 1; next }
     inside {
       op = op "\n" $0
       if ($0 == "  }") { inside = 0; if (gone || op !~ /type: "recv"/) print op; else gone = 1 }
       next
     }
     { print }' "$work/whole" > "$work/trainer.main.textproto"
cmp -s "$work/trainer.main.textproto" "$work/whole" && fail "the program has no recv to remove"
from_files
[ "${rc[trainer.0]:-none}" = 2 ] || fail "trainer.0 ended with ${rc[trainer.0]:-none}, expected 2"
expect_log trainer.0 'trainer.main.textproto'

scene "another seed"
trainer_flags=(--digest_log="$work/seed.digests")
run 2 2 --set train.seed=2 --set train.digest_every_steps=20
"$checkpoint" compare "$work/reference.digests" "$work/seed.digests" | grep -q '^first difference at step 20:' ||
  fail "the logs of digests of two seeds do not differ at step 20"
[ -n "$got" ] && [ "$got" != "$reference" ] || fail "another seed ended with the same bits"

conclude
