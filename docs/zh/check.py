#!/usr/bin/env python3
"""Compares the Chinese pages with their English sources.

The code blocks of a page have to be those of its source, which the checks run: otherwise this fails. Pages whose source
changed since they were translated are reported only. `docs/zh/check.py --translated PAGE...` records that these pages, such
as docs/zh/concepts.md, are up to date.
"""

import hashlib
import json
import pathlib
import re
import sys

ZH = pathlib.Path(__file__).resolve().parent
ROOT = ZH.parent.parent
RECORD = ZH / "sources.json"


def source_of(page):
    inner = page.relative_to(ZH)
    return ROOT / "README.md" if inner == pathlib.Path("README.md") else ROOT / "docs" / inner


def blocks(path):
    """The code blocks of a page, each without the indentation of its list."""
    found, block, indent = [], None, ""
    for line in path.read_text(encoding="utf-8").splitlines():
        fence = re.match(r"( *)```", line)
        if fence and block is None:
            block, indent = [line.strip()], fence[1]
        elif fence:
            found.append("\n".join(block))
            block = None
        elif block is not None:
            block.append(line.removeprefix(indent))
    return found


def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def main():
    pages = sorted(ZH.rglob("*.md"))
    record = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    if sys.argv[1:2] == ["--translated"]:
        for page in (pathlib.Path(name).resolve() for name in sys.argv[2:]):
            record[str(page.relative_to(ROOT))] = digest(source_of(page))
        RECORD.write_text(json.dumps(record, indent=1, sort_keys=True) + "\n")

    wrong = False
    for page in pages:
        name, source = str(page.relative_to(ROOT)), source_of(page)
        if not source.is_file():
            print(f"{name}: its source {source.relative_to(ROOT)} is gone: move or remove the page")
            wrong = True
            continue
        if blocks(page) != blocks(source):
            theirs = blocks(source)
            odd = [block for block in blocks(page) if block not in theirs] or ["(order or number of the blocks)"]
            print(f"{name}: code blocks differ from {source.relative_to(ROOT)}; the first:\n{odd[0]}")
            wrong = True
        if record.get(name) != digest(source):
            print(f"{name}: behind {source.relative_to(ROOT)}, which changed since the translation")
    for name in sorted(set(record) - {str(page.relative_to(ROOT)) for page in pages}):
        print(f"{RECORD.relative_to(ROOT)}: there is no page {name}")
        wrong = True
    sys.exit(wrong)


main()
