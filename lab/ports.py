"""Free TCP ports on loopback, outside the kernel's range for outgoing connections, so that a port stays free until it is used."""

from __future__ import annotations

import random
import socket
from collections.abc import Iterator

HOST = "127.0.0.1"
FIRST, LAST = 20000, 31999  # below the usual ip_local_port_range (32768-60999)


def free_ports(count: int) -> list[int]:
    """`count` different ports nobody listens on. Held until all are chosen, so none comes twice."""
    held: list[socket.socket] = []
    ports: list[int] = []
    try:
        for port in _candidates():
            sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            try:
                sock.bind((HOST, port))
            except OSError:
                sock.close()
                continue
            held.append(sock)
            ports.append(port)
            if len(ports) == count:
                break
    finally:
        for sock in held:
            sock.close()
    return ports


def _candidates() -> Iterator[int]:
    # A generator of its own: a test that seeds the shared one must not give two labs the same ports.
    order = list(range(FIRST, LAST + 1))
    random.SystemRandom().shuffle(order)
    return iter(order)
