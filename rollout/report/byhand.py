"""A way back as a script for bash and curl, and as JSON. Keys stay references: they are read from two variables when it runs. Pure."""

from __future__ import annotations

import json
import shlex
from datetime import datetime
from typing import Any

from rollout.domain.byhand import INFERENCE, ByHand, WayBack
from rollout.plan.model import GPUStack, SecretRef

Json = Any
VARIABLES = {"management": "ROLLOUT_MANAGEMENT_KEY", INFERENCE: "ROLLOUT_INFERENCE_KEY"}
PROXY_LIMIT = 1800
"""seconds after which the server's proxy has ended any request"""


def script(way: WayBack, at: GPUStack, now: datetime) -> str:
    """The script. `curl` gets each key through a file descriptor, so it stands in no process list."""
    head = f"""#!/usr/bin/env bash
# The way back of rollout {way.rollout} on route {way.route} of {at.server}, by hand.
# Printed {now:%Y-%m-%d %H:%M:%S} UTC with the ids of that moment: print it again if the rollout went on since.
# First stop whoever ticks the rollout. Each line may be run alone, in this order; stop where one fails.
set -euo pipefail
{_export("management", at.management_key)}
{_export(INFERENCE, at.inference_key)}
"""
    if not way.calls:
        return f"{head}\necho 'nothing to undo: the route is as it was found'\n"
    steps = (f"\necho {shlex.quote(f'{number}. {_said(call)}')}\n{_line(call, at)}\n" for number, call in enumerate(way.calls, 1))
    return head + "".join(steps)


def _said(call: ByHand) -> str:
    """What a step says when it runs: whoever started the script sees no other sign of it."""
    return f"{call.why}; first it waits for streams that may still run (DRAIN_SECONDS)" if call.pause else call.why


def as_json(way: WayBack, at: GPUStack, now: datetime) -> dict[str, Json]:
    """The same for a program: every call with its URL, and which key it takes."""
    calls = [
        {
            "why": c.why,
            "method": c.method,
            "url": _url(c, at),
            "body": c.body,
            "key": VARIABLES[c.key],
            "until": c.until,
            "until_absent": c.never,
            "within": c.within if c.until else None,
            "wait_for_streams": c.pause,
        }
        for c in way.calls
    ]
    return {"rollout": way.rollout, "route": way.route, "server": at.server, "printed": now.isoformat(), "calls": calls}


def line(call: ByHand, at: GPUStack) -> str:
    """One call alone."""
    return _curl(call, at)


def _export(kind: str, ref: SecretRef) -> str:
    name = VARIABLES[kind]
    if ref.env == name:
        return f': "${{{name}:?the {kind} key}}"'
    value = f'"${ref.env}"' if ref.env is not None else f'"$(head -n 1 {shlex.quote(ref.file or "")})"'
    return f"export {name}={value}"


def _url(call: ByHand, at: GPUStack) -> str:
    base = (at.inference or at.server) if call.key == INFERENCE else at.server
    return base.rstrip("/") + call.path


def _curl(call: ByHand, at: GPUStack) -> str:
    key = f'-H @<(echo "Authorization: Bearer ${VARIABLES[call.key]}")'
    body = "" if call.body is None else f" -H 'Content-Type: application/json' -d {shlex.quote(json.dumps(call.body, ensure_ascii=False))}"
    return f"curl -fsS -m 60 -X {call.method} {key}{body} {shlex.quote(_url(call, at))}"


def _line(call: ByHand, at: GPUStack) -> str:
    pause = (
        f'sleep "${{DRAIN_SECONDS:-{PROXY_LIMIT}}}"  # streams may run that long; less only if you know that none does\n'
        if call.pause
        else ""
    )
    if call.until is None:
        return f"{pause}{_curl(call, at)} -o /dev/null"
    silent = " 2>/dev/null" if call.key == INFERENCE else ""
    shows = f"grep -E {shlex.quote(call.until)} >/dev/null"  # not -q: that would close the pipe on curl
    test = f"{_curl(call, at)}{silent} | {f'{{ ! {shows}; }}' if call.never else shows}"
    stop = f"echo {shlex.quote(f'not so after {call.within} s: {call.why}. Stop here')} >&2; exit 13"
    return f'{pause}for i in $(seq {call.within}); do {test} && break; [ "$i" -lt {call.within} ] || {{ {stop}; }}; sleep 1; done'
