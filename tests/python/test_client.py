"""Tests of weir.Client: reads of running servers against the checkpoint at the end, and its messages."""

import concurrent.futures
import contextlib
import re
import socket
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import weir
from weir import programs, wire_values
from weir.protos import membership_pb2, parameter_server_pb2, plan_pb2, status_pb2, table_pb2
from weir.stable_hash import hash_bytes
from weir.version import __version__

grpc = pytest.importorskip("grpc", reason="grpcio is not installed; weir.Client needs it")
try:
    programs.find("pserver")
except weir.ProgramsMissingError as error:
    pytest.skip(str(error), allow_module_level=True)

SECONDS = 60  # deadline of every wait
USERS = 200
STEPS = 20  # train.max_steps

# Trainer 0 trains, trainer 1 is a Holder.
JOB = """
name: "read_me"
data {
  train { files: "train.csv" }
  csv { column { name: "label" } column { name: "age" } column { name: "user" type: ID } }
  batch_size: 64
}
model {
  layer { name: "v" embedding { ids: "user" table: "vectors" } }
  layer { name: "w" embedding { ids: "user" table: "weights" pooling: SUM } }
  layer { name: "in" concat { input: "v" input: "age" } }
  layer { name: "deep" mlp { input: "in" sizes: [64] activation: RELU } }
  layer { name: "out" fc { input: "deep" size: 1 } }
  layer { name: "logit" add { input: "out" input: "w" } }
  loss { sigmoid_cross_entropy { logits: "logit" label: "label" } }
}
table { name: "vectors" width: 256 is_sparse: true is_distributed: true }
table { name: "weights" width: 1 is_sparse: true is_distributed: true }
optimizer { sgd { learning_rate: 0.1 } }
distribute { sync: false servers: 2 trainers: 2 }
train { epochs: 9 max_steps: 20 seed: 1 lanes: 4 }
checkpoint { dir: "checkpoints" }
deadlines { lease_s: 60 }
"""


def message(call, *arguments, **named):
    """Returns the message of the ClientError that a call raises."""
    with pytest.raises(weir.ClientError) as error:
        call(*arguments, **named)
    return str(error.value)


@pytest.fixture(name="job")
def fixture_job(tmp_path):
    draw = np.random.default_rng(1)
    lines = [f"{draw.integers(2)},{draw.random():.4f},{draw.integers(USERS)}" for _ in range(2000)]
    (tmp_path / "train.csv").write_text("label,age,user\n" + "\n".join(lines) + "\n")
    (tmp_path / "job.textproto").write_text(JOB)
    return weir.Job.from_file(tmp_path / "job.textproto")


class Holder:
    """A trainer without steps, for which trainer 0 waits at the end: the servers stay, and nothing changes any more.

    close() lets trainer 0 write its checkpoint and end.
    """

    def __init__(self, addresses, job):
        agreement = job._ask("--print=agreement")
        self.held = []
        for index, address in enumerate(addresses):
            request = membership_pb2.JoinRequest(
                server_index=index, plan_text=agreement, plan_fingerprint=hash_bytes(agreement.encode()),
                build=f"weir {__version__}", arithmetic="avx2", process="holder:1", wire_version=4, incarnation=1)
            request.caller.job_id, request.caller.trainer = job.config.name, 1
            channel = grpc.insecure_channel(address)
            reply = membership_pb2.JoinReply.FromString(self.call(channel, "Join", request))
            request.caller.session = reply.session
            self.held.append((channel, request.caller))
        channel, caller = self.held[0]
        # What trainers tell each other at the start.
        for key in ("inputs", "beginning"):
            self.call(channel, "Exchange", membership_pb2.ExchangeRequest(caller=caller, key=key, contribution=b"",
                                                                          keep=True))

    @staticmethod
    def call(channel, method, request):
        return channel.unary_unary(f"/weir.v1.ParameterServer/{method}")(request.SerializeToString(), timeout=SECONDS)

    def close(self):
        for channel, caller in self.held:
            with contextlib.suppress(grpc.RpcError):
                self.call(channel, "Heartbeat", membership_pb2.HeartbeatRequest(caller=caller, done=True))
            channel.close()
        self.held = []


class Servers:
    """Servers of a job, and trainer 0 when it is started."""

    def __init__(self, job):
        with job.as_file() as file:
            self.arguments = file.arguments
        self.processes = []
        self.addresses = []
        for index in range(job.distribute.servers):
            process = self.start("pserver", "--endpoint=127.0.0.1:0", f"--server_id={index}")
            found = re.match(r"ready server=\d+ endpoint=(\S+)", process.stdout.readline())
            assert found, process.communicate(timeout=SECONDS)
            self.addresses.append(found[1])

    def start(self, program, *arguments):
        process = subprocess.Popen([str(programs.find(program)), *self.arguments, *arguments], text=True,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.processes.append(process)
        return process

    def end(self):
        """Returns the exit codes of the processes, which have been told to end."""
        for process in self.processes:
            process.communicate(timeout=SECONDS)
        return [process.returncode for process in self.processes]


@contextlib.contextmanager
def servers_of(job):
    servers = Servers(job)
    try:
        yield servers
    finally:
        for process in servers.processes:
            process.kill()
            process.communicate(timeout=SECONDS)


@contextlib.contextmanager
def trained(job):
    """Servers after the last step of trainer 0, and a client of theirs."""
    with servers_of(job) as servers, weir.Client(servers.addresses) as client:
        with contextlib.closing(Holder(servers.addresses, job)) as holder:
            servers.start("trainer", f"--pservers={','.join(servers.addresses)}", "--trainer_id=0")
            deadline = time.monotonic() + SECONDS
            while min(status.version for status in client.status()) < STEPS:
                assert time.monotonic() < deadline and servers.processes[-1].poll() is None, client.status()
            servers.holder, servers.client = holder, client
            yield servers, client


def checkpoint_of(servers, job):
    """Lets the job end, and returns its checkpoint. Closes the client: servers give open connections 2 s."""
    servers.client.close()
    servers.holder.close()
    assert servers.end() == [0] * len(servers.processes)
    return weir.Checkpoint(job.directory / "checkpoints")


def free_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


# Reads.


def with_overrides(job, *overrides):
    return weir.Job.from_file(job.directory / "job.textproto", overrides)


@pytest.mark.parametrize("wire", ["WIRE_FLOAT32", "WIRE_FLOAT16", "WIRE_BFLOAT16", "WIRE_INT8"])
def test_what_the_servers_hold_after_the_last_step_is_what_the_checkpoint_has(job, wire):
    job = with_overrides(job, f"distribute.wire.pull={wire}", f"table[0].wire.pull={wire}")
    # Half the distance of two values of the format.
    within = {"WIRE_FLOAT32": 0, "WIRE_FLOAT16": 2**-11, "WIRE_BFLOAT16": 2**-8, "WIRE_INT8": 2**-7}[wire]
    with trained(job) as (servers, client):
        assert client.tables == ["vectors", "weights"]
        ids = weir.feature_ids(range(USERS), "user")
        rows = {name: client.rows(name, ids) for name in client.tables}
        dense = {name: client.dense(name) for name in client.variables}
        checkpoint = checkpoint_of(servers, job)
        assert list(dense) == checkpoint.variables
        for name, found in dense.items():
            expected = checkpoint.dense(name)
            assert found.shape == expected.shape and found.dtype == np.float32
            np.testing.assert_allclose(found, expected, rtol=0, atol=within * np.abs(expected).max())
        for name, found in rows.items():
            table = checkpoint.table(name)
            trained_on = np.isin(ids, table.ids)
            assert trained_on.sum() == len(table) > 100
            expected = table.rows(ids[trained_on])
            np.testing.assert_allclose(found[trained_on], expected, rtol=0, atol=within * np.abs(expected).max())


def test_a_variable_that_several_servers_hold_is_put_together(job):
    agreement = job._ask("--print=agreement")
    assert "plan.block deep.0.w.block0: server" in agreement and "plan.block deep.0.w.block1: server" in agreement
    with trained(job) as (servers, client):
        found = client.dense("deep.0.w")
        np.testing.assert_array_equal(found, checkpoint_of(servers, job).dense("deep.0.w"))
        assert found.shape == (257, 64)


def test_rows_come_in_the_order_of_the_ids_and_in_many_calls(job, monkeypatch):
    monkeypatch.setattr("weir.client._CALL_BYTES", 20 * 1024)  # 19 rows of 256 floats
    with trained(job) as (servers, client):
        users = np.random.default_rng(2).integers(USERS, size=1000)
        one_by_one = np.stack([client.rows("vectors", weir.feature_ids([user], "user"))[0] for user in range(USERS)])
        np.testing.assert_array_equal(client.rows("vectors", weir.feature_ids(users, "user")), one_by_one[users])
        found = client.dense("deep.0.w")
        np.testing.assert_array_equal(found, checkpoint_of(servers, job).dense("deep.0.w"))


def test_lists_that_are_no_ids_are_refused(job):
    with servers_of(job) as servers, weir.Client(servers.addresses) as client:
        assert client.rows("vectors", []).shape == (0, 256)
        with pytest.raises(ValueError, match="ids have one dimension"):
            client.rows("vectors", [[1]])
        with pytest.raises(TypeError, match="ids are integers"):
            client.rows("vectors", [1.5])


def test_reading_an_id_without_a_row_makes_none(job):
    with trained(job) as (servers, client):
        first = client.rows("vectors", [123456789])
        assert np.any(first) and np.array_equal(first, client.rows("vectors", [123456789]))
        assert 123456789 not in checkpoint_of(servers, job).table("vectors").ids


def test_any_number_of_clients_read_at_once_and_one_after_the_other(job):
    with trained(job) as (servers, first), weir.Client(servers.addresses) as second:
        np.testing.assert_array_equal(first.rows("vectors", [1, 2]), second.rows("vectors", [1, 2]))
        second.close()
        assert first.rows("vectors", [1]).shape == (1, 256)
        for _ in range(70):  # more than servers have room for at once
            with weir.Client(servers.addresses) as third:
                assert third.dense("out.w").shape == (64, 1)
        checkpoint_of(servers, job)


def test_threads_share_a_client(job):
    with trained(job) as (servers, client):
        expected = client.rows("vectors", range(500))
        with concurrent.futures.ThreadPoolExecutor(8) as threads:
            for found in threads.map(lambda _: client.rows("vectors", range(500)), range(40)):
                np.testing.assert_array_equal(found, expected)
        checkpoint_of(servers, job)


# Every mode.


def train(job, reads):
    """Trains to the end, reading all the time if `reads`; returns the digest and the versions seen."""
    versions = set()
    with servers_of(job) as servers:
        over = threading.Event()

        def read():
            # A call that is under way when the servers end is repeated for so long.
            with weir.Client(servers.addresses, timeout=10) as client:
                ids = weir.feature_ids(range(USERS + 100), "user")
                while not over.is_set():
                    assert client.rows("vectors", ids).shape == (USERS + 100, 256)
                    assert client.dense("deep.0.w").shape == (257, 64)
                    versions.add(client.status()[0].version)

        with concurrent.futures.ThreadPoolExecutor(2) as threads:
            readers = [threads.submit(read) for _ in range(2 if reads else 0)]
            while reads and not versions:
                assert not readers[0].done(), readers[0].exception()
                time.sleep(0.01)
            for trainer in range(job.distribute.trainers):
                servers.start("trainer", f"--pservers={','.join(servers.addresses)}", f"--trainer_id={trainer}")
            for process in servers.processes[len(servers.addresses):]:
                process.communicate(timeout=SECONDS)
            over.set()
            for reader in readers:
                with contextlib.suppress(weir.ClientError):  # The servers have ended.
                    reader.result()
        assert servers.end() == [0] * len(servers.processes)
    return weir.Checkpoint(job.directory / "checkpoints").digest(), versions


@pytest.mark.parametrize("trainers", [1, 2])
def test_reads_of_a_sync_job_change_no_bit_of_it(job, trainers):
    job = with_overrides(job, "distribute.sync=true", f"distribute.trainers={trainers}", "train.max_steps=100")
    alone, _ = train(job, reads=False)
    digest, versions = train(job, reads=True)
    assert digest == alone
    assert 0 in versions and len(versions) > 2


def test_jobs_bounded_by_staleness_are_read(job):
    job = with_overrides(job, "distribute.bounded_staleness={ steps: 1 }")
    _, versions = train(job, reads=True)
    assert 0 in versions


def test_servers_inside_trainers_are_read(job):
    job = with_overrides(job, "distribute.sync=true", "distribute.servers=0", "train.epochs=100000",
                         "train.max_steps=1000000")
    addresses = [f"127.0.0.1:{free_port()}" for _ in range(2)]
    with job.as_file() as file:
        processes = [subprocess.Popen([str(programs.find("trainer")), *file.arguments, f"--trainer_id={trainer}",
                                       f"--pservers={','.join(addresses)}"], text=True, stdout=subprocess.PIPE,
                                      stderr=subprocess.PIPE) for trainer in range(2)]
    try:
        with weir.Client(addresses, timeout=SECONDS) as client:
            assert client.tables == ["vectors", "weights"]
            deadline = time.monotonic() + SECONDS
            while min(status.version for status in client.status()) < 5:
                assert time.monotonic() < deadline
            first = client.rows("vectors", weir.feature_ids(range(USERS), "user"))
            assert client.dense("deep.0.w").shape == (257, 64)
            version = client.status()[0].version
            while client.status()[0].version < version + 5:
                assert time.monotonic() < deadline
            assert np.any(client.rows("vectors", weir.feature_ids(range(USERS), "user")) != first)
        for process in processes:
            process.terminate()
        assert [process.wait(timeout=SECONDS) for process in processes] == [5, 5]
    finally:
        for process in processes:
            process.kill()
            process.communicate(timeout=SECONDS)


# Status.


def test_status_says_who_listens_and_how_far_it_is(job):
    with servers_of(job) as servers, weir.Client(",".join(servers.addresses)) as client:
        for index, status in enumerate(client.status()):
            assert (status.address, status.server, status.job) == (servers.addresses[index], index, "read_me")
            assert status.process.endswith(f":{servers.processes[index].pid}")
            assert (status.version, status.done, status.dead, status.failure) == (0, (), (), "")
    with trained(job) as (servers, client):
        first, second = client.status()
        assert first.version >= STEPS and second.version >= STEPS
        assert (first.done, first.dead, first.failure, first.chief) == ((), (), "", 0)
        assert (second.server, second.job, second.chief) == (1, "read_me", None)


def test_a_client_that_was_silent_for_longer_than_its_lease_goes_on(job):
    job = with_overrides(job, "deadlines.lease_s=1", "deadlines.heartbeat_s=0.2")
    with servers_of(job) as servers, weir.Client(servers.addresses) as client:
        before = client.rows("vectors", [1, 2, 3])
        sessions = [server.session for server in client._servers]
        threading.Event().wait(2.5)
        np.testing.assert_array_equal(client.rows("vectors", [1, 2, 3]), before)
        assert client.status()[1].version == 0
        assert all(server.session not in sessions for server in client._servers)


def test_the_end_of_a_job_waits_for_no_client(job):
    job = with_overrides(job, "distribute.sync=true", "distribute.trainers=1")
    with servers_of(job) as servers, weir.Client(servers.addresses, timeout=1) as client:
        servers.start("trainer", f"--pservers={','.join(servers.addresses)}", "--trainer_id=0")
        assert servers.end() == [0, 0, 0]
        assert message(client.status).startswith("no answer from server ")


# Messages.


def test_an_address_where_nobody_listens_is_named(job):
    address = f"127.0.0.1:{free_port()}"
    said = message(weir.Client, address, timeout=0.5)
    assert said.startswith(f"no answer from server {address} within 0.5 s, asked for leave to read: ")
    assert "refused" in said


def test_a_server_that_never_answers_is_named():
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        begin = time.monotonic()
        said = message(weir.Client, address, timeout=1)
        assert said.startswith(f"no answer from server {address} within 1 s") and time.monotonic() - begin < 5


def test_a_server_that_is_gone_is_named(job):
    with servers_of(job) as servers, weir.Client(servers.addresses, timeout=2) as client:
        servers.processes[1].kill()
        servers.processes[1].wait()
        assert message(client.dense, "deep.0.w").startswith(f"no answer from server {servers.addresses[1]} within 2 s, "
                                                           "asked for 'deep.0.w': ")
        ids = np.arange(100)
        assert f"no answer from server {servers.addresses[1]} within 2 s, asked for rows of 'vectors'" in message(
            client.rows, "vectors", ids)


def test_unknown_names_suggest_a_known_one(job):
    with servers_of(job) as servers, weir.Client(servers.addresses) as client:
        for call, says in [
            (lambda: client.rows("vector", [1]), "have no table 'vector' (did you mean 'vectors'?)"),
            (lambda: client.dense("deep.0.v"), "have no dense variable 'deep.0.v' (did you mean 'deep.0."),
            (lambda: client.rows("deep.0.w", [1]), "'deep.0.w' is a dense variable of the servers"),
            (lambda: client.dense("vectors"), "'vectors' is a table: read rows of it with rows('vectors', ids)"),
        ]:
            with pytest.raises(weir.NotFoundError) as error:
                call()
            assert says in str(error.value)


def test_the_job_that_the_servers_run_may_be_given(job):
    with servers_of(job) as servers, weir.Client(servers.addresses, job) as client:
        assert client.tables == ["vectors", "weights"]


def test_another_job_is_refused_with_the_first_difference(job):
    other = with_overrides(job, "train.seed=2")
    with servers_of(job) as servers:
        said = message(weir.Client, servers.addresses, other)
        assert re.match(rf"server {servers.addresses[0]}: the job of reader \(.*\) is not that of server 0", said)
        assert said.endswith("train.seed: 1 here, 2 there")


def test_addresses_that_are_not_those_of_a_job_are_refused(job):
    with servers_of(job) as servers:
        said = message(weir.Client, servers.addresses[::-1])
        assert "this is server 1" in said and "is the order of endpoints the same everywhere?" in said
        assert message(weir.Client, servers.addresses[:1]) == (
            f"job 'read_me' has 2 servers, and 1 address is given: {servers.addresses[0]}")
        with servers_of(with_overrides(job, "name=\"other\"")) as others:
            said = message(weir.Client, [servers.addresses[0], others.addresses[1]])
            assert said.startswith(f"server {others.addresses[1]} runs another job than server {servers.addresses[0]}: "
                                   "'other' and 'read_me'")


def test_another_job_at_the_same_address_is_noticed(job):
    with servers_of(job) as servers, weir.Client(servers.addresses) as client:
        client._plan.seed += 1
        for server in client._servers:
            server.session += 1
        assert message(client.dense, "out.w").endswith("runs another job than before: 'read_me', with another plan")


class PlayedServer:
    """A server whose answer to Join is given."""

    def __init__(self, join):
        handler = grpc.method_handlers_generic_handler("weir.v1.ParameterServer", {
            "Join": grpc.unary_unary_rpc_method_handler(join)})
        self.server = grpc.server(concurrent.futures.ThreadPoolExecutor(1), handlers=[handler])
        self.address = f"127.0.0.1:{self.server.add_insecure_port('127.0.0.1:0')}"
        self.server.start()

    def close(self):
        self.server.stop(None)


def refused_by(join):
    with contextlib.closing(PlayedServer(join)) as played:
        return message(weir.Client, played.address), played.address


def test_a_server_of_a_build_without_readers_is_named():
    def join(_, context):
        context.abort(grpc.StatusCode.FAILED_PRECONDITION,
                      "server 0 (old:1) runs job read_me, trainer -1 (host:1) belongs to job ")

    said, address = refused_by(join)
    assert said == (f"server {address} is of a build that lets nobody read but trainers: server {address}: server 0 "
                    "(old:1) runs job read_me, trainer -1 (host:1) belongs to job ")


def test_a_server_that_goes_away_during_a_call_is_named():
    played = PlayedServer(lambda _, context: context.abort(grpc.StatusCode.CANCELLED, "gone"))
    with contextlib.closing(played):
        said = message(weir.Client, played.address, timeout=0.5)
    assert said == f"no answer from server {played.address} within 0.5 s, asked for leave to read: gone"


def test_answers_to_join_that_are_no_plan_are_refused():
    def answering(**fields):
        return lambda *_: membership_pb2.JoinReply(**fields).SerializeToString()

    assert refused_by(lambda *_: b"\xff")[0].endswith("the answer to Join is no message of Weir")
    for join in (answering(), answering(session=1, plan=b"\xff"), answering(session=1)):
        assert refused_by(join)[0].endswith("the answer to Join has no plan of a job")
    newer = plan_pb2.Plan(servers=1, scheme_version=7).SerializeToString()
    assert "by the rules of version 7; this package knows version 1" in refused_by(answering(session=1, plan=newer))[0]
    failed = answering(failure=status_pb2.Status(message="no disk"))
    assert refused_by(failed)[0].endswith("the job has failed: no disk")


def test_what_a_server_says_is_shown_without_control_characters():
    failure = status_pb2.Status(message="no\n\x1b[2Jdisk 满")
    failed = membership_pb2.JoinReply(failure=failure).SerializeToString()
    assert refused_by(lambda *_: failed)[0].endswith("the job has failed: no\\x0a\\x1b[2Jdisk 满")

    def join(_, context):
        context.abort(grpc.StatusCode.FAILED_PRECONDITION, "not\x1b]0;you\x07")

    assert refused_by(join)[0].endswith(": not\\x1b]0;you\\x07")


def test_dense_variables_of_all_reduce_are_on_no_server(job):
    job = with_overrides(job, "distribute.sync=true", "distribute.dense=ALL_REDUCE")
    with servers_of(job) as servers, weir.Client(servers.addresses) as client:
        assert client.variables == [] and client.tables == ["vectors", "weights"]
        with pytest.raises(weir.NotFoundError, match="'out.w' is on every trainer of job 'read_me'"):
            client.dense("out.w")


def test_a_closed_client_says_so(job):
    with servers_of(job) as servers:
        client = weir.Client(servers.addresses)
        client.close()
        client.close()
        assert message(client.rows, "vectors", [1]) == "this client has been closed"
        assert message(client.status) == "this client has been closed"


@pytest.mark.parametrize("wrong", ["127.0.0.1", "a b:1", "127.0.0.1:port", "", ["a:1", ""]])
def test_what_is_no_address_is_refused(wrong):
    with pytest.raises(ValueError, match="an address of a server is 'host:port', got '"):
        weir.Client(wrong)


def test_without_grpcio_the_message_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "grpc", None)
    with pytest.raises(weir.WeirError, match="needs the package grpcio, which is not installed: pip install grpcio"):
        weir.Client("127.0.0.1:1")


# Frames and formats.


def test_a_frame_survives_its_bytes():
    assert wire_values.open_frame(wire_values.frame(b"ab", b"cd")) == (b"ab", b"cd")
    padded = parameter_server_pb2.Frame(header=b"ab", padding=b"\0" * 7, payload=b"cd").SerializeToString()
    assert wire_values.open_frame(padded) == (b"ab", b"cd")


def test_each_format_decodes_to_its_values():
    def decoded(wire, data, count, group):
        assert wire_values.encoded_bytes(wire, count, group) == len(data)
        return wire_values.decode(wire, memoryview(data), count, group).tolist()

    assert decoded(table_pb2.WIRE_FLOAT32, np.array([1.5, -2], "<f4").tobytes(), 2, 2) == [1.5, -2]
    assert decoded(table_pb2.WIRE_FLOAT16, np.array([1.5, np.inf], "<f2").tobytes(), 2, 2) == [1.5, np.inf]
    assert decoded(table_pb2.WIRE_BFLOAT16, np.array([0x3FC0, 0xC000], "<u2").tobytes(), 2, 2) == [1.5, -2]
    scales = np.array([0.5, 2], "<f4").tobytes()
    values = np.array([2, -4, 127], np.int8).tobytes()
    assert decoded(table_pb2.WIRE_INT8, scales + bytes(56) + values, 3, 2) == [1, -2, 254]
