#!/bin/bash
# Scoring files on real processes: every input once, in input order, the same bytes from one process, from clusters of
# any size, and from a checkpoint that another number of servers wrote.
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
  "$trainer" --job="$job" --role=predict --checkpoint="$work/checkpoints" --input="$1" --output="$2" \
    > "$work/alone.log" 2>&1 ||
    fail "prediction in one process ends with $?"
}

scene "one process"
# A link stays, and what it leads to gets the scores.
ln -s real.scores "$work/scores"
alone "$work/input.txt" "$work/scores"
{ [ -L "$work/scores" ] && [ -f "$work/real.scores" ]; } || fail "the link to the scores was replaced"
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
  trainer_flags=(--role=predict --checkpoint="$work/checkpoints" --input="$work/input.txt"
    --output="$work/cluster.scores")
  rm -f "$work/cluster.scores"
  # shellcheck disable=SC2086
  cluster $size
  trainer_flags=()
  all=("${!pid[@]}")
  wait_end 60 "${all[@]}"
  expect_rc 0 "${all[@]}"
  cmp "$work/scores" "$work/cluster.scores" || fail "other scores"
done

scene "servers with another checkpoint under the same name"
"$trainer" --job="$job" --role=local --set train.seed=2 --set checkpoint.dir="$work/other" > "$work/other.log" 2>&1 ||
  fail "training with another seed"
[ "$(ls "$work/other" | grep step | tail -n 1)" = "$(newest)" ] || fail "the two checkpoints have two names"
trainer_flags=(--role=predict --checkpoint="$work/other" --input="$work/input.txt" --output="$work/wrong.scores")
cluster 2 2 --set train.seed=2
trainer_flags=()
wait_end 60 trainer.0 trainer.1 server.0 server.1
expect_rc 2 trainer.0 server.0 server.1
# Whoever joins when the job has failed already is told so, and ends with 3.
[ "${rc[trainer.1]}" = 2 ] || expect_rc 3 trainer.1
expect_log trainer.1 'trainer 0 .*has another one at'
expect_log trainer.0 \
  "the checkpoint is $work/other/$(newest), and server [01], .* has another one at $work/checkpoints/"
[ ! -e "$work/wrong.scores" ] || fail "scores of another checkpoint were written"

scene "launch tells the servers where the checkpoint is"
"$trainer" --job="$job" --role=predict --set train.seed=2 --checkpoint="$work/other" --input="$work/input.txt" \
  --output="$work/other.scores" > "$work/alone.log" 2>&1 || fail "prediction in one process"
(cd "$work" && "$root/tools/launch" --job="$job" --servers=2 --trainers=2 --set train.seed=2 --log_dir="$work/mylog" \
  -- --role=predict --checkpoint=other/ --input="$work/input.txt" --output="$work/launched.scores") \
  > "$work/launch.log" 2>&1 || fail "prediction by launch ends with $?"
cmp "$work/other.scores" "$work/launched.scores" || fail "other scores"
cmp -s "$work/scores" "$work/launched.scores" && fail "the two checkpoints give the same scores"

scene "a job that gives other scores is refused, with the place"
sed 's/sizes: \[1200, 8\]/& activation: TANH/' "$job" > "$work/tanh.textproto"
at=$(grep -n 'activation: TANH' "$work/tanh.textproto" | cut -d: -f1)
column=$(($(grep 'activation: TANH' "$work/tanh.textproto" | grep -bo activation | cut -d: -f1) + 1))
refused="$work/tanh.textproto:$at:$column: model.layer.2..mlp.activation was RELU in the checkpoint's job, and is TANH"
refuse 2 "$refused" "$trainer" --job="$work/tanh.textproto" --role=predict --checkpoint="$work/checkpoints" \
  --input="$work/input.txt" --output="$work/tanh.scores"
refuse 2 "--set train.seed: train.seed was 1 in the checkpoint's job, and is 2 here" "$trainer" --job="$job" \
  --role=predict --set train.seed=2 --checkpoint="$work/checkpoints" --input="$work/input.txt" \
  --output="$work/tanh.scores"
refuse 2 "$refused" "$root/tools/launch" --job="$work/tanh.textproto" --servers=2 --trainers=2 \
  --log_dir="$work/refused" -- --role=predict --checkpoint="$work/checkpoints" --input="$work/input.txt" \
  --output="$work/tanh.scores"
[ ! -e "$work/tanh.scores" ] || fail "other scores were written"

scene "the job in the checkpoint predicts"
"$trainer" --job="$work/tanh.textproto" --role=predict --checkpoint_job --checkpoint="$work/checkpoints" \
  --input="$work/input.txt" --output="$work/own.scores" > "$work/own.log" 2>&1 || fail "--checkpoint_job"
cmp "$work/scores" "$work/own.scores" || fail "--checkpoint_job writes other scores"
expect_log own 'not this one: model.layer\[2\].mlp.activation was RELU, and is TANH in this job'
"$trainer" --role=predict --checkpoint_job --checkpoint="$work/checkpoints/$(newest)" --input="$work/input.txt" \
  --output="$work/own2.scores" > "$work/own.log" 2>&1 || fail "--checkpoint_job without --job"
cmp "$work/scores" "$work/own2.scores" || fail "--checkpoint_job without --job writes other scores"
"$root/tools/launch" --job="$work/tanh.textproto" --servers=2 --trainers=2 --log_dir="$work/own_logs" -- \
  --role=predict --checkpoint_job --checkpoint="$work/checkpoints" --input="$work/input.txt" \
  --output="$work/own3.scores" > "$work/launch.log" 2>&1 || fail "launch with --checkpoint_job ends with $?"
cmp "$work/scores" "$work/own3.scores" || fail "launch with --checkpoint_job writes other scores"
refuse 2 'no complete checkpoint in' "$trainer" --job="$job" --role=predict --checkpoint_job \
  --checkpoint="$work/nowhere" --output="$work/tanh.scores"
refuse 2 '--checkpoint_job goes with --role=predict' "$trainer" --job="$job" --role=local --checkpoint_job \
  --checkpoint="$work/checkpoints"

scene "a line that does not parse is nan where it stands"
awk 'NR == 100 { print "no line of this format" } { print }' "$work/input.txt" > "$work/gap.txt"
echo >> "$work/gap.txt"
"$trainer" --job="$job" --role=predict --set data.bad_line=SKIP --checkpoint="$work/checkpoints" \
  --input="$work/gap.txt" --output="$work/gap.scores" > "$work/gap.log" 2>&1 || fail "prediction with bad lines"
expect_log gap '^predicted examples=777 '
expect_log gap '2 lines did not parse .*: they are nan in '
[ "$(grep -n nan "$work/gap.scores" | tr '\n' ' ')" = "100:nan 779:nan " ] ||
  fail "nan stands elsewhere: $(grep -n nan "$work/gap.scores")"
paste "$work/scores" <(grep -v nan "$work/gap.scores") | awk '{ d = $1 - $2; if (d > 1e-6 || d < -1e-6) exit 1 }' ||
  fail "bad lines change the scores of good ones"
trainer_flags=(--role=predict --checkpoint="$work/checkpoints" --input="$work/gap.txt" --output="$work/cluster.scores")
cluster 2 3 --set data.bad_line=SKIP
trainer_flags=()
all=("${!pid[@]}")
wait_end 60 "${all[@]}"
expect_rc 0 "${all[@]}"
cmp "$work/gap.scores" "$work/cluster.scores" || fail "a cluster writes other scores"

scene "what is wrong is refused and replaces nothing"
cp "$work/scores" "$work/kept"
refuse 2 'nowhere' "$trainer" --job="$job" --role=predict --checkpoint="$work/nowhere" --input="$work/input.txt" \
  --output="$work/kept"
(cat "$work/input.txt"; echo "no line of this format") > "$work/bad.txt"
refuse 2 'bad.txt:778: ' "$trainer" --job="$job" --role=predict --checkpoint="$work/checkpoints" \
  --input="$work/bad.txt" --output="$work/kept"
refuse 2 '--checkpoint=DIR and --output=FILE' "$trainer" --job="$job" --role=predict --output="$work/kept"
refuse 2 "--carry needs an --output that ends in .csv" "$trainer" --job="$job" --role=predict --carry=x \
  --checkpoint="$work/checkpoints" --output="$work/kept"
refuse 2 "--carry: the data has no column 'nothing'" "$trainer" --job="$job" --role=predict --carry=nothing \
  --checkpoint="$work/checkpoints" --input="$work/input.txt" --output="$work/kept.csv"
refuse 2 '--carry goes with --role=predict' "$trainer" --job="$job" --role=local --carry=x
cmp "$work/scores" "$work/kept" || fail "a failed prediction has changed the file of an earlier one"

scene "SIGTERM ends a prediction at once, without an output"
for _ in {1..150}; do cat "$work/train.txt"; done > "$work/long.txt"
start long "$trainer" --job="$job" --role=predict --checkpoint="$work/checkpoints" --input="$work/long.txt" \
  --output="$work/long.scores"
since=$(now)
until grep -q "scores with" "$work/long.log"; do
  after 30 "$since" && fail "the prediction did not begin" && break
  sleep 0.02
done
kill -TERM "${pid[long]}"
wait_end 10 long
expect_rc 5 long
expect_log long "SIGTERM: the prediction ends at once, and writes no output"
expect_log long "asked to stop .* nothing was written to $work/long.scores"
! compgen -G "$work/*long.scores*" || fail "a prediction that was stopped has left a file"

conclude
