# Slurm as two nodes of this host, n0 and n1, without systemd and cgroups, with a key, ports and directories of its own.
# Sourced behind cluster.sh; a test calls stop_slurm when it exits.

PATH=$PATH:/usr/sbin:/sbin
slurm_pids=() slurm_dir=

# A port that nobody has now, with <n> behind it, out of the range from which the system takes its own.
free_port() {
  local port
  while :; do
    port=$((10000 + RANDOM % 20000))
    ports_are_free "$port" "${1:-0}" && break
  done
  echo "$port"
}
# ports_are_free <port> <n>: nobody listens at that port and the n behind it
ports_are_free() {
  local i
  for ((i = 0; i <= $2; ++i)); do
    ! grep -qi "$(printf ':%04X ' $(($1 + i)))" /proc/net/tcp /proc/net/tcp6 2>/dev/null || return 1
  done
}

# Prints why Slurm cannot be started here; nothing if it can.
slurm_lacks() {
  local program absent=
  for program in srun sbatch scontrol slurmctld slurmd munged; do
    command -v "$program" > /dev/null || absent+=" $program"
  done
  if [ -n "$absent" ]; then
    echo "not installed:$absent (Debian: slurmctld slurmd slurm-client munge)"
  elif [ "$(id -u)" -ne 0 ]; then
    echo "Slurm's daemons need root"
  fi
}

# start_slurm [line of slurm.conf ...]: returns when both nodes are idle
start_slurm() {
  local dir host node
  # A short path: munged's socket lies there.
  dir=$(mktemp -d /tmp/weir_slurm.XXXXXX) || return 1
  slurm_dir=$dir
  host=$(hostname -s)
  mkdir -p "$dir/state" "$dir/spool.n0" "$dir/spool.n1"
  chmod 755 "$work" "$dir"
  dd if=/dev/urandom of="$dir/munge.key" bs=1 count=1024 status=none
  chmod 400 "$dir/munge.key"
  # A job that is requeued waits for cred_expire, by default two minutes.
  cat > "$dir/slurm.conf" <<END_OF_CONF
ClusterName=weir
SlurmctldHost=$host(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$dir/munge.sock,cred_expire=5
CryptoType=crypto/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=1,sched_interval=2
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SwitchType=switch/none
MpiDefault=none
SlurmctldPort=$(free_port)
SlurmctldPidFile=$dir/slurmctld.pid
SlurmdPidFile=$dir/slurmd.%n.pid
StateSaveLocation=$dir/state
SlurmdSpoolDir=$dir/spool.%n
SlurmctldLogFile=$dir/slurmctld.log
SlurmdLogFile=$dir/slurmd.%n.log
SlurmdParameters=config_overrides
ReturnToService=2
InactiveLimit=0
KillWait=5
NodeName=n0 NodeHostname=$host NodeAddr=127.0.0.1 Port=$(free_port) CPUs=4 RealMemory=1000
NodeName=n1 NodeHostname=$host NodeAddr=127.0.0.1 Port=$(free_port) CPUs=4 RealMemory=1000
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=YES
$(printf '%s\n' "$@")
END_OF_CONF
  export SLURM_CONF=$dir/slurm.conf
  start munged munged --foreground --force --key-file="$dir/munge.key" --socket="$dir/munge.sock" \
    --pid-file="$dir/munged.pid" --log-file="$dir/munged.log" --seed-file="$dir/munged.seed"
  start slurmctld slurmctld -D -f "$SLURM_CONF" -c
  for node in n0 n1; do start "slurmd.$node" slurmd -D -f "$SLURM_CONF" -N "$node"; done
  # scene ends all processes that pid names; these live on.
  for node in munged slurmctld slurmd.n0 slurmd.n1; do
    slurm_pids+=("${pid[$node]}")
    unset "pid[$node]"
  done
  local since
  since=$(now)
  until [ "$(sinfo -h -o '%T %D' 2>/dev/null)" = "idle 2" ]; do
    if after 60 "$since"; then
      fail "Slurm does not start: $(sinfo 2>&1 | tail -n 3)"
      tail -n 5 "$dir"/*.log
      return 1
    fi
    sleep 0.2
  done
}

stop_slurm() {
  [ -n "$slurm_dir" ] || return
  kill "${slurm_pids[@]}" 2>/dev/null
  wait "${slurm_pids[@]}" 2>/dev/null
  rm -rf "$slurm_dir"
  slurm_dir=
}
