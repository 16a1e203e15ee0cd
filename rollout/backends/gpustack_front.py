"""Whether a gateway stands at the inference URL: what the plan says, else what answers there. Reads only; no key is sent.

The management API does not tell its gateway mode. Envoy names itself in every answer; the server's own proxy does not. An answer
from another address that shows neither (a proxy of the site in between) leaves the question open.
"""

from __future__ import annotations

from collections.abc import Mapping

from rollout.clients.http import Http
from rollout.errors import Unreachable

ENVOY = "envoy"


class Front:
    """What stands at one inference URL."""

    def __init__(self, http: Http, *, apart: bool, said: str = "auto") -> None:
        """`apart`: it is another address than the management URL's. `said`: the plan's word, auto | enabled | disabled."""
        self._http, self._apart, self._said = http, apart, said

    async def gateway(self) -> bool | None:
        """True, False, or None when nobody answers there or the answer does not tell."""
        if self._said != "auto":
            return self._said == "enabled"
        try:
            headers = await self._http.headers("/version")
        except Unreachable:
            return None
        if _envoy(headers):
            return True
        return None if self._apart else False

    async def aclose(self) -> None:
        """Closes its connections."""
        await self._http.aclose()


def _envoy(headers: Mapping[str, str]) -> bool:
    return ENVOY in headers.get("server", "").lower() or any(name.lower().startswith("x-envoy-") for name in headers)
