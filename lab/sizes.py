"""The sizes the house holds: no file over 500 lines, no function over 80, median file at most 150. Exits 1 naming what is over."""

from __future__ import annotations

import ast
import statistics
import sys
from pathlib import Path

FILE_MAX, FUNCTION_MAX, FILE_MEDIAN = 500, 80, 150


def main(root: str = "rollout") -> int:
    """Measure every Python file under `root`; print a line, or what is over."""
    over, sizes, functions = [], [], []
    for path in sorted(Path(root).rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        lines = text.count("\n")
        if lines > 1:
            sizes.append(lines)
        if lines > FILE_MAX:
            over.append(f"{path}: {lines} lines, at most {FILE_MAX}")
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                length = (node.end_lineno or node.lineno) - node.lineno + 1
                functions.append(length)
                if length > FUNCTION_MAX:
                    over.append(f"{path}:{node.lineno}: {node.name} has {length} lines, at most {FUNCTION_MAX}")
    median = statistics.median(sizes)
    if median > FILE_MEDIAN:
        over.append(f"the median file has {median:.0f} lines, at most {FILE_MEDIAN}")
    print("\n".join(over) or f"sizes: {len(sizes)} files, median {median:.0f}, largest {max(sizes)}, longest function {max(functions)}")
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main())
