"""The page and the picture of the architecture are true: same rooms, same arrows, same layers as the code and the linter have."""

from __future__ import annotations

import configparser
import re
from collections import defaultdict
from pathlib import Path
from xml.etree import ElementTree

import grimp
import pytest

ROOT = Path(__file__).parents[2]
FREE = {"cli", "testing"}
"""rooms that may import anything; the picture leaves their arrows out"""
GROUND = {"plan", "errors", "clock", "settings"}
"""rooms that anybody above may import; the picture leaves arrows to them out"""
OUTSIDE = {"settings", "testing"}
"""rooms that stand in no layer: one imports nothing, the other is imported by nothing but the demo command"""


@pytest.fixture(scope="module")
def rooms() -> set[str]:
    """Packages and modules directly under `rollout/`."""
    folder = ROOT / "rollout"
    return {
        p.stem for p in folder.iterdir() if (p.is_dir() and (p / "__init__.py").exists()) or (p.suffix == ".py" and p.stem != "__init__")
    }


@pytest.fixture(scope="module")
def imports(rooms: set[str]) -> dict[str, set[str]]:
    """Room -> rooms it imports, as the code says."""
    graph, found = grimp.build_graph("rollout", cache_dir=None), defaultdict(set)
    for module in graph.modules:
        for imported in graph.find_modules_directly_imported_by(module):
            one, other = (name.split(".")[1] if "." in name else name for name in (module, imported))
            if one != other and {one, other} <= rooms:
                found[one].add(other)
    return found


@pytest.fixture(scope="module")
def linter() -> configparser.ConfigParser:
    read = configparser.ConfigParser()
    read.read(ROOT / ".importlinter", "utf-8")
    return read


@pytest.fixture(scope="module")
def picture() -> list[ElementTree.Element]:
    return list(ElementTree.parse(ROOT / "docs" / "architecture.svg").getroot().iter())


@pytest.fixture(scope="module")
def table() -> dict[str, str]:
    """Room -> its `imports` cell on the page."""
    page = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    return {m[1]: m[2] for m in re.finditer(r"^\| `(\w+)` \| [^|]+ \| ([^|]+) \| [^|]+ \|$", page, re.MULTILINE)}


def _words(text: str) -> list[str]:
    return re.findall(r"[\w.]+", text)


def test_the_layers_of_the_linter_are_the_rooms_of_the_code(rooms: set[str], linter: configparser.ConfigParser) -> None:
    layers = set(_words(linter["importlinter:contract:layers"]["layers"]))
    assert layers == rooms - OUTSIDE


def test_the_page_names_every_room_and_what_it_imports(rooms: set[str], imports: dict[str, set[str]], table: dict[str, str]) -> None:
    assert set(table) == rooms
    said = {room: set(_words(cell)) - {"nothing"} for room, cell in table.items() if room not in FREE}
    assert said == {room: imports[room] for room in rooms - FREE}


def test_the_picture_shows_every_room_and_no_arrow_that_is_not_there(
    rooms: set[str], imports: dict[str, set[str]], picture: list[ElementTree.Element]
) -> None:
    assert {e.get("data-room") for e in picture if e.get("data-room")} == rooms
    drawn = {(e.get("data-from"), e.get("data-to")) for e in picture if e.get("data-from")}
    assert drawn == {(one, other) for one in rooms - FREE for other in imports[one] - GROUND if one not in GROUND}


def test_what_the_picture_paints_as_pure_is_what_the_linter_keeps_pure(
    linter: configparser.ConfigParser, picture: list[ElementTree.Element]
) -> None:
    pure = {name.removeprefix("rollout.") for name in _words(linter["importlinter:contract:pure"]["source_modules"])}
    assert {e.get("data-room") for e in picture if e.get("data-kind") == "pure"} == pure


def test_an_arrow_ends_at_the_room_it_names(picture: list[ElementTree.Element]) -> None:
    """Within 3 pixels, so that the drawing says what its names say."""
    boxes = {g.get("data-room"): next(e for e in g if e.tag.endswith("rect")) for g in picture if g.get("data-room")}
    for arrow in (e for e in picture if e.get("data-from")):
        numbers = [float(n) for n in re.findall(r"[\d.]+", arrow.get("d") or "")]
        for room, (x, y) in ((arrow.get("data-from"), numbers[:2]), (arrow.get("data-to"), numbers[-2:])):
            left, top, width, height = (float(boxes[room].get(k) or 0) for k in ("x", "y", "width", "height"))
            assert left - 3 <= x <= left + width + 3, (room, x)
            assert top - 3 <= y <= top + height + 3, (room, y)
