#!/usr/bin/env python3
"""Fails if the top-level modules of a crate import each other in a circle.

A reader of one file in a circle has to know all of them. Modules below one parent may import each other: they are one idea.
Test modules do not count. A name that `lib.rs` hands on counts for its own module: `crate::Store` is an import of `store`.
"""

import re
import sys
from pathlib import Path

USE = re.compile(r"^(?:pub(?:\([a-z]+\))? )?use (crate|super)::([^;]+);", re.M)
HANDED_ON = re.compile(r"^ *pub(?:\([a-z]+\))? use (?:self::|crate::)?([a-z_0-9]+)::([^;]+);", re.M)
PATH = re.compile(r"\bcrate::([A-Za-z_0-9]+)")
TESTS = re.compile(r"^#\[cfg\((?:all\()?test\b.*\]\nmod ", re.M)


def tops(tree: str) -> list[str]:
    """Returns the first names of a tree of imports: `a::b` has `a`, `{a, b::c}` has `a` and `b`."""
    if not tree.startswith("{"):
        return [tree.split("::")[0].split(" ")[0].strip()]
    names, depth, name = [], 0, ""
    for character in tree[1 : tree.rindex("}")] + ",":
        depth += {"{": 1, "}": -1}.get(character, 0)
        if character == "," and depth == 0:
            names.append(name.strip().split("::")[0])
            name = ""
        else:
            name += character
    return names


def handed_on(source: Path) -> dict[str, str]:
    """Returns for each name that `lib.rs` re-exports the top-level module it comes from."""
    library = source / "lib.rs"
    text = re.sub(r"//.*", "", library.read_text()) if library.exists() else ""
    return {name: module for module, tree in HANDED_ON.findall(text) for name in re.findall(r"\w+", tree)}


def imports(source: Path) -> dict[str, dict[str, str]]:
    """Returns for each top-level module those that it imports, each with a file that does."""
    files = [path for path in source.rglob("*.rs") if path.name not in ("lib.rs", "main.rs", "tests.rs")]
    origin = handed_on(source)
    found: dict[str, dict[str, str]] = {path.stem: {} for path in files if path.parent == source}
    for path in files:
        inside = path.relative_to(source)
        module = inside.parts[0].removesuffix(".rs")
        text = re.sub(r"//.*", "", TESTS.split(path.read_text())[0])
        names = {name for root, tree in USE.findall(text) if root == "crate" or len(inside.parts) == 1 for name in tops(tree)}
        names = {origin.get(name, name) for name in names | set(PATH.findall(text))}
        for name in names & found.keys() - {module}:
            found.setdefault(module, {}).setdefault(name, str(inside))
    return found


def circle(of: dict[str, dict[str, str]]) -> list[str]:
    """Returns the modules of one circle, or none."""
    done: set[str] = set()

    def walk(module: str, way: list[str]) -> list[str]:
        if module in way:
            return way[way.index(module) :]
        if module not in done:
            for name in sorted(of[module]):
                if found := walk(name, [*way, module]):
                    return found
            done.add(module)
        return []

    return next((found for module in sorted(of) if (found := walk(module, []))), [])


def main() -> int:
    failed = 0
    for source in sorted(Path("crates").glob("*/src")):
        modules = imports(source)
        if way := circle(modules):
            failed = 1
            print(f"{source}: modules import each other in a circle:", file=sys.stderr)
            for module, name in zip(way, [*way[1:], way[0]]):
                print(f"  {modules[module][name]} imports {name}", file=sys.stderr)
    return failed


if __name__ == "__main__":
    sys.exit(main())
