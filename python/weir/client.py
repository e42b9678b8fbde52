"""Rows and dense parameters of running servers, read over gRPC (docs/wire.md, "Readers").

    with weir.Client(["10.0.0.1:6170", "10.0.0.2:6170"]) as client:
        client.status()                                             # versions, trainers, failures
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
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable, Iterable, List, Optional, Sequence, Tuple, Union

import numpy as np
import numpy.typing as npt
from google.protobuf import message

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
_WIRE_VERSION = 4
# Version of the rules by which the plan places blocks and rows (transpiler/passes/slice_variables.cc).
_SCHEME_VERSION = 1
# Caller.trainer of a reader. A server that knows trainers only refuses it, by this name.
_READER = -1
_TRAINERS_ONLY = f"trainer {_READER} ("

# Bytes of values in a call. Larger calls are no faster, and a server keeps at most 16 MiB of unread answers.
_CALL_BYTES = 8 << 20
_MOST_MESSAGE_BYTES = 65 << 20
_SECONDS_BETWEEN_TRIES = 0.1
# Part of the time left that a server may wait before it says for what: the answer must come in time, too.
_PART_TO_WAIT = 0.75

Floats = npt.NDArray[np.float32]


@dataclasses.dataclass(frozen=True)
class ServerStatus:
    """A server, as it answers.

    Attributes:
        address: at which it was asked.
        server: its index.
        process: "host:pid".
        job: name of its job.
        version: steps that are over; in async transactions.
        chief: trainer with the duties of the chief; told by server 0, else None.
        dead, done: trainers that have died, or have finished.
        slow: trainers without progress, with their step.
        stopping: somebody has asked for the end of the job.
        failure: why the job has failed; "" if it has not.
    """

    address: str
    server: int
    process: str
    job: str
    version: int
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
    """Reads from the servers of a running job. Thread-safe.

    A client takes no part in the job: nobody waits for it, and no bit of the training depends on it. It may come before
    the trainers and while they train, in every mode. Servers let at most 64 clients read at once; close() makes room
    for others.

    Attributes:
        addresses: of the servers, in order of their index.
        tables: names of the tables with distributed rows, sorted.
        variables: names of the dense variables on the servers, sorted.
    """

    def __init__(self, servers: Union[str, Sequence[str]], job: Union[Job, str, "os.PathLike[str]", None] = None, *,
                 timeout: float = 10.0):
        """Joins all servers of a job, which tell what they have.

        Args:
            servers: "host:port" of each server, in order of index as in --pservers; one text may have several, with
                commas. In a job with distribute.servers 0 they are those of the trainers.
            job: the job that the servers must run, as weir.Job or path of its file: every setting that processes must
                have in common must be equal (`transpile --print=agreement`). Default: any.
            timeout: seconds until an unanswered call fails, repeats included. Also bounds this constructor.

        Raises:
            ClientError: a server does not answer, is another one, or refuses the client; the message has its address.
            JobError: the job is wrong.
            WeirError: the package grpcio is not installed.
        """
        self._grpc = _grpc()
        self.addresses = _addresses(servers)
        self._timeout = timeout
        self._closed = False
        self._introduction = _introduction(None if job is None else job if isinstance(job, Job) else Job.from_file(job))
        self._servers = [_Server(i, address, self._connect(address)) for i, address in enumerate(self.addresses)]
        try:
            self._plan = self._join()
        except BaseException:
            self.close()
            raise
        self.tables: List[str] = sorted(table.name for table in self._plan.tables)
        self.variables: List[str] = sorted({block.parameter for block in self._plan.blocks if block.server >= 0})

    def __repr__(self) -> str:
        return f"<Client of {', '.join(self.addresses)}>"

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def status(self) -> List[ServerStatus]:
        """Asks every server how far it is.

        Raises:
            ClientError: a server does not answer.
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
        self._check_open()
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
        self._check_open()
        blocks = sorted((each for each in self._plan.blocks if each.parameter == name and each.server >= 0),
                        key=lambda block: block.element_begin)
        if not blocks:
            if name in self.tables:
                raise NotFoundError(f"'{name}' is a table: read rows of it with rows('{name}', ids)")
            if any(each.parameter == name for each in self._plan.blocks):
                raise NotFoundError(f"'{name}' is on every trainer of job '{self._plan.job}' (distribute.dense: "
                                    "ALL_REDUCE), and not on its servers: read it from a checkpoint")
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
        """Ends the connections. A second call does nothing."""
        if self._closed:
            return
        self._closed = True
        for server in self._servers:
            if server.session:  # A server that does not hear it ends the session in time.
                request = membership_pb2.HeartbeatRequest(caller=self._caller(server), leave=True)
                with contextlib.suppress(ClientError):
                    self._call(server, "Heartbeat", request.SerializeToString(), "the end", time.monotonic() + 1)
            server.channel.close()

    # Membership.

    def _join(self) -> plan_pb2.Plan:
        """Joins all servers, and returns the plan of their job."""
        deadline = time.monotonic() + self._timeout
        plans: List[plan_pb2.Plan] = self._each(self._servers, lambda server: self._join_one(server, deadline))
        for address, plan in zip(self.addresses, plans):
            if plan.scheme_version != _SCHEME_VERSION:
                raise ClientError(f"server {address} places rows by the rules of version {plan.scheme_version}; this "
                                  f"package knows version {_SCHEME_VERSION}", address)
            if plan != plans[0]:
                raise ClientError(f"server {address} runs another job than server {self.addresses[0]}: '{plan.job}' "
                                  f"and '{plans[0].job}', with other plans", address)
        plan = plans[0]
        if plan.servers != len(self._servers):
            count, where = len(self._servers), " in its trainers" if plan.servers_in_trainers else ""
            raise ClientError(f"job '{plan.job}' has {plan.servers} servers{where}, and {count} "
                              f"address{' is' if count == 1 else 'es are'} given: {', '.join(self.addresses)}")
        return plan

    def _join_one(self, server: _Server, deadline: float) -> plan_pb2.Plan:
        request = membership_pb2.JoinRequest(server_index=server.index)
        request.MergeFrom(self._introduction)
        reply = membership_pb2.JoinReply()
        try:
            self._ask(server, "Join", request, reply, "leave to read", deadline)
        except ClientError as error:
            if _TRAINERS_ONLY not in str(error):
                raise
            raise ClientError(f"server {server.address} is of a build that lets nobody read but trainers: "
                              f"{error}", server.address, error.code) from None
        if reply.HasField("failure"):
            raise ClientError(f"server {server.address}: the job has failed: {_printable(reply.failure.message)}",
                              server.address)
        plan = plan_pb2.Plan()
        try:
            plan.ParseFromString(reply.plan)
        except message.DecodeError:
            pass
        if not reply.session or not plan.servers:
            raise ClientError(f"{server.address}: the answer to Join has no plan of a job", server.address)
        server.session, server.process = reply.session, _printable(reply.process)
        return plan

    def _join_again(self, server: _Server, deadline: float) -> None:
        """Joins a server that has forgotten this client: for its silence, or because it is a new process."""
        plan = self._join_one(server, deadline)
        if plan != self._plan:
            raise ClientError(f"server {server.address} runs another job than before: '{plan.job}', with another plan",
                              server.address)

    def _status(self, server: _Server) -> ServerStatus:
        def request() -> bytes:
            return membership_pb2.HeartbeatRequest(caller=self._caller(server)).SerializeToString()

        answer = self._call_as_reader(server, "Heartbeat", request, "its state", time.monotonic() + self._timeout)
        news = membership_pb2.HeartbeatReply()
        self._parse(server, "Heartbeat", answer, news)
        return ServerStatus(
            server.address, server.index, server.process, self._plan.job, news.version,
            news.chief if news.HasField("chief") else None, tuple(news.dead), tuple(news.done),
            tuple(_printable(text) for text in news.slow), news.stop_requested, _printable(news.failure.message))

    # Calls.

    def _caller(self, server: _Server) -> membership_pb2.Caller:
        return membership_pb2.Caller(trainer=_READER, session=server.session)

    def _pull(self, server: _Server, item: parameter_server_pb2.PullItem, payload: bytes, wire: int, count: int,
              group: int, what: str) -> Floats:
        """Returns the values that one server has for one item."""
        deadline = time.monotonic() + self._timeout
        size = align(encoded_bytes(wire, count, group))

        def request() -> bytes:
            wait = max(0.0, deadline - time.monotonic()) * _PART_TO_WAIT
            pull = parameter_server_pb2.PullRequest(caller=self._caller(server), version=0, wait_s=wait, items=[item])
            return frame(pull.SerializeToString(), payload)

        damaged = False
        while True:
            answer = self._call_as_reader(server, "Pull", request, what, deadline)
            try:
                header, values = open_frame(answer)
                reply = parameter_server_pb2.PullReply()
                reply.ParseFromString(header)
            except message.DecodeError:
                raise ClientError(f"server {server.address}: its answer about {what} is no frame") from None
            if not reply.ready:
                if time.monotonic() + _SECONDS_BETWEEN_TRIES < deadline:
                    continue
                raise ClientError(f"server {server.address}: before it answers about {what}, it waits for "
                                  f"{_printable(reply.waiting_for) or 'others'}")
            if reply.HasField("checksum") and reply.checksum != hash_bytes(values):
                if not damaged:
                    damaged = True
                    continue
                raise ClientError(f"server {server.address}: its answer about {what} has another checksum than it says")
            if len(values) != size:
                raise ClientError(f"server {server.address}: its answer about {what} has {len(values)} bytes, expected "
                                  f"{size}")
            return decode(wire, memoryview(values), count, group)

    def _ask(self, server: _Server, method: str, request: message.Message, reply: message.Message, what: str,
             deadline: float) -> None:
        self._parse(server, method, self._call(server, method, request.SerializeToString(), what, deadline), reply)

    @staticmethod
    def _parse(server: _Server, method: str, answer: bytes, reply: message.Message) -> None:
        try:
            reply.ParseFromString(answer)
        except message.DecodeError:
            raise ClientError(f"{server.address}: the answer to {method} is no message of Weir") from None

    def _call_as_reader(self, server: _Server, method: str, request: Callable[[], bytes], what: str,
                        deadline: float) -> bytes:
        """Makes a call of this client's session; `request` makes the message. Joins again if the session has ended."""
        try:
            return self._call(server, method, request(), what, deadline)
        except ClientError as error:
            if error.code != "FAILED_PRECONDITION":
                raise
        self._join_again(server, deadline)
        return self._call(server, method, request(), what, deadline)

    def _call(self, server: _Server, method: str, request: bytes, what: str, end: float) -> bytes:
        """Makes one call, and repeats it until `end` where the protocol says that it may be."""
        code = self._grpc.StatusCode
        call = server.channel.unary_unary(f"/weir.v1.ParameterServer/{method}")
        while True:
            try:
                return bytes(call(request, timeout=max(0.001, end - time.monotonic())))
            except self._grpc.RpcError as error:
                failed: Any = error
            name, details = failed.code().name, _printable(failed.details() or "")
            # A server that ends cancels the calls under way.
            if failed.code() in (code.UNAVAILABLE, code.DEADLINE_EXCEEDED, code.CANCELLED):
                if time.monotonic() + _SECONDS_BETWEEN_TRIES < end:
                    time.sleep(_SECONDS_BETWEEN_TRIES)
                    continue
                raise ClientError(f"no answer from server {server.address} within {self._timeout:g} s, asked for {what}"
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
            # Between two tries to connect gRPC asks for the name's addresses again, by default every 30 s.
            ("grpc.dns_min_time_between_resolutions_ms", 100),
        ])

    def _check_open(self) -> None:
        if self._closed:
            raise ClientError("this client has been closed")

    def _not_found(self, kind: str, name: str, known: Sequence[str]) -> NotFoundError:
        return NotFoundError(f"servers {', '.join(self.addresses)} have no {kind} '{name}'{did_you_mean(name, known)}")


def _printable(text: str) -> str:
    """Returns a text of a server with \\xNN in place of what a terminal acts on: whoever has the address may answer."""
    return "".join(c if c.isprintable() else "".join(f"\\x{byte:02x}" for byte in c.encode("utf-8", "surrogateescape"))
                   for c in text)


def _introduction(job: Optional[Job]) -> membership_pb2.JoinRequest:
    """Returns what a reader says of itself to every server."""
    request = membership_pb2.JoinRequest(
        reader=True, build=f"weir {__version__}", process=f"{socket.gethostname()}:{os.getpid()}",
        wire_version=_WIRE_VERSION, incarnation=random.SystemRandom().getrandbits(64))
    request.caller.trainer = _READER
    if job is not None:
        request.plan_text = job._ask("--print=agreement")
        request.plan_fingerprint = hash_bytes(request.plan_text.encode())
    return request


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
