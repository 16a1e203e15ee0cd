"""The objects of a small Kubernetes API: kept in memory, versioned, watched. Knows no HTTP and no kind in particular.

Optimistic locking is kept, since the server relies on it: a write with an old `resourceVersion` is a conflict.
"""

from __future__ import annotations

import asyncio
import copy
import time
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]
KINDS = {
    "configmaps": "ConfigMap",
    "envoyfilters": "EnvoyFilter",
    "ingressclasses": "IngressClass",
    "ingresses": "Ingress",
    "mcpbridges": "McpBridge",
    "namespaces": "Namespace",
    "secrets": "Secret",
    "wasmplugins": "WasmPlugin",
}
"""what a client that leaves `kind` out means"""


@dataclass(frozen=True)
class Key:
    """Where an object lives: `networking.k8s.io/v1`, `ingresses`, namespace or None, name."""

    version: str
    resource: str
    namespace: str | None
    name: str


class Conflict(Exception):
    """The object is there already, or has been changed since it was read."""


class Objects:
    """All objects, and every change in the order in which it was made."""

    def __init__(self) -> None:
        self.version = 100
        self._all: dict[Key, Json] = {}
        self._events: list[tuple[str, Key, Json]] = []
        self._news = asyncio.Condition()

    def get(self, key: Key) -> Json | None:
        """The object as it is; None when there is none."""
        return self._all.get(key)

    def listed(self, version: str, resource: str, namespace: str | None, selector: str) -> list[Json]:
        """Objects of one kind, of one namespace or of all, with these labels (`a=b,c`)."""
        found = [o for k, o in self._all.items() if (k.version, k.resource) == (version, resource) and namespace in (None, k.namespace)]
        return [o for o in found if selected(o, selector)]

    async def create(self, key: Key, body: Json) -> Json:
        """Raises Conflict when the name is taken."""
        if key in self._all:
            raise Conflict(f'{key.resource} "{key.name}" already exists')
        return await self._write(key, body, "ADDED")

    async def replace(self, key: Key, body: Json) -> Json:
        """Raises Conflict when `body` was made from an older version."""
        sent = (body.get("metadata") or {}).get("resourceVersion")
        if sent and sent != self._all[key]["metadata"]["resourceVersion"]:
            raise Conflict(f'Operation cannot be fulfilled on {key.resource} "{key.name}": the object has been modified')
        return await self._write(key, body, "MODIFIED")

    async def delete(self, key: Key) -> Json:
        gone = self._all.pop(key)
        self.version += 1
        gone["metadata"]["resourceVersion"] = str(self.version)
        await self._tell("DELETED", key, gone)
        return gone

    async def watch(self, version: str, resource: str, namespace: str | None) -> AsyncIterator[tuple[str, Json]]:
        """(event type, object): what exists now, then every change, for ever."""
        for existing in self.listed(version, resource, namespace, ""):
            yield "ADDED", copy.deepcopy(existing)
        position = len(self._events)
        while True:
            async with self._news:
                while len(self._events) <= position:
                    await self._news.wait()
            for kind, key, obj in self._events[position:]:
                if (key.version, key.resource) == (version, resource) and namespace in (None, key.namespace):
                    yield kind, obj
            position = len(self._events)

    async def _write(self, key: Key, body: Json, kind: str) -> Json:
        self.version += 1
        old, meta = self._all.get(key), body.setdefault("metadata", {})
        kept = (
            old["metadata"] if old else {"uid": str(uuid.uuid4()), "creationTimestamp": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}
        )
        meta |= {"name": key.name, "resourceVersion": str(self.version), **{k: kept[k] for k in ("uid", "creationTimestamp")}}
        if key.namespace:
            meta["namespace"] = key.namespace
        body |= {"apiVersion": key.version, "kind": body.get("kind") or KINDS.get(key.resource, "Unknown")}
        self._all[key] = body
        await self._tell(kind, key, body)
        return body

    async def _tell(self, kind: str, key: Key, obj: Json) -> None:
        self._events.append((kind, key, copy.deepcopy(obj)))
        async with self._news:
            self._news.notify_all()


def selected(obj: Json, selector: str) -> bool:
    """Whether an object's labels satisfy `key=value` and `key` terms, separated by commas."""
    labels = obj["metadata"].get("labels") or {}
    for term in filter(None, selector.split(",")):
        key, equals, value = term.replace("==", "=").partition("=")
        if labels.get(key) != value if equals else key not in labels:
            return False
    return True


def seeds(namespace: str, ingress_class: str) -> dict[Key, Json]:
    """What must be there before the server starts; without any of these it ends with an error."""
    higress = "downstream:\n  idleTimeout: 180\nupstream:\n  idleTimeout: 10\n"
    return {
        Key("networking.k8s.io/v1", "ingressclasses", None, ingress_class): {"spec": {"controller": "higress.io/higress-controller"}},
        Key("v1", "namespaces", None, namespace): {},
        Key("v1", "configmaps", namespace, "higress-config"): {"data": {"higress": higress, "mesh": "{}\n"}},
    }
