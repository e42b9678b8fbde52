#!/bin/bash
# The checkpoint tool on the golden checkpoint and on damaged copies of it: output, exit codes, nothing half-written.
set -u
tool=$PWD/tools/checkpoint
golden=$PWD/tests/framework/checkpoint/testdata/golden
work=$(mktemp -d "${TEST_TMPDIR:-/tmp}/checkpoint_tool.XXXXXX")
trap 'rm -rf "$work"' EXIT
failures=0

# expect <exit code> <pattern in the output> <arguments of the tool>
expect() {
  local code=$1 pattern=$2
  shift 2
  local out rc
  out=$("$tool" "$@" 2>&1)
  rc=$?
  if [ "$rc" -ne "$code" ] || ! grep -Eq -- "$pattern" <<<"$out"; then
    echo "FAILED: checkpoint $*: exit code $rc, expected $code and /$pattern/ in:"
    echo "$out"
    failures=$((failures + 1))
  fi
}

mkdir "$work/ckpt"
cp -rL "$golden/." "$work/ckpt/"
chmod -R u+w "$work"
good="$work/ckpt/step-000000000042"

expect 0 '^step-000000000042 step=42 job=toy shards=3 .*eval_auc=0.75$' list "$work/ckpt"
expect 0 '^step-000000000042 OK ' verify "$work/ckpt"
expect 0 '^step-000000000042 OK ' verify "$good"
expect 0 '^w values=[0-9a-f]{16} state=[0-9a-f]{16}$' digest "$work/ckpt"
[ "$("$tool" digest "$good" | tail -1)" = "values=e668949ec9d4ffdb state=f86ef3c561bdffed" ] ||
  { echo "FAILED: last line of digest"; failures=$((failures + 1)); }
# Tables of the golden checkpoint, which has no job.
expect 0 '^table t: 6 rows of width 2$' report "$work/ckpt"
expect 0 '^  norm of a row +3.53553 +2.41523 +0 +0 +2.82843 +7.07107 +7.07107$' report "$good"
expect 0 '^  unknown: storage, slots and settings: the checkpoint has no job' report "$good" --table=t
expect 0 '^\{"path":".*/step-000000000042","job":"toy","step":"42","table":\[\{"name":"t","rows":"6",' \
  report "$work/ckpt" --step=42 --json
expect 2 "has no table 'u'; it has t" report "$good" --table=u
ln -s real.npz "$work/a.npz"
expect 0 'step 42 of job toy' export "$work/ckpt" --output="$work/a.npz"
{ [ -L "$work/a.npz" ] && [ -f "$work/real.npz" ]; } ||
  { echo "FAILED: the export replaces a link"; failures=$((failures + 1)); }
mkdir "$work/directory.npz"
expect 2 'is a directory; name a file to be written' export "$work/ckpt" --output="$work/directory.npz"
grep -q 't.ids.npy' "$work/a.npz" || { echo "FAILED: the export has no t.ids"; failures=$((failures + 1)); }
grep -q 'w.moment1.npy' "$work/a.npz" &&
  { echo "FAILED: the export has state that nobody asked for"; failures=$((failures + 1)); }
expect 0 'step 42' export "$good" --output="$work/s.npz" --state
grep -q 'w.moment1.npy' "$work/s.npz" || { echo "FAILED: --state exports no state"; failures=$((failures + 1)); }

# One table as a row file, and back.
expect 0 't.rows: table=t job=toy step=42 rows=6 removed=0 width=2 values=[0-9a-f]{16}$' \
  export "$good" --table=t --output="$work/t.rows"
expect 0 't.rows: OK table=t .* rows=6 ' rows "$work/t.rows"
expect 0 ' moment=2 values=' export "$good" --table=t --output="$work/state.rows" --state
expect 0 'OK table=t' rows "$work/state.rows" --output="$work/rows.npz"
expect 0 'step 42' export "$good" --table=t --state --output="$work/table.npz"
cmp -s "$work/rows.npz" "$work/table.npz" ||
  { echo "FAILED: a row file and its table are different arrays"; failures=$((failures + 1)); }
expect 0 'since=42 rows=0 removed=0' export "$work/ckpt" --table=t --since=42 --output="$work/none.rows"
expect 0 'since=42 rows=0 removed=0' export "$work/ckpt" --table=t --since="$good" --output="$work/none.rows"
expect 2 "has no table 'u'; it has t" export "$good" --table=u --output="$work/u.rows"
expect 2 'a row file holds one table: name it with --table' export "$good" --output="$work/u.rows"
printf 'X' | dd of="$work/t.rows" bs=1 seek=70 conv=notrunc status=none
expect 4 't.rows: chunk 0 at byte 64 is damaged' rows "$work/t.rows"

# A newer one that is damaged: named, and the older one is used.
cp -r "$good" "$work/ckpt/step-000000000050"
printf 'X' | dd of="$work/ckpt/step-000000000050/shard-00001" bs=1 seek=70 conv=notrunc status=none
expect 4 'step-000000000050 BAD .*shard-00001 has checksum' verify "$work/ckpt"
expect 0 'refused step-000000000050: .*shard-00001 has checksum' digest "$work/ckpt"
expect 0 'step 42 of job toy' export "$work/ckpt" --output="$work/b.npz"
expect 4 'shard-00001 has checksum' digest "$work/ckpt" --step=50
expect 0 'refused step-000000000050: .*shard-00001 has checksum' report "$work/ckpt"
expect 4 'shard-00001 has checksum' report "$work/ckpt" --step=50
expect 4 'shard-00001 has checksum' export "$work/ckpt" --step=50 --output="$work/c.npz"
[ -e "$work/c.npz" ] && { echo "FAILED: an export of damaged data left a file"; failures=$((failures + 1)); }
truncate -s 100 "$work/ckpt/step-000000000050/shard-00000"
expect 0 'step-000000000050 BAD .*shard-00000 has 100 bytes' list "$work/ckpt"
rm "$work/ckpt/step-000000000050/MANIFEST"
expect 4 'MANIFEST is missing' verify "$work/ckpt/step-000000000050"

expect 2 'is no directory' digest "$work/nowhere"
expect 2 'no complete checkpoint|no checkpoint' digest "$work"
expect 2 "unknown command 'lst'; expected list, verify, digest, report, export, rows or compare" lst "$work/ckpt"
expect 2 'expected a command and a directory' list
expect 2 'export needs --output' export "$work/ckpt"
expect 2 'unknown flag --outptu \(did you mean --output\?\)' export "$work/ckpt" --outptu=x
expect 0 'checkpoint verify DIR' --help

# Two logs of digests that part at step 100, in ranges 3 and 4 of one variable.
line() {
  printf 'step=%s variable=%s values=%s state=%016x ranges=' "$1" "$2" "$3" 7
  for i in $(seq 0 63); do
    printf '%s%016x' "$([ "$i" = 0 ] || echo ,)" "$([[ " ${4:-} " == *" $i "* ]] && echo 1 || echo 0)"
  done
  echo
}
{
  line 50 w 000000000000000a
  line 50 b 000000000000000b
  line 100 w 000000000000000c
  line 100 b 000000000000000d
} > "$work/a.log"
{
  line 50 w 000000000000000a
  line 50 b 000000000000000b
  line 100 w 00000000000000ff "3 4"
  line 100 b 000000000000000d
  line 150 w 00000000000000ee
} > "$work/b.log"
expect 0 '^equal at 2 steps, 50 to 100$' compare "$work/a.log" "$work/a.log"
expect 1 '^first difference at step 100 \(equal until step 50\):$' compare "$work/a.log" "$work/b.log"
expect 1 '^  w: values differ in ranges 3-4 of 64$' compare "$work/a.log" "$work/b.log"
# A log that knows how large its variables are is answered in rows.
sed 's/variable=w/variable=w elements=1280 row=8/; s/variable=b/variable=b shards=4096/' "$work/a.log" \
  > "$work/sized_a.log"
sed 's/variable=w/variable=w elements=1280 row=8/; s/variable=b/variable=b shards=4096/' "$work/b.log" \
  > "$work/sized_b.log"
expect 1 '^  w: values differ in ranges 3-4 of 64 \(rows 7 to 12\)$' compare "$work/sized_a.log" "$work/sized_b.log"
head -1 "$work/a.log" | cut -c1-60 > "$work/cut.log"
expect 2 'cut.log:1: expected step=' compare "$work/a.log" "$work/cut.log"

[ "$failures" -eq 0 ] && echo "all expectations met"
exit "$((failures > 0))"
