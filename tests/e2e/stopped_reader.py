"""A client that stops reading in the middle of answers of 1 GiB: the server's memory stays bounded, another client goes
on at its speed, and the stopped one goes on when it is woken in time, or is named and told why it cannot.

Arguments: those of plain_stub.py, then TCP or UNIX: the way of the tensors; the server's process; its log.
"""

import faulthandler
import os
import signal
import subprocess
import sys
import threading
import time

import grpc
from plain_stub import Trainer, endpoint, refused
from proto import parameter_server_pb2 as ps
from proto import parameter_server_pb2_grpc

WIDTH = 8192
IDS = [5] * 1024  # 32 MiB of rows
PULLS = 32
MIB = 1 << 20
# ServerOptions.unread_bytes, which one answer may exceed; what the other client has under way, and what gRPC and the
# allocator add. Without a bound it would be 1 GiB.
MOST_MEMORY = (256 + 32 + 2 * 32 + 128) * MIB
LEASE = 6
# Of one pull of the other client: seconds, on a machine that may be busy.
PATIENCE = 10
# Of the stopped client, from the moment at which it is woken for the last time to its end.
LAST_WORDS = 60
OPTIONS = [("grpc.max_receive_message_length", -1), ("grpc.use_local_subchannel_pool", 1)]


def memory(pid, field):
    with open("/proc/%d/status" % pid) as f:
        return next(int(line.split()[1]) * 1024 for line in f if line.startswith(field + ":"))


def bulk_channel(trainer, address, way):
    """Tensors have a connection of their own."""
    assert trainer.socket, "the server told of no socket"
    return grpc.insecure_channel("unix:" + trainer.socket if way == "UNIX" else address, OPTIONS)


def read_all(trainer, bulk, stop_after):
    """Asks for everything at once, stops itself when so many answers are there, and returns how many came
    in the end."""
    calls = [bulk.Pull.future(trainer.pull(IDS, wait_s=1), timeout=120) for _ in range(PULLS)]
    came = 0
    while calls:
        try:
            answer = calls.pop(0).result()
        except grpc.RpcError:
            # A program that ends with calls under way may not end.
            for call in calls:
                call.cancel()
            raise
        if not ps.PullReply.FromString(answer.header).ready:
            # The server has waited for this client itself; it asks again, as any client does.
            calls.append(bulk.Pull.future(trainer.pull(IDS, wait_s=1), timeout=120))
            continue
        assert len(answer.payload) == 4 * WIDTH * len(IDS)
        came += 1
        if came == stop_after:
            print("stopping", flush=True)
            os.kill(os.getpid(), signal.SIGSTOP)
    return came


def reader(port_file, agreement, way):
    address = endpoint(port_file)
    with grpc.insecure_channel(address) as channel:
        trainer = Trainer(parameter_server_pb2_grpc.ParameterServerStub(channel), agreement, trainer=1, width=WIDTH)
        with bulk_channel(trainer, address, way) as tensors:
            read_twice(trainer, parameter_server_pb2_grpc.ParameterServerStub(tensors))


def read_twice(trainer, bulk):
    over = threading.Event()
    beats = threading.Thread(target=beat_until, args=(over, trainer), daemon=True)
    beats.start()
    print("read", read_all(trainer, bulk, stop_after=2), flush=True)
    over.set()
    beats.join()
    trainer.beat()
    # Who is never woken says where it stood.
    faulthandler.dump_traceback_later(LAST_WORDS)
    try:
        print("read", read_all(trainer, bulk, stop_after=2), flush=True)
    except grpc.RpcError as error:
        print("cut", error.code().name, error.details(), flush=True)
    # Its lease has run out while it stood still.
    print("told", refused(grpc.StatusCode.FAILED_PRECONDITION, "cannot go on", trainer.stub.Heartbeat,
                          ps.HeartbeatRequest(caller=trainer.caller)), flush=True)


class Other:
    """The client that goes on, and the server's memory as it is meanwhile."""

    def __init__(self, trainer, bulk, server):
        self.trainer, self.bulk, self.server = trainer, bulk, server
        self.slowest = 0
        self.most_memory = 0

    def go_on(self, seconds):
        end = time.monotonic() + seconds
        pulls = 0
        while time.monotonic() < end:
            begun = time.monotonic()
            answer = self.bulk.Pull(self.trainer.pull(IDS), timeout=PATIENCE)
            assert ps.PullReply.FromString(answer.header).ready
            self.slowest = max(self.slowest, time.monotonic() - begun)
            self.most_memory = max(self.most_memory, memory(self.server, "VmRSS"))
            pulls += 1
        return pulls / seconds


def beat_until(over, trainer):
    while not over.wait(0.5):
        trainer.beat()


def wait_stopped(child):
    assert child.stdout.readline() == "stopping\n", "the reader has not begun to read"
    end = time.monotonic() + 30
    while True:
        with open("/proc/%d/stat" % child.pid) as f:
            if f.read().rsplit(")", 1)[1].split()[0] == "T":
                return
        assert time.monotonic() < end, "the reader has not stopped"
        time.sleep(0.01)


def main():
    with open(sys.argv[2]) as f:
        agreement = f.read()
    if sys.argv[3] == "reader":
        return reader(sys.argv[1], agreement, sys.argv[4])
    way, server, log = sys.argv[3], int(sys.argv[4]), sys.argv[5]
    address = endpoint(sys.argv[1])
    with grpc.insecure_channel(address) as channel:
        trainer = Trainer(parameter_server_pb2_grpc.ParameterServerStub(channel), agreement, width=WIDTH)
        over = threading.Event()
        beats = threading.Thread(target=beat_until, args=(over, trainer), daemon=True)
        beats.start()
        tensors = bulk_channel(trainer, address, way)
        other = Other(trainer, parameter_server_pb2_grpc.ParameterServerStub(tensors), server)
        alone = other.go_on(1)
        before = memory(server, "VmRSS")
        child = subprocess.Popen([sys.executable, __file__, sys.argv[1], sys.argv[2], "reader", way],
                                 stdout=subprocess.PIPE, text=True)
        try:
            # Less than a lease: nothing has happened.
            wait_stopped(child)
            beside = other.go_on(LEASE / 4)
            unread = other.most_memory - before
            os.kill(child.pid, signal.SIGCONT)
            other.go_on(1)
            assert child.stdout.readline() == "read %d\n" % PULLS
            # Longer: it is named, and told.
            wait_stopped(child)
            beside = min(beside, other.go_on(1.5 * LEASE))
            with open(log) as f:
                assert "trainer 1 (python:1) is dead: no sign of life for" in f.read()
            os.kill(child.pid, signal.SIGCONT)
            try:
                rest, _ = child.communicate(timeout=LAST_WORDS)
            except subprocess.TimeoutExpired as late:
                raise AssertionError("the stopped client has not ended; it said %r" % late.output) from late
            assert "\ntold trainer 1 (python:1) was declared dead after %d s" % LEASE in "\n" + rest, rest
        finally:
            child.kill()
        over.set()
        beats.join()
        tensors.close()
        trainer.beat(done=True)
        grown = other.most_memory - before
        print("%s: %.1f pulls/s alone and %.1f beside a stopped client, the slowest took %.2f s; %d MiB more memory, "
              "%d after the first stop" % (way, alone, beside, other.slowest, grown / MIB, unread / MIB))
        assert grown < MOST_MEMORY, "the server has grown by %d MiB" % (grown / MIB)
        # Else nothing was left unread, and nothing was tested.
        assert unread > 128 * MIB, "the stopped client left %d MiB unread" % (unread / MIB)
        assert beside > alone / 3, "the other client was slowed down"


if __name__ == "__main__":
    main()
