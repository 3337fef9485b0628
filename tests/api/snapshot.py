#!/usr/bin/env python3
"""Lists the public interface of a crate, from the pages that rustdoc wrote for it: snapshot.py target/doc/CRATE.

One line for each item, method and trait implementation. What is hidden from the documentation is not listed, nor what
every type has (auto traits and blanket implementations).
"""

import sys
from html.parser import HTMLParser
from pathlib import Path

KINDS = {"struct", "enum", "union", "trait", "fn", "macro", "constant", "static", "type", "traitalias", "attr", "derive"}
# Declarations of traits hold their methods already; the rest is the same for every type.
SKIPPED = {"synthetic-implementations", "blanket-implementations", "required-methods", "provided-methods", "implementors",
           "foreign-impls", "dyn-compatibility", "required-associated-types", "required-associated-consts",
           "provided-associated-consts", "provided-associated-types", "synthetic-implementors"}
VOID = {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"}


class Page(HTMLParser):
    """Collects declarations, and the headers of implementations and methods."""

    def __init__(self):
        super().__init__()
        self.lines, self.section, self.depth, self.taken, self.text, self.indent = [], "", 0, None, [], ""

    def handle_starttag(self, tag, attributes):
        attributes = {name: value or "" for name, value in attributes}
        classes = attributes.get("class", "").split()
        if tag == "h2" and "id" in attributes:
            self.section = attributes["id"]
        if tag not in VOID:
            self.depth += 1
        if self.taken is not None or self.section in SKIPPED:
            return
        declared = tag == "pre" and "item-decl" in classes
        header = tag in ("h3", "h4") and "code-header" in classes
        reexport = tag == "dt" and attributes.get("id", "").startswith("reexport.")
        # The methods of a trait are listed by the trait.
        if declared or reexport or header and (tag == "h3" or self.section == "implementations"):
            self.taken, self.text, self.indent = self.depth, [], "    " if tag == "h4" else ""

    def handle_endtag(self, tag):
        if tag in VOID:
            return
        if self.taken == self.depth:
            line = " ".join("".join(self.text).split())
            self.lines.append(self.indent + line)
            self.taken = None
        self.depth -= 1

    def handle_data(self, data):
        if self.taken is not None:
            self.text.append(data)


def read(path):
    page = Page()
    page.feed(path.read_text(encoding="utf-8"))
    return page.lines


def main(folder):
    for path in sorted(folder.rglob("*.html")):
        module = "::".join((folder.name, *path.relative_to(folder).parts[:-1]))
        kind, _, rest = path.name.partition(".")
        lines = [line for line in read(path) if "StructuralPartialEq" not in line]
        # A page without a declaration leads to another one.
        if kind in KINDS and lines:
            print(f"{module}::{rest.removesuffix('.html')}")
        elif path.name == "index.html":
            print(f"mod {module}")
        else:
            continue
        for line in lines:
            print(f"    {line}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
