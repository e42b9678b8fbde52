"""Rows and dense parameters of running servers, read over gRPC (docs/wire.md, proto/parameter_server.proto).

    weir.Client(["10.0.0.1:6170", "10.0.0.2:6170"]).status()        # who listens there

    with weir.Client(["10.0.0.1:6170", "10.0.0.2:6170"], job) as client:
        client.rows("vectors", weir.feature_ids([17, 4], "user"))   # float32 [2, width]
        client.dense("deep.0.w")                                    # float32 [in, out]
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import random
import re
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable, Iterable, List, Optional, Sequence, Tuple, Union

import numpy as np
import numpy.typing as npt
from google.protobuf import message, text_format

from weir.errors import ClientError, WeirError
from weir.feature_id import as_ids
from weir.job import Job
from weir.nearest import did_you_mean
from weir.protos import membership_pb2, parameter_server_pb2, plan_pb2
from weir.rows import NotFoundError, align
from weir.stable_hash import hash_bytes, logical_shards
from weir.version import __version__
from weir.wire_values import DENSE_GROUP, decode, encoded_bytes, frame, open_frame

__all__ = ["Client", "ServerStatus"]

# Version of the messages (pserver/protocol/handshake.h).
_WIRE_VERSION = 1
# Arithmetics that a server may ask trainers for. A reader computes nothing, so it takes the server's.
_ARITHMETICS = ("avx512", "avx2", "sse41")
# No job has this name: a Join for it changes nothing, and its refusal says who the server is.
_NO_JOB = "\x00"
# Clients that share a place come as one process: servers take the second for a repeat of the first.
_PROCESS = "weir.Client"
_INCARNATION = 0x7765697220726561
_REFUSAL = re.compile(r"server (?P<index>\d+) \((?P<process>[^)]*)\) runs job (?P<job>.*), trainer 0 \(.*\) belongs to "
                      r"job ", re.DOTALL)

# Bytes of values in a call. Larger calls are no faster, and a server keeps at most 256 MiB of unread answers.
_CALL_BYTES = 8 << 20
_MOST_MESSAGE_BYTES = 65 << 20
_SECONDS_BETWEEN_TRIES = 0.1

Floats = npt.NDArray[np.float32]


@dataclasses.dataclass(frozen=True)
class ServerStatus:
    """A server, as it answers.

    Attributes:
        address: at which it was asked.
        server: its index.
        process: "host:pid".
        job: name of its job.
        version: steps that are over; in async transactions. This and what follows is known to members only, else None
            or empty.
        chief: trainer with the duties of the chief; told by server 0.
        dead, done: trainers that have died, or have finished.
        slow: trainers without progress, with their step.
        stopping: somebody has asked for the end of the job.
        failure: why the job has failed; "" if it has not.
    """

    address: str
    server: int
    process: str
    job: str
    version: Optional[int] = None
    chief: Optional[int] = None
    dead: Tuple[int, ...] = ()
    done: Tuple[int, ...] = ()
    slow: Tuple[str, ...] = ()
    stopping: bool = False
    failure: str = ""


@dataclasses.dataclass
class _Server:
    """One server, and this client's session with it."""

    index: int
    address: str
    channel: Any
    session: int = 0  # 0: none
    process: str = ""


class Client:
    """Reads from the servers of a job. Thread-safe.

    Servers let nobody read but their trainers. Without a job the client can therefore do nothing but ask who is there
    (status). With the job it reads as one of the job's trainers, the last unless `trainer` says otherwise, which takes
    no step: it joins and says at once that it is done. So leave one place free: start one trainer fewer than
    distribute.trainers. All clients share that place, one after the other or at once. This has consequences:

    * Only async jobs go on without a trainer. Sync jobs and those with bounded staleness are refused.
    * The other trainers begin when the first client has come, and it must come within deadlines.connect_deadline_s.
    * Nobody trains on the place's share of the data, and statistics of the data (STANDARDIZE, min_count) are refused by
      the trainers. Evaluations leave its share of data.eval out.

    A job of one trainer may be sync: the client then is that trainer, keeps its lease, and close() ends the servers.

    Attributes:
        addresses: of the servers, in order of their index.
        tables: names of the tables with distributed rows, sorted. Empty without a job.
        variables: names of the dense variables on the servers, sorted. Empty without a job.
    """

    def __init__(self, servers: Union[str, Sequence[str]], job: Union[Job, str, "os.PathLike[str]", None] = None, *,
                 trainer: Optional[int] = None, timeout: float = 10.0):
        """Connects to all servers of a job; with a job, joins them.

        Args:
            servers: "host:port" of each server, in order of index as in --pservers; one text may have several, with
                commas.
            job: the job that the servers run, as weir.Job or path of its file; every setting that processes must have
                in common must be equal (`transpile --print=agreement`).
            trainer: id whose place the client takes. Default: the last, distribute.trainers - 1.
            timeout: seconds until an unanswered call fails, repeats included. Also bounds this constructor.

        Raises:
            ClientError: a server does not answer, is another one, or refuses the client; the message has its address.
            JobError: the job is wrong.
            WeirError: the package grpcio is not installed.
        """
        self._grpc = _grpc()
        self.addresses = _addresses(servers)
        self.tables: List[str] = []
        self.variables: List[str] = []
        self._timeout = timeout
        self._closed = False
        self._failure = ""
        self._plan = plan_pb2.Plan()
        self._job = _NO_JOB
        self._trainer = 0
        self._end = threading.Event()
        self._beats: Optional[threading.Thread] = None
        self._servers = [_Server(i, address, self._connect(address)) for i, address in enumerate(self.addresses)]
        try:
            if job is not None:
                self._join(job if isinstance(job, Job) else Job.from_file(job), trainer)
        except BaseException:
            self._leave()
            self._disconnect()
            raise

    def __repr__(self) -> str:
        return f"<Client of {', '.join(self.addresses)}>"

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def status(self) -> List[ServerStatus]:
        """Asks every server who it is, and with a job how far it is.

        Raises:
            ClientError: a server does not answer, or something else listens at its address.
        """
        self._check_open()
        return self._each(self._servers, self._status)

    def rows(self, table: str, ids: npt.ArrayLike) -> Floats:
        """Returns the values of rows, float32 [n, width] for n ids in any order, repeated or not.

        An id without a row reads as the initial values that the row would get; reading makes no row. Rows of different
        servers, and of one, may be of different steps while training goes on.

        Args:
            table: one of `tables`.
            ids: of the table: feature_ids(...) of raw ids of the data.

        Raises:
            NotFoundError: there is no such table. The message names the nearest one.
            ClientError: a server does not answer or refuses.
        """
        self._check_member()
        placed = {each.name: each for each in self._plan.tables}
        if table not in placed:
            if table in self.variables:
                raise NotFoundError(f"'{table}' is a dense variable of the servers: read it with dense('{table}')")
            raise self._not_found("table", table, self.tables)
        wanted = as_ids(ids)
        if wanted.ndim != 1:
            raise ValueError(f"ids have one dimension, got an array of shape {wanted.shape}")
        width, shards = placed[table].width, placed[table].logical_shards
        wire = placed[table].wire.pull
        rows = np.empty((len(wanted), width), np.float32)
        owners = logical_shards(wanted, shards) * len(self._servers) // shards
        most = max(1, _CALL_BYTES // (4 * width + 8))

        def read(server: _Server) -> None:
            mine = np.flatnonzero(owners == server.index)
            for begin in range(0, len(mine), most):
                at = mine[begin:begin + most]
                item = parameter_server_pb2.PullItem(name=table, count=len(at), width=width, offset=0, format=wire)
                payload = wanted[at].astype("<i8").tobytes()
                count = len(at) * width
                values = self._pull(server, item, payload, wire, count, width, f"rows of '{table}'")
                rows[at] = values.reshape(-1, width)

        self._each(self._servers, read)
        return rows

    def dense(self, name: str) -> Floats:
        """Returns a dense variable, float32 of its shape.

        Raises:
            NotFoundError: the servers have no such variable. The message names the nearest one.
            ClientError: a server does not answer or refuses.
        """
        self._check_member()
        blocks = sorted((each for each in self._plan.blocks if each.parameter == name and each.server >= 0),
                        key=lambda block: block.element_begin)
        if not blocks:
            if name in self.tables:
                raise NotFoundError(f"'{name}' is a table: read rows of it with rows('{name}', ids)")
            raise self._not_found("dense variable", name, self.variables)
        values = np.empty(sum(block.element_count for block in blocks), np.float32)
        wire = self._plan.wire.pull
        most = _CALL_BYTES // 4 // DENSE_GROUP * DENSE_GROUP

        def read(server: _Server) -> None:
            for block in blocks:
                if block.server != server.index:
                    continue
                for begin in range(0, block.element_count, most):
                    count = min(most, block.element_count - begin)
                    item = parameter_server_pb2.PullItem(name=block.name, begin=begin, count=count, format=wire)
                    at = block.element_begin + begin
                    values[at:at + count] = self._pull(server, item, b"", wire, count, DENSE_GROUP, f"'{name}'")

        self._each([self._servers[i] for i in sorted({block.server for block in blocks})], read)
        # Blocks are cut between rows.
        return values.reshape([-1, *blocks[0].dims[1:]])

    def close(self) -> None:
        """Ends the connections. The only trainer of a job is then done. A second call does nothing."""
        if self._closed:
            return
        self._closed = True
        self._stop_beats()
        if self._beats is not None:
            self._tell_all("done")
        self._disconnect()

    # Membership.

    def _join(self, job: Job, trainer: Optional[int]) -> None:
        agreement = job._ask("--print=agreement")
        text_format.Parse(job._ask("--print=plan", "--format=textproto"), self._plan)
        plan = self._plan
        if plan.servers_in_trainers or plan.servers == 0:
            raise ClientError(f"job '{plan.job}' has distribute.servers: 0: there are no servers to read from")
        if plan.servers != len(self._servers):
            count = len(self._servers)
            raise ClientError(f"job '{plan.job}' has {plan.servers} servers, and {count} "
                              f"address{' is' if count == 1 else 'es are'} given: {', '.join(self.addresses)}")
        if plan.trainers > 1 and (plan.sync or job.distribute.HasField("bounded_staleness")):
            why = "sync" if plan.sync else "bounded by staleness"
            raise ClientError(f"job '{plan.job}' is {why}: its {plan.trainers} trainers wait for each other, and would "
                              "wait for a client in the place of one; read its checkpoints with weir.Checkpoint, or "
                              "train with distribute.sync=false")
        self._job = plan.job
        self._trainer = plan.trainers - 1 if trainer is None else trainer
        introduction = membership_pb2.JoinRequest(
            plan_fingerprint=hash_bytes(agreement.encode()), plan_text=agreement, build=f"weir {__version__}",
            process=_PROCESS, wire_version=_WIRE_VERSION, incarnation=_INCARNATION)
        if plan.trainers == 1:
            introduction.process = f"{socket.gethostname()}:{os.getpid()}"
            introduction.incarnation = random.SystemRandom().getrandbits(64)
        for server in self._servers:
            self._join_one(server, introduction)
        self.tables = sorted(table.name for table in plan.tables)
        self.variables = sorted({block.parameter for block in plan.blocks if block.server >= 0})
        self._settle(job)

    def _settle(self, job: Job) -> None:
        """Makes the place one that nobody waits for; the only trainer of a job keeps its lease instead."""
        if self._plan.trainers > 1:
            self._each(self._servers, self._say_done)
            return
        every = min(job.deadlines.heartbeat_s, job.deadlines.lease_s / 4)
        self._beats = threading.Thread(target=self._beat, args=(every,), name="weir-client", daemon=True)
        self._beats.start()

    def _say_done(self, server: _Server) -> None:
        request = membership_pb2.HeartbeatRequest(caller=self._caller(server), done=True)
        self._ask(server, "Heartbeat", request, membership_pb2.HeartbeatReply(), "the end")

    def _join_one(self, server: _Server, introduction: membership_pb2.JoinRequest) -> None:
        request = membership_pb2.JoinRequest()
        request.CopyFrom(introduction)
        request.caller.CopyFrom(self._caller(server))
        request.server_index = server.index
        for arithmetic in _ARITHMETICS:
            request.arithmetic = arithmetic
            reply = membership_pb2.JoinReply()
            try:
                self._ask(server, "Join", request, reply, "to join")
            except ClientError as error:
                if " computes with " in str(error) and arithmetic != _ARITHMETICS[-1]:
                    continue
                raise
            break
        if reply.failure:
            raise ClientError(f"server {server.address}: the job has failed: {reply.failure}")
        server.session, server.process = reply.session, reply.process

    def _leave(self) -> None:
        """Gives the places back that this client has taken, as a trainer does that another server has refused."""
        self._closed = True
        self._stop_beats()
        self._tell_all("leave")

    def _tell_all(self, what: str) -> None:
        """Sends a last heart-beat. A server that does not hear it ends this trainer's lease in time."""
        for server in self._servers:
            if server.session:
                request = membership_pb2.HeartbeatRequest(
                    caller=self._caller(server), done=what == "done", leave=what == "leave")
                with contextlib.suppress(ClientError):
                    self._call(server, "Heartbeat", request.SerializeToString(), what, time.monotonic() + 1)

    def _stop_beats(self) -> None:
        self._end.set()
        if self._beats is not None:
            self._beats.join()

    def _beat(self, every: float) -> None:
        """Keeps the lease of every session, and counts as progress: a pull does, even one of nothing."""
        while not self._end.wait(every):
            for server in self._servers:
                with contextlib.suppress(ClientError):  # The next read says so.
                    news = self._heartbeat(server, time.monotonic() + every)
                    if news.failure:
                        self._failure = f"server {server.address}: the job has failed: {news.failure}"
                    self._call(server, "Pull", self._pull_request(server, None, b""), "a sign of life",
                               time.monotonic() + every)

    def _heartbeat(self, server: _Server, deadline: float) -> membership_pb2.HeartbeatReply:
        request = membership_pb2.HeartbeatRequest(caller=self._caller(server))
        reply = membership_pb2.HeartbeatReply()
        self._ask(server, "Heartbeat", request, reply, "a heart-beat", deadline)
        return reply

    def _status(self, server: _Server) -> ServerStatus:
        if not server.session:
            return self._introduced(server)
        news = self._heartbeat(server, time.monotonic() + self._timeout)
        return ServerStatus(
            server.address, server.index, server.process, self._job, news.version,
            news.chief if news.HasField("chief") else None, tuple(news.dead), tuple(news.done), tuple(news.slow),
            news.stop_requested, news.failure)

    def _introduced(self, server: _Server) -> ServerStatus:
        """Learns who a server is from its refusal of a trainer of no job."""
        request = membership_pb2.JoinRequest(process="weir.Client", wire_version=_WIRE_VERSION)
        request.caller.job_id, request.caller.trainer = _NO_JOB, 0
        try:
            self._ask(server, "Join", request, membership_pb2.JoinReply(), "who it is")
        except ClientError as error:
            found = _REFUSAL.search(str(error)) if error.code == "FAILED_PRECONDITION" else None
            if found is None:
                raise
            return ServerStatus(server.address, int(found["index"]), found["process"], found["job"])
        raise ClientError(f"{server.address} lets in a trainer of no job: it is no server of Weir")

    # Calls.

    def _caller(self, server: _Server) -> membership_pb2.Caller:
        return membership_pb2.Caller(job_id=self._job, trainer=self._trainer, session=server.session)

    def _pull_request(self, server: _Server, item: Optional[parameter_server_pb2.PullItem], payload: bytes) -> bytes:
        request = parameter_server_pb2.PullRequest(caller=self._caller(server), version=0)
        if item is not None:
            request.items.add().CopyFrom(item)
        return frame(request.SerializeToString(), payload)

    def _pull(self, server: _Server, item: parameter_server_pb2.PullItem, payload: bytes, wire: int, count: int,
              group: int, what: str) -> Floats:
        """Returns the values that one server has for one item."""
        deadline = time.monotonic() + self._timeout
        size = align(encoded_bytes(wire, count, group))
        for again in (True, False):
            answer = self._call(server, "Pull", self._pull_request(server, item, payload), what, deadline)
            try:
                header, values = open_frame(answer)
                reply = parameter_server_pb2.PullReply()
                reply.ParseFromString(header)
            except message.DecodeError:
                raise ClientError(f"server {server.address}: its answer about {what} is no frame") from None
            if not reply.ready:
                raise ClientError(f"server {server.address}: before it answers about {what}, it waits for "
                                  f"{reply.waiting_for or 'others'}")
            if reply.HasField("checksum") and reply.checksum != hash_bytes(values):
                if again:
                    continue
                raise ClientError(f"server {server.address}: its answer about {what} has another checksum than it says")
            if len(values) != size:
                raise ClientError(f"server {server.address}: its answer about {what} has {len(values)} bytes, expected "
                                  f"{size}")
            return decode(wire, memoryview(values), count, group)
        raise AssertionError

    def _ask(self, server: _Server, method: str, request: message.Message, reply: message.Message, what: str,
             deadline: Optional[float] = None) -> None:
        answer = self._call(server, method, request.SerializeToString(), what, deadline)
        try:
            reply.ParseFromString(answer)
        except message.DecodeError:
            raise ClientError(f"{server.address}: the answer to {method} is no message of Weir") from None

    def _call(self, server: _Server, method: str, request: bytes, what: str, deadline: Optional[float] = None) -> bytes:
        """Makes one call, and repeats it until the deadline where the protocol says that it may be."""
        code = self._grpc.StatusCode
        begin = time.monotonic()
        end = begin + self._timeout if deadline is None else deadline
        call = server.channel.unary_unary(f"/weir.v1.ParameterServer/{method}")
        while True:
            try:
                return bytes(call(request, timeout=max(0.001, end - time.monotonic())))
            except self._grpc.RpcError as error:
                failed: Any = error
            name, details = failed.code().name, str(failed.details() or "")
            if failed.code() in (code.UNAVAILABLE, code.DEADLINE_EXCEEDED):
                if time.monotonic() + _SECONDS_BETWEEN_TRIES < end:
                    time.sleep(_SECONDS_BETWEEN_TRIES)
                    continue
                raise ClientError(f"no answer from server {server.address} within {end - begin:.3g} s, asked for {what}"
                                  f": {details or name}", server.address, name)
            if failed.code() == code.UNIMPLEMENTED:
                raise ClientError(f"{server.address} is no server of Weir: {details or name}", server.address, name)
            raise ClientError(f"server {server.address}: {details or name}", server.address, name)

    def _each(self, servers: Sequence[_Server], do: Callable[[_Server], Any]) -> List[Any]:
        """Does something with several servers at once. Raises the error of the first of them."""
        if len(servers) == 1:
            return [do(servers[0])]
        with ThreadPoolExecutor(len(servers)) as threads:
            return list(threads.map(do, servers))

    def _connect(self, address: str) -> Any:
        return self._grpc.insecure_channel(address, options=[
            ("grpc.max_receive_message_length", _MOST_MESSAGE_BYTES),
            ("grpc.max_send_message_length", _MOST_MESSAGE_BYTES),
            ("grpc.enable_http_proxy", 0),
            ("grpc.use_local_subchannel_pool", 1),
            ("grpc.initial_reconnect_backoff_ms", 100),
            ("grpc.max_reconnect_backoff_ms", 1000),
        ])

    def _disconnect(self) -> None:
        for server in self._servers:
            server.channel.close()

    def _check_open(self) -> None:
        if self._closed:
            raise ClientError("this client has been closed")

    def _check_member(self) -> None:
        self._check_open()
        if self._failure:
            raise ClientError(self._failure)
        if self._job == _NO_JOB:
            raise ClientError(f"servers let only trainers of their job read: weir.Client({self.addresses}, job) joins "
                              "as one; without a job there is status() alone")

    def _not_found(self, kind: str, name: str, known: Sequence[str]) -> NotFoundError:
        return NotFoundError(f"servers {', '.join(self.addresses)} have no {kind} '{name}'{did_you_mean(name, known)}")


def _grpc() -> Any:
    try:
        import grpc
    except ImportError:
        raise WeirError("weir.Client needs the package grpcio, which is not installed: pip install grpcio (on Debian "
                        "apt-get install python3-grpcio)") from None
    return grpc


def _addresses(servers: Union[str, Iterable[str]]) -> List[str]:
    texts = [servers] if isinstance(servers, str) else list(servers)
    addresses = [part.strip() for text in texts for part in text.split(",")]
    for address in addresses:
        if not re.fullmatch(r"(\[[^\[\]]+\]|[^:\s\[\]]+):\d+", address):
            raise ValueError(f"an address of a server is 'host:port', got '{address}'")
    return addresses
