"""Choosing a port, and asking a broker whether it serves."""

import random
import socket
import struct

LOOPBACK = "127.0.0.1"
_ANSWER_TIMEOUT_S = 2.0

# Below the ports that the kernel gives to outgoing connections: a client that keeps calling a dead broker on such a
# port may by chance be given that very port, is then connected to itself, and the broker cannot come back.
_PORTS = range(15_000, 32_000)

# Holds what `free_port` has given out, until this process ends.
_given_out: list[socket.socket] = []

_METADATA, _VERSION, _CORRELATION_ID, _NO_TOPICS = 3, 1, 7, 0


def free_port() -> int:
    """A TCP port of the loopback address that no process listens on now and that this call alone has been given.

    What will listen there takes seconds to start, and until then the port looks free to other processes. So this
    process keeps the UDP port of the same number for as long as it lives: no later call, here or in another process,
    gets that one. Raises OSError when none is found.
    """
    for port in random.sample(_PORTS, 50):
        if _is_mine(port) and is_free(port):
            return port
    raise OSError(f"no free port among 50 tried in {_PORTS}")


def _is_mine(port: int) -> bool:
    reservation = socket.socket(type=socket.SOCK_DGRAM)
    try:
        reservation.bind((LOOPBACK, port))
    except OSError:
        reservation.close()
        return False
    _given_out.append(reservation)
    return True


def is_free(port: int) -> bool:
    """Whether no process listens on `port` of the loopback address now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True


def serves(port: int) -> bool:
    """Whether a Kafka broker on `port` answers a Metadata request and counts itself among the live brokers."""
    try:
        with socket.create_connection((LOOPBACK, port), _ANSWER_TIMEOUT_S) as connection:
            connection.sendall(_metadata_request())
            return _live_brokers(connection) > 0
    except (OSError, struct.error):
        return False


def _metadata_request() -> bytes:
    client = b"local-broker"
    header = struct.pack(f">hhih{len(client)}s", _METADATA, _VERSION, _CORRELATION_ID, len(client), client)
    body = struct.pack(">i", _NO_TOPICS)
    return struct.pack(">i", len(header) + len(body)) + header + body


def _live_brokers(connection: socket.socket) -> int:
    """The answer starts with its size, the correlation id and the number of brokers. struct.error if cut short."""
    with connection.makefile("rb") as answer:
        _size, _correlation_id, brokers = struct.unpack(">iii", answer.read(12))
    return int(brokers)
