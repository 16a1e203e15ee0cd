"""Backends over real sockets, on the sandbox and its faults."""
