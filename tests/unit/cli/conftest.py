"""Makes the fake desk available to every test of the command line."""

from tests.unit.cli.fakes import desk

__all__ = ["desk"]
