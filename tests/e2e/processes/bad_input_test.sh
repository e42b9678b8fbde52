#!/bin/bash
# What a user can get wrong about a cluster, on real processes: each is refused soon, by name, with exit code 2 (3 when
# the fault is a peer that is not there), and nothing hangs.
source tests/e2e/processes/cluster.sh

job=$work/job.textproto
make_data "$work/train.txt"
make_job "$job"
two=(--set distribute.servers=2 --set distribute.trainers=2)

scene "endpoints and ids"
refuse 2 'duplicate|twice|same' "$trainer" --job="$job" --trainer_id=0 --pservers=127.0.0.1:6171,127.0.0.1:6171
refuse 2 'blank|empty' "$trainer" --job="$job" --trainer_id=0 --pservers=127.0.0.1:6171,
refuse 2 'port' "$trainer" --job="$job" --trainer_id=0 --pservers=127.0.0.1:6171,127.0.0.1
refuse 2 '3.*distribute.servers|distribute.servers.*3' "$trainer" --job="$job" --trainer_id=0 --pservers=a:1,b:2,c:3
refuse 2 '--pservers' "$trainer" --job="$job" --trainer_id=0
refuse 2 '--trainer_id' "$trainer" --job="$job" --trainer_id=2 --pservers=a:1,b:2
refuse 2 '--trainer_id' "$trainer" --job="$job" --trainer_id=-1 --pservers=a:1,b:2
refuse 2 '--trainer_id' "$trainer" --job="$job" --pservers=a:1,b:2
refuse 2 '--server_id' "$pserver" --job="$job" --endpoint=127.0.0.1:0 --server_id=2
refuse 2 '--server_id|--endpoint' "$pserver" --job="$job"
refuse 2 'server_id' \
  "$pserver" --job="$job" --endpoint=127.0.0.1:6171 --server_id=1 --pservers=127.0.0.1:6171,127.0.0.1:6172
refuse 2 'not in|not one of|is not' \
  "$pserver" --job="$job" --endpoint=127.0.0.1:6173 --pservers=127.0.0.1:6171,127.0.0.1:6172

scene "a wrong role for the binary"
refuse 2 'role' "$pserver" --job="$job" --endpoint=127.0.0.1:0 --server_id=0 --role=trainer
refuse 2 'role' "$trainer" --job="$job" --trainer_id=0 --pservers=a:1,b:2 --role=pserver
refuse 2 'TRAINING_ROLE' env TRAINING_ROLE=TRAINER "$pserver" --job="$job" --endpoint=127.0.0.1:0 --server_id=0
refuse 2 'role' env TRAINING_ROLE=PSERVER "$trainer" --job="$job" --trainer_id=0 --pservers=a:1,b:2

scene "job files and flags"
for program in "$pserver --endpoint=127.0.0.1:0 --server_id=0" "$trainer --role=local"; do
  for threads in -5 100000000; do
    # shellcheck disable=SC2086
    refuse 2 "--threads=$threads: expected 1 to 1024" $program --job="$job" --threads=$threads
    [ "$threads" = -5 ] && continue
    # shellcheck disable=SC2086
    refuse 2 'train.threads must be at most 1024, got 100000000' $program --job="$job" --set train.threads=$threads
  done
done
mkfifo "$work/pipe.txt"
refuse 2 'pipe.txt: is no regular file' "$trainer" --role=local --job="$job" --set 'data.train.files=["pipe.txt"]'
refuse 2 '--job' "$pserver" --endpoint=127.0.0.1:0 --server_id=0
refuse 2 'nowhere.textproto' "$pserver" --job="$work/nowhere.textproto" --endpoint=127.0.0.1:0 --server_id=0
sed 's/learning_rate: 0.001/learnig_rate: 0.001/' "$job" > "$work/typo.textproto"
for program in "$pserver --endpoint=127.0.0.1:0 --server_id=0" "$trainer --trainer_id=0 --pservers=a:1,b:2"; do
  # shellcheck disable=SC2086
  refuse 2 "typo.textproto:[0-9]+:[0-9]+: .*learnig_rate.*did you mean .?learning_rate" \
    $program --job="$work/typo.textproto"
  # shellcheck disable=SC2086
  refuse 2 "unknown flag --jbo \(did you mean --job\?\)" $program --jbo="$job"
  # shellcheck disable=SC2086
  refuse 2 "WEIR_FAULT_POINT='nonsense': expected <kill\|stop\|stall>" \
    env WEIR_FAULT_POINT=nonsense $program --job="$job"
done
# With a GPU, too: there are not so many.
refuse 2 'device: CUDA: (no CUDA device|the NVIDIA driver is too old|there is no CUDA device 1000)' \
  "$trainer" --job="$job" --role=local --set train.device=CUDA --set train.device_id=1000
refuse 2 'learning_rate.*-0.1|-0.1.*learning_rate' "$pserver" --job="$job" --endpoint=127.0.0.1:0 --server_id=0 \
  --set optimizer.adam.learning_rate=-0.1

scene "a name that is in no record"
for i in $(seq 64); do echo "click:$((i % 2)) user:$((i % 4))"; done > "$work/words.txt"
cat > "$work/words.textproto" <<END
name: "words"
data {
  train { files: "words.txt" }
  slot_sign { slot { name: "click" type: FLOAT } slot { name: "users" } }
  ids { empty: ZERO }
  batch_size: 8
}
model {
  layer { name: "logit" embedding { ids: "users" table: "w" pooling: SUM } }
  loss { sigmoid_cross_entropy { logits: "logit" label: "click" } }
}
table { name: "w" width: 1 is_sparse: true is_distributed: true }
optimizer { sgd {} }
distribute { servers: 1 trainers: 1 }
train { epochs: 1 }
checkpoint { dir: "words.ck" }
END
refuse 2 "words.textproto:4:[0-9]+: data.slot_sign.slot\[1\]: slot 'users' is in no example of data.train; the first \
record of words.txt has click, user; correct the name" "$trainer" --role=local --job="$work/words.textproto"
[ -n "$(ls "$work/words.ck")" ] || fail "the parameters were not saved"
rm -rf "$work/words.ck"

scene "a port in use"
start_server 0 "${two[@]}" --set deadlines.connect_deadline_s=60
start_server 1 "${two[@]}" --set deadlines.connect_deadline_s=60
wait_ready 2
refuse 2 'cannot listen on 127.0.0.1:[0-9]+: Address already in use' \
  "$pserver" --job="$job" --endpoint="${pservers%,*}" --server_id=0

scene "trainers that do not belong"
start_server 0 "${two[@]}" --set deadlines.connect_deadline_s=60
start_server 1 "${two[@]}" --set deadlines.connect_deadline_s=60
wait_ready 2
swapped=${pservers#*,},${pservers%,*}
refuse 2 'this is server 1 .*expects server 0 at this address|this is server 0 .*expects server 1 at this address' \
  "$trainer" --job="$job" --trainer_id=0 --pservers="$swapped"
refuse 2 'comes with job another, build .*this server has another one of them, and its log says which' \
  "$trainer" --job="$job" --trainer_id=0 --pservers="$pservers" --set name=another
# It leaves when one of them has refused it.
grep -Eqs 'refuses trainer 0 \(.*\): it is of job another, this server of job e2e' "$work"/server.[01].log ||
  fail "no server says that it refuses trainer 0 of job another"
refuse 2 'is not that of server [01].*learning_rate' \
  "$trainer" --job="$job" --trainer_id=0 --pservers="$pservers" --set optimizer.adam.learning_rate=0.002
refuse 2 'is not that of server [01].*seed' \
  "$trainer" --job="$job" --trainer_id=0 --pservers="$pservers" --set train.seed=2
# Somebody who does not even speak the language.
for endpoint in ${pservers//,/ }; do
  for bytes in "head -c 100000 /dev/urandom" "printf GET\\x20/\\x20HTTP/1.1\\r\\n\\r\\n" \
      "printf PRI\\x20*\\x20HTTP/2.0\\r\\n\\r\\nSM\\r\\n\\r\\n%0999d 7"; do
    (exec 3<> "/dev/tcp/${endpoint%:*}/${endpoint#*:}" && $bytes >&3) 2>/dev/null
  done
done
start_trainer 0 "${two[@]}"
wait_log server.0 'trainer 0 \(.*\) has joined'
wait_log server.1 'trainer 0 \(.*\) has joined'
refuse 2 "trainer id 0 is held by .*:${pid[trainer.0]} and claimed by .*:[0-9]+" \
  "$trainer" --job="$job" --trainer_id=0 --pservers="$pservers"
# Whoever was refused has done no harm: the job goes on with the one that belongs.
start_trainer 1 "${two[@]}"
wait_end 60 trainer.0 trainer.1 server.0 server.1
expect_rc 0 trainer.0 trainer.1 server.0 server.1
expect_log trainer.0 '^done steps=6[01] '

scene "a server that never appears is named"
start_server 0 "${two[@]}" --set deadlines.connect_deadline_s=60
wait_ready 1
pservers+=,127.0.0.1:9
start_trainer 0 "${two[@]}" --set deadlines.connect_deadline_s=3
wait_end 15 trainer.0
expect_rc 3 trainer.0
expect_log trainer.0 'server 1 at 127.0.0.1:9'

scene "a trainer that never appears is named"
start_server 0 "${two[@]}" --set deadlines.connect_deadline_s=3
start_server 1 "${two[@]}" --set deadlines.connect_deadline_s=3
wait_ready 2
start_trainer 0 "${two[@]}" --set deadlines.connect_deadline_s=3
wait_end 20 trainer.0 server.0 server.1
expect_rc 3 trainer.0 server.0 server.1
expect_log server.0 'trainer 1'
expect_log trainer.0 'trainer 1'

conclude
