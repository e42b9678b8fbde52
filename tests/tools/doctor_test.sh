#!/usr/bin/env bash
# The program doctor: what it prints of this machine, doctors that check each other, and its exit codes.
set -uo pipefail

doctor=$PWD/tools/doctor
work=$TEST_TMPDIR
failed=0

fail() {
  echo "FAILED: $*" >&2
  failed=1
}

# expect CODE PATTERN COMMAND...: stdout and stderr together have the pattern.
expect() {
  local code=$1 pattern=$2 out status
  shift 2
  out=$(timeout 60 "$@" 2>&1)
  status=$?
  [ "$status" = "$code" ] || { fail "exit code $status, expected $code, of $*"; echo "$out"; }
  grep -Eq -- "$pattern" <<<"$out" || { fail "no /$pattern/ in the output of $*"; echo "$out"; }
}

# Starts a doctor that listens, in the background; sets port and pid.
listen() {
  local out=$1
  shift
  "$doctor" --listen=0 "$@" > "$out.out" 2> "$out.err" &
  pid=$!
  for _ in $(seq 200); do
    port=$(sed -n 's/^doctor: listens at port \([0-9]*\)$/\1/p' "$out.err")
    [ -n "$port" ] && return
    sleep 0.05
  done
  fail "no doctor listens: $(cat "$out.err")"
}

expect 0 'AVX2 (yes|no)' "$doctor"
expect 0 'WIRE usable' "$doctor"
expect 0 'address for others: 127.0.0.1 \(--interface=lo\)' "$doctor" --interface=lo
expect 0 'the route to 127.0.0.1:5' "$doctor" --towards=127.0.0.1:5
"$doctor" --format=json > "$work/machine.json" || fail "no JSON"
python3 - "$work/machine.json" <<'PY' || fail "the JSON cannot be used"
import json, sys
report = json.load(open(sys.argv[1]))
assert report["processor"]["usable_cores"] >= 1
assert [b["name"] for b in report["backend"]] == ["WIRE", "GLOO", "NCCL"]
assert int(report["limits"]["open_files"]) != 0
PY

expect 2 "no network interface 'nowhere0'; there are .*lo" "$doctor" --interface=nowhere0
expect 2 'must be text or json' "$doctor" --format=xml
expect 2 'unknown flag' "$doctor" --host=a:1
expect 2 'no flag of doctor' "$doctor" --set a=b
expect 2 "what is 'x'" "$doctor" x
expect 2 'megabytes must be 1 to 1024, got 0' "$doctor" --hosts=a:1 --megabytes=0
expect 2 'without --listen and --hosts' "$doctor" --hosts=a:1 --interface=lo
expect 2 'port' "$doctor" --hosts=127.0.0.1
expect 2 'address of its own machine alone' "$doctor" --hosts=127.0.0.1:5,192.0.2.1:5
expect 0 'doctor --listen=PORT' "$doctor" --help

# One listens, another checks; the listener ends with a signal and says who has checked it.
listen "$work/first"
expect 0 '127.0.0.1  connected in .* MB/s back' "$doctor" --hosts="127.0.0.1:$port" --megabytes=1
"$doctor" --hosts="127.0.0.1:$port" --megabytes=1 --format=json > "$work/reach.json" || fail "no JSON of a check"
grep -q '"round_trip_ms"' "$work/reach.json" || fail "$(cat "$work/reach.json")"
kill -TERM "$pid"
wait "$pid" || fail "the listener ends with $?"
grep -q '^checked by ' "$work/first.out" || fail "who has checked it: $(cat "$work/first.out")"
expect 3 "127.0.0.1:$port  FAILED, refused" "$doctor" --hosts="127.0.0.1:$port"

# Two doctors that listen and check: each checks both, and ends when the other has checked it. Ports that were just
# free, and that no connection gets by itself; the doctors wait for each other.
free_port() {
  python3 -c '
import random, socket
while True:
    s = socket.socket()
    try:
        s.bind(("", random.randrange(10000, 32000)))
        print(s.getsockname()[1])
        break
    except OSError:
        s.close()'
}
a=$(free_port)
b=$(free_port)
hosts=127.0.0.1:$a,127.0.0.1:$b
timeout 60 "$doctor" --listen="$a" --hosts="$hosts" --megabytes=1 > "$work/a.out" 2>&1 &
first=$!
timeout 60 "$doctor" --listen="$b" --hosts="$hosts" --megabytes=1 > "$work/b.out" 2>&1 &
second=$!
wait "$first" || fail "the first of two ends with $?: $(cat "$work/a.out")"
wait "$second" || fail "the second of two ends with $?: $(cat "$work/b.out")"
for out in a b; do
  grep -q 'this doctor' "$work/$out.out" || fail "it does not know itself: $(cat "$work/$out.out")"
  grep -q 'MB/s back' "$work/$out.out" || fail "it has not measured: $(cat "$work/$out.out")"
  grep -q '^checked by ' "$work/$out.out" || fail "it was not checked: $(cat "$work/$out.out")"
done

# Another service at the port.
rm -f "$work/http.port"
python3 - "$work/http.port" <<'PY' &
import http.server, sys
server = http.server.HTTPServer(("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler)
open(sys.argv[1] + ".part", "w").write(str(server.server_address[1]))
import os
os.rename(sys.argv[1] + ".part", sys.argv[1])
server.serve_forever()
PY
http=$!
for _ in $(seq 200); do [ -e "$work/http.port" ] && break; sleep 0.05; done
expect 2 'FAILED, (wrong service|silent)' "$doctor" --hosts="127.0.0.1:$(cat "$work/http.port")" --deadline_s=2
listen "$work/third" --wait_s=1
expect 2 'cannot listen at port' "$doctor" --listen="$port"
wait "$pid" || fail "a listener whose time is over ends with $?"
kill "$http"
wait "$http" 2>/dev/null

exit "$failed"
