#!/bin/bash
# Scoring files on real processes: every input once, in input order, the same bytes from one process, from clusters of any size,
# and from a checkpoint that another number of servers wrote.
source tests/e2e/processes/cluster.sh

job=$work/job.textproto
make_data "$work/train.txt"
make_job "$job"
head -n 777 "$work/train.txt" > "$work/input.txt"

scene "train"
cluster 2 2
wait_end 60 trainer.0 trainer.1 server.0 server.1
expect_rc 0 trainer.0 trainer.1 server.0 server.1

# alone <input> <output>: one process, whatever the cluster of the job
alone() {
  "$trainer" --job="$job" --role=predict --checkpoint="$work/checkpoints" --input="$1" --output="$2" > "$work/alone.log" 2>&1 ||
    fail "prediction in one process ends with $?"
}

scene "one process"
alone "$work/input.txt" "$work/scores"
expect_log alone "^predicted examples=777 output=$work/scores$"
[ "$(wc -l < "$work/scores")" = 777 ] || fail "$(wc -l < "$work/scores") lines for 777 examples"
[ "$(sort -u "$work/scores" | wc -l)" -gt 300 ] || fail "all scores are alike"
awk '!($1 > 0 && $1 < 1) { exit 1 }' "$work/scores" || fail "a score is no probability"

scene "lines stand in input order"
tac "$work/input.txt" > "$work/reversed.txt"
alone "$work/reversed.txt" "$work/reversed.scores"
# Other examples share a batch then, and the last one is short elsewhere: equal to rounding.
paste "$work/scores" <(tac "$work/reversed.scores") | awk '{ d = $1 - $2; if (d > 1e-6 || d < -1e-6) exit 1 }' ||
  fail "reversed input does not give reversed scores"

scene "labels need not be known"
cut -f 2- "$work/input.txt" | sed 's/^/\t/' > "$work/unlabelled.txt"
alone "$work/unlabelled.txt" "$work/unlabelled.scores"
cmp "$work/scores" "$work/unlabelled.scores" || fail "scores depend on labels"

for size in "2 2" "3 4" "1 3"; do
  scene "a cluster of $size"
  trainer_flags=(--role=predict --checkpoint="$work/checkpoints" --input="$work/input.txt" --output="$work/cluster.scores")
  rm -f "$work/cluster.scores"
  # shellcheck disable=SC2086
  cluster $size
  trainer_flags=()
  all=("${!pid[@]}")
  wait_end 60 "${all[@]}"
  expect_rc 0 "${all[@]}"
  cmp "$work/scores" "$work/cluster.scores" || fail "other scores"
done

scene "what is wrong is refused and replaces nothing"
cp "$work/scores" "$work/kept"
refuse 2 'nowhere' "$trainer" --job="$job" --role=predict --checkpoint="$work/nowhere" --input="$work/input.txt" --output="$work/kept"
(cat "$work/input.txt"; echo "no line of this format") > "$work/bad.txt"
refuse 2 'bad.txt:778: ' "$trainer" --job="$job" --role=predict --checkpoint="$work/checkpoints" --input="$work/bad.txt" \
  --output="$work/kept"
refuse 2 '--checkpoint=DIR and --output=FILE' "$trainer" --job="$job" --role=predict --output="$work/kept"
cmp "$work/scores" "$work/kept" || fail "a failed prediction has changed the file of an earlier one"

conclude
