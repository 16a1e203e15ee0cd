"""What the objects that a GPUStack server renders say about one request: which route, which targets, with which weights. Pure.

2.3 carries exact weights in a rule of its load-balancing plugin; 2.2 (and 2.3 with that plugin off) carries the whole percents of
the Ingress annotation. Both are read the way the gateway reads them.
"""

from __future__ import annotations

import hashlib
import random
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

Json = Any
PATHS = {
    "ingresses": "/apis/networking.k8s.io/v1/namespaces/{ns}/ingresses",
    "mcpbridges": "/apis/networking.higress.io/v1/namespaces/{ns}/mcpbridges",
    "wasmplugins": "/apis/extensions.higress.io/v1alpha1/namespaces/{ns}/wasmplugins",
    "envoyfilters": "/apis/networking.istio.io/v1alpha3/namespaces/{ns}/envoyfilters",
}
HEADER = "exact-match-header-"
MODEL_HEADER = "x-higress-llm-model"
FALLBACK_HEADER = "x-higress-fallback-from"


@dataclass(frozen=True)
class Candidate:
    """One instance of a target. `weight`: exact in mode `lb`, percent in mode `percent`; `model`: the deployment's name."""

    service: str
    weight: int
    model: str | None

    def shown(self) -> dict[str, Json]:
        """As JSON; `model_id` is in the service's name (`model-<model>-<instance>.static`)."""
        ids = re.match(r"model-(\d+)-(\d+)", self.service)
        return {"service": self.service, "weight": self.weight, "model": self.model, "model_id": int(ids[1]) if ids else None}


@dataclass
class Rendered:
    """All objects by kind and name, kept up to date by whoever watches them."""

    objects: dict[str, dict[str, Json]] = field(default_factory=lambda: {kind: {} for kind in PATHS})

    def annotations(self, ingress: str) -> dict[str, str]:
        return dict((self.objects["ingresses"].get(ingress) or {"metadata": {}})["metadata"].get("annotations") or {})

    def plugin(self, name: str) -> dict[str, Json]:
        """A plugin's default configuration; {} when it is not there."""
        spec = (self.objects["wasmplugins"].get(name) or {}).get("spec") or {}
        return dict(spec.get("defaultConfig") or {})

    def rules(self, name: str) -> list[dict[str, Json]]:
        """A plugin's rules for single routes."""
        spec = (self.objects["wasmplugins"].get(name) or {}).get("spec") or {}
        return list(spec.get("matchRules") or [])

    def address(self, service: str) -> str | None:
        """Host and port behind `name.type`; None when it is not registered."""
        spec = (self.objects["mcpbridges"].get("default") or {}).get("spec") or {}
        for row in spec.get("registries") or []:
            if f"{row['name']}.{row['type']}" == service:
                return str(row["domain"] if row["type"] == "static" else f"{row['domain']}:{row['port']}")
        return None

    def model_ingresses(self) -> Iterator[str]:
        """Those that stand for a model route."""
        return (name for name in self.objects["ingresses"] if any(HEADER in key for key in self.annotations(name)))

    def anchor(self) -> str | None:
        """The service that gets whatever no model route takes: the server itself."""
        for name in self.objects["ingresses"]:
            notes = self.annotations(name)
            if not any(HEADER in key for key in notes):
                return notes.get("higress.io/destination", "").rpartition(":")[0] or None
        return None

    def match(self, path: str, headers: Mapping[str, str]) -> tuple[str, str] | None:
        """(ingress, path towards the instance); the one with the most header conditions wins."""
        best: tuple[int, str, str] | None = None
        for name in self.model_ingresses():
            notes = self.annotations(name)
            need = {key.split(HEADER, 1)[1]: value for key, value in notes.items() if HEADER in key}
            if any(headers.get(key) != value for key, value in need.items()):
                continue
            found = next((m for p in self._paths(name) if (m := re.fullmatch(p, path, re.IGNORECASE))), None)
            if found is not None and (best is None or len(need) > best[0]):
                best = (len(need), name, _rewritten(notes.get("higress.io/rewrite-target"), found, path))
        return best[1:] if best else None

    def _paths(self, ingress: str) -> Iterator[str]:
        for rule in self.objects["ingresses"][ingress]["spec"]["rules"]:
            for entry in rule["http"]["paths"]:
                exact = entry.get("pathType") == "ImplementationSpecific"
                yield entry["path"] if exact else re.escape(entry["path"]) + ".*"

    def shares(self, ingress: str) -> tuple[str, list[Candidate]]:
        """(`lb` or `percent`, the instances that get requests)."""
        if f"gpustack-lb-{ingress}" in self.objects["envoyfilters"]:
            rule: dict[str, Json] = next(
                (r["config"] for r in self._own("gpustack-model-mapper", ingress) if "candidates" in r["config"]), {}
            )
            names = rule.get("modelMappers") or {}
            return "lb", [self._exact(c, names) for c in sorted(rule.get("candidates") or [], key=lambda c: str(c["cluster"]))]
        lines = self.annotations(ingress).get("higress.io/destination", "").splitlines()
        return "percent", [c for c in (self._percent(ingress, line) for line in lines) if c is not None]

    def _own(self, plugin: str, ingress: str) -> list[dict[str, Json]]:
        return [rule for rule in self.rules(plugin) if ingress in (rule.get("ingress") or [])]

    @staticmethod
    def _exact(row: Mapping[str, Json], names: Mapping[str, Json]) -> Candidate:
        model = (names.get(str(row.get("targetId"))) or {}).get("*") or row.get("modelName")
        return Candidate(row["cluster"].split("|")[3], int(row.get("weight") or 0), model)

    def _percent(self, ingress: str, line: str) -> Candidate | None:
        found = re.fullmatch(r"(?:(\d+)% )?(\S+?)(?::\d+)?", line.strip())
        if not found:
            return None
        rules = [r for r in self._own("gpustack-model-mapper", ingress) if found[2] in (r.get("service") or [])]
        mapping: dict[str, str] = next((r["config"]["modelMapping"] for r in rules if "modelMapping" in r["config"]), {})
        return Candidate(found[2], int(found[1] or 100), next(iter(mapping.values()), None))

    def falls_back(self, ingress: str) -> bool:
        """A second try on a fallback target is configured."""
        return ingress in self.objects["envoyfilters"]

    def model_of(self, path: str, body: Json, asked: str | None) -> str | None:
        """The route that a request names: in its header, its path (`/model/proxy/<id>`), or its body."""
        if asked:
            return asked
        router = self.plugin("gpustack-model-router")
        prefix = router.get("prefix", "/model/proxy/")
        if path.startswith(prefix):
            return (router.get("aliasNameMapping") or {}).get(path.removeprefix(prefix).partition("/")[0])
        if isinstance(body, dict) and any(path.endswith(suffix) for suffix in router.get("enableOnPathSuffix") or []):
            return str(body.get("model") or "")
        return None

    def authorization(self) -> tuple[str, dict[str, str]] | None:
        """(URL that says whether a caller may, headers to send along); None when nothing asks."""
        config = self.plugin("gpustack-llm-ext-auth")
        rules = config.get("_rules_") or [{}]
        said = config.get("authz") or rules[0].get("http_service") or {}
        endpoint = said.get("endpoint") or {}
        address = self.address(endpoint.get("service_name", ""))
        return (
            (f"http://{address}{endpoint['path']}", (said.get("authorization_request") or {}).get("headers_to_add") or {})
            if address
            else None
        )

    def credential(self, service: str) -> str | None:
        """The token that the gateway shows to an instance's worker."""
        active = next(
            (r["config"].get("activeProviderId") for r in self.rules("gpustack-ai-proxy") if service in (r.get("service") or [])), None
        )
        providers = self.plugin("gpustack-ai-proxy").get("providers") or []
        found = next((p for p in providers if p["id"] == active), None)
        return next(iter(found.get("apiTokens") or []), None) if found else None


def pick(mode: str, candidates: list[Candidate], request_id: str) -> Candidate | None:
    """The instance of one request: by the hash of its id over exact weights, by chance over percents, by turns without weights."""
    if not candidates:
        return None
    total = sum(c.weight for c in candidates)
    if total == 0:
        return random.choice(candidates)
    digest = hashlib.blake2b(request_id.encode(), digest_size=8).digest()
    at = int.from_bytes(digest, "big") % total if mode == "lb" else random.randrange(total)
    for candidate in candidates:
        at -= candidate.weight
        if at < 0:
            return candidate
    return None


def _rewritten(target: str | None, found: re.Match[str], path: str) -> str:
    if not target:
        return path
    groups = found.re.groups
    return re.sub(r"\$(\d)", lambda g: (found.group(int(g[1])) or "") if int(g[1]) <= groups else "", target)
