"""Tests of weir.Client: reads of running servers against the checkpoint at the end, and its messages."""

import contextlib
import re
import socket
import subprocess
import sys
import time

import numpy as np
import pytest

import weir
from weir import programs, wire_values
from weir.protos import membership_pb2, parameter_server_pb2, table_pb2

pytest.importorskip("grpc", reason="grpcio is not installed; weir.Client needs it")
try:
    programs.find("pserver")
except weir.ProgramsMissingError as error:
    pytest.skip(str(error), allow_module_level=True)

SECONDS = 60  # deadline of every wait
USERS = 200
STEPS = 20  # train.max_steps

# Trainer 0 trains, trainer 1 is a Holder, trainer 2 is the place of clients.
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
distribute { sync: false servers: 2 trainers: 3 }
train { epochs: 9 max_steps: 20 seed: 1 lanes: 4 }
checkpoint { dir: "checkpoints" }
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


class Holder(weir.Client):
    """A trainer without steps, for which trainer 0 waits at the end: the servers stay, and nothing changes any more.

    close() lets trainer 0 write its checkpoint and end.
    """

    def __init__(self, addresses, job):
        super().__init__(addresses, job, trainer=1)

    def _settle(self, job):
        # What trainers tell each other at the start.
        for key in ("inputs", "beginning"):
            request = membership_pb2.ExchangeRequest(caller=self._caller(self._servers[0]), key=key, contribution=b"",
                                                     keep=True)
            self._ask(self._servers[0], "Exchange", request, membership_pb2.ExchangeReply(), key)

    def close(self):
        if not self._closed:
            self._tell_all("done")
        super().close()


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
    with servers_of(job) as servers, weir.Client(servers.addresses, job) as client:
        with contextlib.closing(Holder(servers.addresses, job)) as holder:
            servers.start("trainer", f"--pservers={','.join(servers.addresses)}", "--trainer_id=0")
            deadline = time.monotonic() + SECONDS
            while min(status.version for status in client.status()) < STEPS:
                assert time.monotonic() < deadline and servers.processes[-1].poll() is None, client.status()
            servers.holder = holder
            yield servers, client


def checkpoint_of(servers, job):
    """Lets the job end, and returns its checkpoint."""
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
    with servers_of(job) as servers, weir.Client(servers.addresses, job) as client:
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


def test_clients_share_a_place_at_once_and_one_after_the_other(job):
    with trained(job) as (servers, first), weir.Client(servers.addresses, job) as second:
        np.testing.assert_array_equal(first.rows("vectors", [1, 2]), second.rows("vectors", [1, 2]))
        second.close()
        assert first.rows("vectors", [1]).shape == (1, 256)
        with weir.Client(servers.addresses, job) as third:
            assert third.dense("out.w").shape == (64, 1)
        checkpoint_of(servers, job)


# Status.


def test_status_says_who_listens_without_a_job(job):
    with servers_of(job) as servers, weir.Client(",".join(servers.addresses)) as client:
        for index, status in enumerate(client.status()):
            assert (status.address, status.server, status.job) == (servers.addresses[index], index, "read_me")
            assert status.process.endswith(f":{servers.processes[index].pid}")
            assert status.version is None
        assert client.tables == [] and client.variables == []
        assert message(client.rows, "vectors", [1]).startswith("servers let only trainers of their job read: ")


def test_status_of_a_member_says_how_far_the_servers_are(job):
    with trained(job) as (servers, client):
        first, second = client.status()
        assert first.version >= STEPS and second.version >= STEPS
        assert (first.done, first.dead, first.failure, first.chief) == ((2,), (), "", 0)
        assert (second.server, second.job, second.chief) == (1, "read_me", None)
        assert second.process.endswith(f":{servers.processes[1].pid}")


def test_the_only_trainer_of_a_job_keeps_its_lease_until_it_is_closed(job):
    job = with_overrides(job, "distribute.sync=true", "distribute.trainers=1", "deadlines.lease_s=1",
                         "deadlines.heartbeat_s=0.2", "deadlines.progress_deadline_s=2", "deadlines.slow_warning_s=1")
    with servers_of(job) as servers:
        with weir.Client(servers.addresses, job) as client:
            begin = time.monotonic()
            while time.monotonic() - begin < 4:  # twice the longest time without progress
                assert client.dense("out.w").shape == (64, 1)
                client._end.wait(1.5)  # longer than the lease
            assert not any(status.failure for status in client.status())
        assert servers.end() == [0, 0]


# Messages.


def test_an_address_where_nobody_listens_is_named(job):
    address = f"127.0.0.1:{free_port()}"
    said = message(weir.Client(address, timeout=0.5).status)
    assert said.startswith(f"no answer from server {address} within 0.5 s, asked for who it is: ") and "refused" in said


def test_a_server_that_never_answers_is_named():
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        begin = time.monotonic()
        said = message(weir.Client(address, timeout=1).status)
        assert said.startswith(f"no answer from server {address} within 1 s") and time.monotonic() - begin < 5


def test_a_server_that_is_gone_is_named(job):
    with servers_of(job) as servers, weir.Client(servers.addresses, job, timeout=2) as client:
        servers.processes[1].kill()
        servers.processes[1].wait()
        assert message(client.dense, "deep.0.w").startswith(f"no answer from server {servers.addresses[1]} within 2 s, "
                                                           "asked for 'deep.0.w': ")
        ids = np.arange(100)
        assert f"no answer from server {servers.addresses[1]} within 2 s, asked for rows of 'vectors'" in message(
            client.rows, "vectors", ids)


def test_unknown_names_suggest_a_known_one(job):
    with servers_of(job) as servers, weir.Client(servers.addresses, job) as client:
        for call, says in [
            (lambda: client.rows("vector", [1]), "have no table 'vector' (did you mean 'vectors'?)"),
            (lambda: client.dense("deep.0.v"), "have no dense variable 'deep.0.v' (did you mean 'deep.0."),
            (lambda: client.rows("deep.0.w", [1]), "'deep.0.w' is a dense variable of the servers"),
            (lambda: client.dense("vectors"), "'vectors' is a table: read rows of it with rows('vectors', ids)"),
        ]:
            with pytest.raises(weir.NotFoundError) as error:
                call()
            assert says in str(error.value)


def test_another_job_is_refused_with_the_first_difference(job):
    other = with_overrides(job, "train.seed=2")
    with servers_of(job) as servers:
        said = message(weir.Client, servers.addresses, other)
        assert said.startswith(
            f"server {servers.addresses[0]}: the job of trainer 2 (weir.Client) is not that of server 0")
        assert said.endswith("train.seed: 1 here, 2 there")


def test_addresses_in_another_order_are_refused_and_the_place_is_free_again(job):
    with servers_of(job) as servers:
        said = message(weir.Client, servers.addresses[::-1], job)
        assert "this is server 1" in said and "is the order of endpoints the same everywhere?" in said
        with weir.Client(servers.addresses, job):
            pass


def test_a_place_that_is_taken_is_refused(job):
    job = with_overrides(job, "distribute.trainers=1")
    with servers_of(job) as servers, weir.Client(servers.addresses, job):
        assert "trainer id 0 is held by" in message(weir.Client, servers.addresses, job)


def test_jobs_that_would_wait_for_the_client_are_refused(job):
    lockstep = with_overrides(job, "distribute.sync=true")
    assert message(weir.Client, ["a:1", "b:2"], lockstep).startswith(
        "job 'read_me' is sync: its 3 trainers wait for each other, and would wait for a client in the place of one")
    bounded = with_overrides(job, "distribute.bounded_staleness={ steps: 2 }")
    assert message(weir.Client, ["a:1", "b:2"], bounded).startswith("job 'read_me' is bounded by staleness")
    alone = with_overrides(job, "distribute.servers=0", "distribute.sync=true")
    assert "there are no servers to read from" in message(weir.Client, ["a:1"], alone)
    assert message(weir.Client, "a:1", job) == "job 'read_me' has 2 servers, and 1 address is given: a:1"


def test_a_closed_client_says_so(job):
    with servers_of(job) as servers:
        client = weir.Client(servers.addresses, job)
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
