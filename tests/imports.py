#!/usr/bin/env python3
"""Fails if modules that stand side by side import each other in a circle: those at the top of a crate, or those of one folder.

A reader of one file in a circle has to know all of them. A module and those below it may import each other: they are one idea.
Test modules do not count. A name that `lib.rs` hands on counts for its own module: `crate::Store` is an import of `store`.
"""

import re
import sys
from pathlib import Path

USE = re.compile(r"^(pub(?:\([a-z]+\))? )?use ([a-z_0-9]+::[^;]+);", re.M)
HANDED_ON = re.compile(r"^ *pub(?:\([a-z]+\))? use (?:self::|crate::)?([a-z_0-9]+::[^;]+);", re.M)
PATH = re.compile(r"\b(crate(?:::[A-Za-z_0-9]+)+)")
TESTS = re.compile(r"^#\[cfg\((?:all\()?test\b.*\]\nmod ", re.M)

Module = tuple[str, ...]


def leaves(tree: str) -> list[list[str]]:
    """Returns the paths of a tree of imports: `a::{b, c::d}` has `a::b` and `a::c::d`."""
    head, brace, rest = tree.partition("{")
    if not brace:
        return [[name.strip() for name in re.sub(r" as \w+", "", tree).split("::")]]
    first = [name for name in head.split("::") if name.strip()]
    parts, depth, part = [], 0, ""
    for character in rest[: rest.rindex("}")] + ",":
        depth += {"{": 1, "}": -1}.get(character, 0)
        if character == "," and depth == 0:
            parts += [part.strip()] if part.strip() else []
            part = ""
        else:
            part += character
    return [first + path for part in parts for path in leaves(part)]


class Crate:
    """The modules of a crate, and those that each imports."""

    def __init__(self, source: Path) -> None:
        files = [path for path in source.rglob("*.rs") if path.name != "tests.rs" and path.stem != "main"]
        self.files: dict[Module, Path] = {self.module(path.relative_to(source)): path for path in files}
        texts = {module: re.sub(r"//.*", "", TESTS.split(path.read_text())[0]) for module, path in self.files.items()}
        self.handed_on: dict[str, Module] = {}
        for path in (path for tree in HANDED_ON.findall(texts.get((), "")) for path in leaves(tree)):
            self.handed_on[path[-1]] = self.resolve((), path) or ()
        self.imports: dict[Module, set[Module]] = {}
        for module, text in texts.items():
            paths = [path for _, tree in USE.findall(text) for path in leaves(tree)]
            paths += [path.split("::") for path in PATH.findall(text)]
            self.imports[module] = {target for path in paths if (target := self.resolve(module, path)) is not None}

    @staticmethod
    def module(path: Path) -> Module:
        return () if path.name == "lib.rs" else path.with_suffix("").parts

    def resolve(self, module: Module, path: list[str]) -> Module | None:
        """Returns the module that a path in another one leads to; `None` if it leads out of the crate."""
        names = list(path)
        if names[0] == "crate":
            at: Module = ()
            names.pop(0)
        elif names[0] in ("self", "super"):
            at = module
            while names and names[0] in ("self", "super"):
                at = at if names.pop(0) == "self" else at[:-1]
        elif (*module, names[0]) in self.files:
            at = module
        else:
            return None
        for name in names:
            if (*at, name) in self.files:
                at = (*at, name)
            else:
                return self.handed_on.get(name, at) if at == () else at
        return at

    def circles(self) -> list[list[tuple[Path, str]]]:
        """Returns the circles among the modules that stand side by side: each import as its file and the module it names."""
        beside: dict[Module, dict[str, dict[str, Path]]] = {}
        for module, targets in self.imports.items():
            for target in targets:
                same = next((i for i, (a, b) in enumerate(zip(module, target)) if a != b), None)
                if same is not None:
                    found = beside.setdefault(module[:same], {}).setdefault(module[same], {})
                    found.setdefault(target[same], self.files[module])
        return [
            [(of[module][name], name) for module, name in zip(way, [*way[1:], way[0]])]
            for of in beside.values()
            if (way := circle(of))
        ]


def circle(of: dict[str, dict[str, Path]]) -> list[str]:
    """Returns the modules of one circle, or none."""
    done: set[str] = set()

    def walk(module: str, way: list[str]) -> list[str]:
        if module in way:
            return way[way.index(module) :]
        if module not in done:
            for name in sorted(of.get(module, {})):
                if found := walk(name, [*way, module]):
                    return found
            done.add(module)
        return []

    return next((found for module in sorted(of) if (found := walk(module, []))), [])


def main() -> int:
    failed = 0
    for source in sorted(Path("crates").glob("*/src")):
        for way in Crate(source).circles():
            failed = 1
            print(f"{source}: modules import each other in a circle:", file=sys.stderr)
            for path, name in way:
                print(f"  {path.relative_to(source)} imports {name}", file=sys.stderr)
    return failed


if __name__ == "__main__":
    sys.exit(main())
