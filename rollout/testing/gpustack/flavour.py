"""In what the versions differ, as data: the handlers ask here and know no version themselves."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Flavour:
    """One version of the server, gateway disabled."""

    version: str
    commit: str
    balances: bool
    """all weights positive or none; `lb_mode`, `plugins`, `max_running_requests` and a deployment's `state` exist; the server owns keys
    of a route's meta"""
    deletes_targets: bool
    """`DELETE` of one target works; 2.2.3 says of every target that it does not exist"""
    gap_status: int
    gap: str
    """what a request gets while its route has no active target"""


FLAVOURS = {
    one.version: one
    for one in (
        Flavour("2.3.0", "63a03ba", True, True, 503, "No running instances available"),
        Flavour("2.2.3", "1cfcbbf", False, False, 404, "Model not found or no running instances available"),
    )
}
DEFAULT = "2.3.0"
