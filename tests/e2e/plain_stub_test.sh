#!/usr/bin/env bash
# Trainers written in Python, with nothing of Weir but its .proto files: plain generated stubs speak to a real pserver.
#
#   plain_stub_test.sh PSERVER TRANSPILE CLIENT.py WIDTH [ARGUMENT]
#
# The client is given the file that will name the server's endpoint, the file with what processes must agree on, and,
# with an argument, that, the server's process and its log. WIDTH is that of the table's rows.
set -euo pipefail
pserver=$1 transpile=$2 client=$3 width=$4
shift 4
work=$TEST_TMPDIR/plain_stub
rm -rf "$work"
mkdir -p "$work/stubs"
protoc --proto_path=. --python_out="$work/stubs" --grpc_out="$work/stubs" \
  --plugin=protoc-gen-grpc=/usr/bin/grpc_python_plugin \
  proto/membership.proto proto/parameter_server.proto proto/status.proto proto/table.proto
cat >"$work/job.textproto" <<JOB
name: "plain"
data {
  train { files: "none.tsv" }
  criteo { integers: 2 categoricals: 3 }
  batch_size: 8
}
model {
  layer { name: "fields" embedding { ids: "cat" table: "vectors" } }
  layer { name: "more" embedding { ids: "cat" table: "halves" } }
  layer { name: "input" concat { input: "fields" input: "more" input: "dense" } }
  layer { name: "out" fc { input: "input" size: 1 } }
  loss { sigmoid_cross_entropy { logits: "out" label: "label" } }
}
table { name: "vectors" width: $width is_sparse: true is_distributed: true }
table { name: "halves" width: $width is_sparse: true is_distributed: true wire { pull: WIRE_FLOAT16 } }
optimizer { sgd { learning_rate: 0.5 } }
distribute { sync: false servers: 1 trainers: 2 }
train { lanes: 2 arithmetic: AVX2 }
deadlines { heartbeat_s: 0.5 lease_s: 6 }
JOB
"$transpile" --job="$work/job.textproto" --print=agreement --out="$work/agreement"
"$pserver" --job="$work/job.textproto" --server_id=0 --endpoint=127.0.0.1:0 --port_file="$work/port" >"$work/log" 2>&1 &
server=$!
trap 'kill $server 2>/dev/null || true' EXIT
# The server's own deadlines end it if the client never comes.
if ! PYTHONPATH=$work/stubs /usr/bin/python3 "$client" "$work/port" "$work/agreement" \
    ${1:+"$1" "$server" "$work/log"}; then
  cat "$work/log" >&2
  exit 1
fi
wait "$server"
