"""Backends: the world of a tick, and every effect, on a server in a dictionary."""
