#!/bin/bash
# Checkpoints of real clusters: damaged ones are refused by name and the newest good one is used; a directory that is
# not shared is refused at join; a fresh run loses nothing of an earlier one.
source tests/e2e/processes/cluster.sh

job=$work/job.textproto
make_data "$work/train.txt"
make_job "$job"

all=(trainer.0 trainer.1 server.0 server.1)

scene "undisturbed"
cluster 2 2
wait_end 60 "${all[@]}"
expect_rc 0 "${all[@]}"
reference=$(digest)
mv "$work/checkpoints" "$work/good"

scene "a bad line at the end of the evaluation data"
(cat "$work/train.txt" && echo "no line") > "$work/bad_eval.txt"
cluster 2 2 --set 'data.eval.files=["bad_eval.txt"]'
wait_end 60 "${all[@]}"
expect_rc 2 "${all[@]}"
expect_log trainer.0 'bad_eval.txt:3841: '
"$checkpoint" verify "$work/checkpoints" > /dev/null || fail "the checkpoints do not verify"
[ "$(newest)" = "$(cd "$work/good" && printf '%s\n' step-* | tail -n 1)" ] || fail "newest checkpoint is '$(newest)'"
expect_digest "$reference"

scene "a trainer with other data"
head -n 3839 "$work/train.txt" > "$work/short.txt"
mkdir "$work/other" && cp "$work/short.txt" "$work/other/train.txt"
sed "s|dir: \"checkpoints\"|dir: \"$work/checkpoints\"|" "$job" > "$work/other/job.textproto"
for i in 0 1; do start_server $i; done
wait_ready 2
start_trainer 0
given=$job
job=$work/other/job.textproto
start_trainer 1
job=$given
wait_end 60 "${all[@]}"
expect_rc 2 "${all[@]}"
for name in trainer.0 trainer.1; do
  expect_log $name "trainer 1 sees other data than trainer 0: data.train: 'train.txt' has [0-9]+ bytes here"
done

# damaged <what is said of it> <command that damages the newest checkpoint, run in its directory>
damaged() {
  scene "$2"
  rm -rf "$work/checkpoints"
  cp -r "$work/good" "$work/checkpoints"
  (cd "$work"/checkpoints/step-000000000060 && eval "$2")
  trainer_flags=(--resume)
  cluster 2 2
  trainer_flags=()
  wait_end 60 "${all[@]}"
  expect_rc 0 "${all[@]}"
  expect_log trainer.0 "refused.*step-000000000060.*$1"
  expect_log trainer.0 'resumed from .*step-000000000040'
  expect_digest "$reference"
}
damaged 'shard-00001 has [0-9]+ bytes, the manifest says' 'truncate -s -1 shard-00001'
damaged 'shard-00000 has checksum' 'printf X | dd of=shard-00000 bs=1 seek=2000 conv=notrunc status=none'
damaged 'shard-00001 is missing' 'rm shard-00001'
damaged 'MANIFEST does not have the checksum' 'sed -i s/seed:.1/seed:.2/ MANIFEST'
damaged 'MANIFEST is missing' 'rm MANIFEST'

scene "all are damaged"
rm -rf "$work/checkpoints"
cp -r "$work/good" "$work/checkpoints"
for step in "$work"/checkpoints/step-*; do truncate -s 100 "$step/shard-00000"; done
trainer_flags=(--resume)
cluster 2 2
trainer_flags=()
wait_end 60 "${all[@]}"
expect_rc 4 trainer.0
expect_log trainer.0 'no checkpoint in .* is complete'

scene "another optimizer"
rm -rf "$work/checkpoints"
cp -r "$work/good" "$work/checkpoints"
sed 's/^optimizer { adam.*/optimizer { momentum { learning_rate: 0.001 mu: 0.9 } }/' "$job" > "$work/momentum.textproto"
given=$job
job=$work/momentum.textproto
trainer_flags=(--resume)
cluster 2 2
trainer_flags=()
job=$given
wait_end 60 "${all[@]}"
expect_rc 2 trainer.0
expect_log trainer.0 "state '.*' of '.*'"

scene "a run that does not resume sets the earlier checkpoints aside"
rm -rf "$work/checkpoints"
cp -r "$work/good" "$work/checkpoints"
cluster 2 2 --set train.max_steps=25
wait_end 60 "${all[@]}"
expect_rc 0 "${all[@]}"
expect_log trainer.0 'moved to .*/earlier-1'
[ "$(newest)" = step-000000000025 ] || fail "newest checkpoint is '$(newest)', expected step 25"
"$checkpoint" verify "$work/checkpoints/earlier-1" > /dev/null || fail "the earlier checkpoints do not verify"

scene "a directory that is not shared"
rm -rf "$work/checkpoints"
for i in 0 1; do start_server $i; done
wait_ready 2
refuse 2 "is not the one of server [01] .*Share the directory, or set checkpoint.per_host" \
  "$trainer" --job="$job" --trainer_id=0 --pservers="$pservers" --set "checkpoint.dir=\"$work/elsewhere\""

conclude
