"""The shell of these tests."""

from tests.integration.badinput.said import shell

__all__ = ["shell"]
