"""What the documents say is there: links, commands, options, make targets, plans, libraries; and no page is left out of an index."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import grimp
import pytest

from rollout.cli.lazy import load
from rollout.cli.verbs import VERBS
from rollout.plan.load import parse_plan

ROOT = Path(__file__).parents[2]
GENERATED = {"cli.md", "plan.md", "exit-codes.md"}
"""pages written from the code have tests of their own"""
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "examples").rglob("*.md"))]
WRITTEN = [page for page in PAGES if page.name not in GENERATED]
SHELL = ("sh", "text", "yaml")
SHIPPED_AS = {"yaml": "pyyaml", "prometheus_client": "prometheus-client", "pydantic_core": "pydantic-core"}
"""import name -> the name it is installed by, where they differ"""


def _named(page: Path) -> str:
    return str(page.relative_to(ROOT))


def _blocks(page: Path, *kinds: str) -> Iterator[str]:
    """The fenced blocks of a page, indentation taken off."""
    for match in re.finditer(r"^( *)```(\w+)\n(.*?)^ *```", page.read_text("utf-8"), re.MULTILINE | re.DOTALL):
        if match[2] in kinds:
            yield re.sub(rf"^{match[1]}", "", match[3], flags=re.MULTILINE)


def _anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    heads = re.findall(r"^#+ (.+)$", page.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


def _commands(page: Path) -> Iterator[str]:
    """Every call of `rollout` that a page shows: in a line of a block, or as inline code."""
    text = page.read_text("utf-8")
    for block in _blocks(page, *SHELL):
        yield from re.findall(r"(?:^|\$ |- |  |; )(rollout [a-z][^\n#|;>]*)", block, re.MULTILINE)
    yield from re.findall(r"`(rollout [a-z][^`\n]*)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL))


@pytest.mark.parametrize("page", PAGES, ids=_named)
def test_every_link_leads_somewhere(page: Path) -> None:
    for _, link in re.findall(r"\[([^\]]*)\]\(([^)\s]+)\)", page.read_text("utf-8")):
        place, _, anchor = link.partition("#")
        if place.startswith("http"):
            continue
        target = (page.parent / place).resolve() if place else page
        assert target.exists(), link
        assert not anchor or anchor in _anchors(target), link


@pytest.mark.parametrize("page", WRITTEN, ids=_named)
def test_every_command_exists_with_its_options(page: Path) -> None:
    for line in _commands(page):
        verb = line.split()[1]
        if verb not in VERBS:
            assert not re.match(r"rollout [a-z]+( --| ID|$)", line), f"no such verb: {line}"
            continue
        known = {name for param in load(verb).params for name in (*param.opts, *param.secondary_opts)} | {"--help"}
        said = set(re.findall(r"(?<=\s)--[a-z][a-z-]*", line.partition("`")[0]))
        assert said <= known, f"{line}: {said - known}"


@pytest.mark.parametrize("page", WRITTEN, ids=_named)
def test_every_plan_on_a_page_is_valid(page: Path) -> None:
    for number, block in enumerate(_blocks(page, "yaml")):
        if "apiVersion: rollout/" in block:
            parse_plan(block, f"{page.name}#{number}")


@pytest.mark.parametrize("page", WRITTEN, ids=_named)
def test_every_make_target_exists(page: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    said = re.findall(r"(?:^|`)make ([a-z-]+)", page.read_text("utf-8"), re.MULTILINE)
    assert set(said) <= targets


@pytest.mark.parametrize("page", WRITTEN, ids=_named)
def test_a_page_has_one_title_and_readable_lines(page: Path) -> None:
    lines = page.read_text("utf-8").splitlines()
    assert lines[0].startswith("# ")
    assert not any(line.rstrip() != line for line in lines)


@pytest.mark.parametrize("index", ["docs", "docs/decisions", "examples"])
def test_an_index_names_every_page_beside_it(index: str) -> None:
    folder = ROOT / index
    text = (folder / "README.md").read_text("utf-8")
    inner = "decisions" if index == "docs" else ""
    pages = [p.relative_to(folder) for p in folder.rglob("*.md") if p.parent.name != inner and p != folder / "README.md"]
    assert [str(page) for page in pages if f"({page})" not in text] == []


def test_every_library_has_a_line_of_reason() -> None:
    graph = grimp.build_graph("rollout", include_external_packages=True, cache_dir=None)
    outside = {name.split(".")[0] for name in graph.modules if not name.startswith("rollout")} - set(sys.stdlib_module_names)
    page = (ROOT / "docs" / "decisions" / "0003-dependencies.md").read_text("utf-8")
    assert [name for name in sorted(outside) if f"`{SHIPPED_AS.get(name, name)}`" not in page] == []


def test_the_readme_begins_with_what_it_is_what_it_looks_like_and_two_commands() -> None:
    text = (ROOT / "README.md").read_text("utf-8")
    assert text.index("```text") < text.index("make demo") < text.index("make test") < text.index("apiVersion:")
    assert len(text.splitlines()) <= 100
