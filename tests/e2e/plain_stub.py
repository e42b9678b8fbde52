"""The client of plain_stub_test.sh: joins as trainer 0, pulls, pushes and says that it is done.

Trainer 1 goes on meanwhile.

Arguments: the file that will name the server's endpoint, and the file with what processes must agree on.
"""

import os
import re
import struct
import sys
import time

import grpc
import xxhash
from proto import parameter_server_pb2 as ps
from proto import parameter_server_pb2_grpc
from proto import table_pb2

WIDTH = 4


def endpoint(port_file):
    end = time.monotonic() + 60
    while not os.path.exists(port_file):
        if time.monotonic() > end:
            raise TimeoutError("the server does not listen")
        time.sleep(0.05)
    with open(port_file) as f:
        return f.read().strip()


def refused(code, text, call, *args):
    try:
        call(*args, timeout=30)
    except grpc.RpcError as error:
        assert error.code() == code, error
        assert text in error.details(), error.details()
        return error.details()
    raise AssertionError("not refused: " + text)


def aligned(data):
    return data + bytes(-len(data) % 64)


class Trainer:
    def __init__(self, stub, agreement, trainer=0, width=WIDTH):
        self.stub = stub
        self.width = width
        self.caller = ps.Caller(job_id="plain", trainer=trainer)
        fingerprint = xxhash.xxh3_64_intdigest(agreement)
        join = ps.JoinRequest(caller=self.caller, server_index=0, plan_fingerprint=fingerprint, plan_text=agreement,
                              build="python", arithmetic="avx2", process="python:%d" % trainer, incarnation=7,
                              wire_version=4)
        refused(grpc.StatusCode.FAILED_PRECONDITION, "build python", stub.Join, join)
        # The build is told in the server's log alone, beside the file with its endpoint.
        with open(os.path.join(os.path.dirname(sys.argv[1]), "log")) as log:
            join.build = re.findall(r"it is of build python, this server of build (.*)", log.read())[-1]
        join.plan_text += "more: 1\n"
        join.plan_fingerprint += 1
        refused(grpc.StatusCode.FAILED_PRECONDITION, "more: 1", stub.Join, join)
        join.plan_text, join.plan_fingerprint = agreement, fingerprint
        reply, call = stub.Join.with_call(join, timeout=30)
        self.caller.session = reply.session
        # The server's socket, for who is on its machine.
        self.socket = dict(call.initial_metadata()).get("weir-unix-socket")

    def frame(self, header, payload):
        # No padding: a frame is a message like any other.
        return ps.Frame(header=header.SerializeToString(), payload=payload)

    def pull(self, ids, fmt=table_pb2.WIRE_FLOAT32, table="vectors", width=None, count=None, wait_s=0):
        header = ps.PullRequest(caller=self.caller, wait_s=wait_s)
        header.items.add(name=table, count=len(ids) if count is None else count, width=width or self.width, offset=0,
                         format=fmt)
        return self.frame(header, struct.pack("<%dq" % len(ids), *ids))

    def rows(self, ids, fmt=table_pb2.WIRE_FLOAT32, table="vectors"):
        answer = self.stub.Pull(self.pull(ids, fmt, table), timeout=30)
        header = ps.PullReply.FromString(answer.header)
        assert header.ready and header.checksum == xxhash.xxh3_64_intdigest(answer.payload)
        assert answer.SerializeToString().index(answer.payload) % 64 == 0 and len(answer.payload) % 64 == 0
        n = len(ids) * self.width
        floats = struct.unpack_from("<%d%s" % (n, "f" if fmt == table_pb2.WIRE_FLOAT32 else "e"), answer.payload)
        return [floats[i : i + self.width] for i in range(0, n, self.width)]

    def push(self, step, ids, grads, table="vectors", spoil=0, cut=0):
        payload = aligned(struct.pack("<%dq" % len(ids), *ids))
        payload += aligned(struct.pack("<%df" % len(grads), *grads))
        payload = payload[: len(payload) - cut]
        header = ps.PushRequest(caller=self.caller, step=step, part=0, part_count=1, samples=2,
                                checksum=xxhash.xxh3_64_intdigest(payload) + spoil)
        header.items.add(name=table, lane=self.caller.trainer, lanes=1, count=len(ids), width=self.width, offset=0)
        return self.frame(header, payload)

    def beat(self, **what):
        return self.stub.Heartbeat(ps.HeartbeatRequest(caller=self.caller, **what), timeout=30)


def main():
    with open(sys.argv[2]) as f:
        agreement = f.read()
    with grpc.insecure_channel(endpoint(sys.argv[1])) as channel:
        stub = parameter_server_pb2_grpc.ParameterServerStub(channel)
        trainer = Trainer(stub, agreement)
        other = Trainer(stub, agreement, trainer=1)
        ids = [5, -9, 2**63 - 1]
        before = trainer.rows(ids)
        grads = [float(i) for i in range(len(ids) * WIDTH)]
        bad = grpc.StatusCode.INVALID_ARGUMENT
        wrong = [
            (bad, "no such table", stub.Pull, trainer.pull(ids, table="vectros")),
            (bad, "rows of 8 floats; the table's have 4", stub.Pull, trainer.pull(ids, width=8)),
            (bad, "1000 ids at offset 0 of a payload of 24 bytes", stub.Pull, trainer.pull(ids, count=1000)),
            (bad, "by the plan it travels as WIRE_FLOAT32", stub.Pull, trainer.pull(ids, table_pb2.WIRE_FLOAT16)),
            (bad, "no such table", stub.Push, trainer.push(0, ids, grads, table="vectros")),
            (bad, "do not fit", stub.Push, trainer.push(0, ids, grads, cut=64)),
            (grpc.StatusCode.DATA_LOSS, "checksum", stub.Push, trainer.push(0, ids, grads, spoil=1)),
        ]
        for step, case in enumerate(wrong):
            refused(*case)
            # Rows of its own, so that those of trainer 0 stay as they were.
            stub.Push(other.push(step, [100], [1.0] * WIDTH), timeout=30)
            assert len(other.rows([100])) == 1
        assert trainer.rows(ids) == before
        for duplicate in (False, True):
            reply = ps.PushReply.FromString(stub.Push(trainer.push(0, ids, grads), timeout=30).header)
            assert reply.duplicate == duplicate
        after = trainer.rows(ids)
        for i, row in enumerate(before):
            for j in range(WIDTH):
                # SGD, learning rate 0.5, the gradient a mean over 2 samples.
                assert abs(after[i][j] - (row[j] - 0.5 * grads[i * WIDTH + j] / 2)) < 1e-6, (i, j)
        half = sum(trainer.rows(ids, table_pb2.WIRE_FLOAT16, "halves"), ())
        stub.Push(trainer.push(1, ids, grads, "halves"), timeout=30)
        for i, got in enumerate(sum(trainer.rows(ids, table_pb2.WIRE_FLOAT16, "halves"), ())):
            want = half[i] - 0.5 * grads[i] / 2
            # Both ends are rounded.
            assert abs(got - want) <= (abs(half[i]) + abs(want)) * 2**-11 + 2**-24, (got, want)
        for each in (trainer, other):
            each.beat(done=True)
    print("a plain stub pulled and pushed", len(ids), "rows")


if __name__ == "__main__":
    main()
