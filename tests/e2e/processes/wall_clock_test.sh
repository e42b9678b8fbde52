#!/bin/bash
# A wall clock that is set back and forth by an hour while a job runs (tests/testing/wall_clock_shim.c): nobody is taken
# for dead, no deadline passes early or late, and the bits are those of a run that nothing disturbed.
source tests/e2e/processes/cluster.sh

job=$work/job.textproto
make_data "$work/train.txt"
make_job "$job"

clock=$work/clock
# set_clock <seconds>: eight bytes, the least first
set_clock() {
  local i bytes=
  for ((i = 0; i < 64; i += 8)); do bytes+=$(printf '\\x%02x' $((($1 >> i) & 255))); done
  printf "$bytes" 1<> "$clock"
}
set_clock 0

# Programs under the shim.
for program in pserver trainer; do
  cat > "$work/$program" <<END
#!/bin/bash
exec env LD_PRELOAD="$root/tests/testing/libwall_clock_shim.so" WEIR_TEST_WALL_CLOCK="$clock" \
  "$root/$program/$program" "\$@"
END
  chmod +x "$work/$program"
done
pserver=$work/pserver trainer=$work/trainer

fresh() {
  rm -rf "$work/checkpoints"
  set_clock 0
}

expect_no_log() {
  grep -Eq -- "$2" "$work/$1.log" && fail "$1 says /$2/"
}

scene "undisturbed"
fresh
cluster 2 2
wait_end 60 trainer.0 trainer.1 server.0 server.1
expect_rc 0 trainer.0 trainer.1 server.0 server.1
undisturbed=$(digest)

scene "set back and forth until the job is done"
fresh
cluster 2 2
for shift in -3600 3600 0 -7200 -3600 7200; do
  set_clock "$shift"
  sleep 0.15
done
wait_end 60 trainer.0 trainer.1 server.0 server.1
expect_rc 0 trainer.0 trainer.1 server.0 server.1
expect_digest "$undisturbed"
for name in trainer.0 trainer.1 server.0 server.1; do expect_no_log "$name" 'dead|is slow|no data for'; done

# A thread that is stuck is slow; its process sends signs of life, for longer than a lease.
scene "set back while all wait"
fresh
export WEIR_FAULT_POINT=stall:trainer.1:first_part:30
cluster 2 2
unset WEIR_FAULT_POINT
wait_log trainer.1 'this process has reached its fault point'
set_clock -3600
wait_end 30 trainer.0 server.0 server.1
expect_rc 3 trainer.0 server.0 server.1
expect_log server.0 'the job has failed: trainer 1 .*is slow'
for name in trainer.0 server.0 server.1; do expect_no_log "$name" 'is dead'; done
kill -KILL "${pid[trainer.1]}"
wait_end 5 trainer.1

# Data that does not come is slow first, and an error when the deadline has passed.
scene "set forth while a reader waits"
fresh
export WEIR_FAULT_POINT=stall:trainer.1:reader:20
cluster 2 2
unset WEIR_FAULT_POINT
wait_log trainer.1 'this process has reached its fault point'
set_clock 3600
wait_end 30 trainer.0 trainer.1 server.0 server.1
expect_rc 3 trainer.0 trainer.1 server.0 server.1
expect_log trainer.1 'slow: trainer 1 .*data of stream [4-7]'

conclude
