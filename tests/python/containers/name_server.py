"""The name server of a network of containers: a name is there while its container runs, as with Docker.

    python3 name_server.py ADDRESS LOG

Lines of standard input say what is there from now on: "NAME ADDRESS", or "NAME" for one that is gone. Each is answered
by an empty line. Ends with its input. Each question is a line of LOG: the name, its address or "none", the client.
"""

from __future__ import annotations

import ipaddress
import select
import socket
import struct
import sys

A, IN, NO_SUCH_NAME = 1, 1, 3


def reply_to(query: bytes, addresses: dict[str, str]) -> tuple[bytes, str]:
    """Returns the reply to a query of one name, and the name: its IPv4 address, or that there is none."""
    end, labels = 12, []
    while query[end]:
        labels.append(query[end + 1:end + 1 + query[end]].decode())
        end += 1 + query[end]
    name = ".".join(labels)
    kind, = struct.unpack_from("!H", query, end + 1)
    question = query[12:end + 5]
    address = addresses.get(name)
    answers = b""
    if address and kind == A:
        # 0xc00c: the name of the question. The answer is good for one second.
        answers = struct.pack("!HHHIH", 0xc00c, A, IN, 1, 4) + ipaddress.IPv4Address(address).packed
    # A reply of an authority that recurses.
    flags = 0x8580 | (0 if address else NO_SUCH_NAME)
    return query[:2] + struct.pack("!HHHHH", flags, 1, bool(answers), 0, 0) + question + answers, name


def main() -> None:
    address, log = sys.argv[1:]
    addresses: dict[str, str] = {}
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    server.bind((address, 53))
    print("ready", flush=True)
    with open(log, "w", buffering=1) as asked:
        while True:
            ready, _, _ = select.select([server, sys.stdin], [], [])
            if server in ready:
                query, client = server.recvfrom(4096)
                reply, name = reply_to(query, addresses)
                print(name, addresses.get(name, "none"), client[0], file=asked)
                server.sendto(reply, client)
            if sys.stdin in ready:
                line = sys.stdin.readline()
                if not line:
                    return
                name, _, value = line.strip().partition(" ")
                if value:
                    addresses[name] = value
                else:
                    addresses.pop(name, None)
                print(flush=True)


if __name__ == "__main__":
    main()
