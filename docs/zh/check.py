#!/usr/bin/env python3
"""Compares the Chinese pages with their English sources, and docs/llms.txt with the book.

A page fails if

- its code blocks, with the comments before them, are not those of its source, which the checks run;
- its sections are not those of its source: other levels of headings, or other numbers of table rows or list items;
- a link leads to an English page that has a Chinese one;
- Chinese text has ASCII punctuation, or no space between Chinese and Latin letters or digits;
- bold text shows its asterisks, as in `**节点。**每个`: Markdown wants a space there, or the punctuation outside;
- a paragraph has several lines: a reader would see a space at each line break.

docs/llms.txt fails unless it has every page of docs/SUMMARY.md once, each with a description, and no link without a file.

Pages whose source changed since they were translated are reported only. `docs/zh/check.py --translated PAGE...` records that
these pages, such as docs/zh/concepts.md, are up to date.
"""

import hashlib
import json
import pathlib
import re
import sys
import unicodedata

ZH = pathlib.Path(__file__).resolve().parent
ROOT = ZH.parent.parent
RECORD = ZH / "sources.json"
LLMS = ROOT / "docs/llms.txt"
# Where llms.txt finds the pages as Markdown: the site has them as HTML.
RAW = "https://raw.githubusercontent.com/snowmint/snowmint/main/"

HAN = "[\u4e00-\u9fff]"
# What is no text: code, addresses and the targets of links. A letter stands for it, so that its neighbours are checked too.
NO_TEXT = re.compile(r"`[^`]*`|<[^>]*>")
TARGET = re.compile(r"\]\([^)]*\)")
MIXED = {
    "ASCII punctuation in Chinese text": re.compile(
        rf"{HAN}[*\]]*[,.;:?!()]|(?:[,;:?()]|!(?!\[))[*\[]*{HAN}|[A-Za-z][,;:?!][A-Za-z0-9]|[0-9][,;:?!][A-Za-z]|[,;] "
    ),
    "no space between Chinese and Latin": re.compile(rf"{HAN}[\[\]*]*[A-Za-z0-9]|[A-Za-z0-9][\[\]*]*{HAN}"),
}


def source_of(page):
    inner = page.relative_to(ZH)
    return ROOT / "README.md" if inner == pathlib.Path("README.md") else ROOT / "docs" / inner


def parts(path):
    """The code blocks of a page, each after its comment and without the indentation of its list, and the lines of its text with
    their numbers."""
    blocks, text, block, indent, before = [], [], None, "", ""
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        fence = re.match(r"( *)```", line)
        if fence and block is None:
            block, indent = [before] if before.startswith("<!--") else [], fence[1]
            block.append(line.strip())
        elif fence:
            blocks.append("\n".join(block))
            block, before = None, ""
        elif block is not None:
            block.append(line.removeprefix(indent))
        else:
            text.append((number, line))
            before = line.strip() or before
    return blocks, text


def sections(text):
    """Each heading with its line, its level, and the numbers of table rows and list items below it."""
    found = []
    for number, line in text:
        if re.match("#+ ", line):
            found.append([f"line {number}: {line}", {"level": line.index(" "), "table rows": 0, "list items": 0}])
        elif found:
            found[-1][1]["table rows"] += bool(re.match(r" *\|", line))
            found[-1][1]["list items"] += bool(re.match(r" *([-*]|\d+\.) ", line))
    return found


def fault_of_sections(page, source):
    """What the first section that differs from that of the source has more or less, if there is one."""
    for (line, ours), (original, theirs) in zip(page, source):
        for what in ours:
            if ours[what] != theirs[what]:
                return f"{line}\nhas {what} {ours[what]}, its source {theirs[what]}, {original}"
    if len(page) != len(source):
        return f"the page has {len(page)} headings, its source {len(source)}"
    return None


def chinese_page_of(target):
    """The Chinese page of an English one, if there is one."""
    return next((page for page in ZH.rglob("*.md") if source_of(page) == target), None)


def is_punctuation(letter):
    return unicodedata.category(letter)[0] in "PS"


def asterisks_that_show(text):
    """The `**` that CommonMark takes for text: between punctuation inside and a letter outside, or beside a space inside."""
    for number, found in enumerate(re.finditer(r"\*\*", text)):
        before, after = text[found.start() - 1 : found.start()] or " ", text[found.end() : found.end() + 1] or " "
        inside, outside = (before, after) if number % 2 else (after, before)
        if inside.isspace() or is_punctuation(inside) and not (outside.isspace() or is_punctuation(outside)):
            yield found


def faults_of_text(page, text):
    before = {number + 1: line for number, line in text}
    for number, line in text:
        continues = re.match(r" *(?!\d+\. )[^-|#<! ]", line) and re.match(" *[^|#< ]", before.get(number, ""))
        if continues:
            yield f"{number}: continues a paragraph: write it as one line"
        for target in re.findall(r"\]\(([^)#]+\.md)", line):
            chinese = chinese_page_of((page.parent / target).resolve())
            if chinese and not target.startswith("http"):
                yield f"{number}: the link to {target} leads to an English page; the Chinese one is {chinese.relative_to(ROOT)}"
        if re.search(HAN, line):
            plain = TARGET.sub("]", NO_TEXT.sub("x", line))
            for name, pattern in MIXED.items():
                for found in pattern.finditer(plain):
                    yield f"{number}: {name}: …{plain[max(0, found.start() - 8):found.end() + 8]}…"
        # Code counts as its backquotes here, which are punctuation.
        plain = NO_TEXT.sub("`", line)
        for found in asterisks_that_show(plain):
            yield f"{number}: bold text shows its asterisks: …{plain[max(0, found.start() - 8):found.end() + 8]}…"


def faults_of_llms():
    """What llms.txt lacks of the form of llmstxt.org, and of the pages that the book has."""
    text = LLMS.read_text(encoding="utf-8")
    if not re.match(r"# .+\n\n> .+\n", text):
        yield "begins without a title and a summary"
    linked = []
    for number, line in enumerate(text.splitlines(), 1):
        for target in re.findall(r"\]\(([^)]+)\)", line):
            path = target.removeprefix(RAW)
            linked.append(path)
            if path == target or not (ROOT / path).is_file():
                yield f"{number}: {target} is no file under {RAW}"
            if not re.match(r"- \[[^]]+\]\([^)]+\): .+", line):
                yield f"{number}: a link needs a description: `- [NAME]({RAW}PATH): DESCRIPTION`"
    pages = re.findall(r"\]\(([^)]+\.md)\)", (ROOT / "docs/SUMMARY.md").read_text(encoding="utf-8"))
    for page in (f"docs/{page}" for page in pages if page != "README.md"):
        if linked.count(page) != 1:
            yield f"has {page} {linked.count(page)} times instead of once"


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
        (ours, text), (theirs, original) = parts(page), parts(source)
        if ours != theirs:
            odd = [block for block in ours if block not in theirs] or ["(order or number of the blocks)"]
            print(f"{name}: code blocks differ from {source.relative_to(ROOT)}; the first:\n{odd[0]}")
            wrong = True
        if fault := fault_of_sections(sections(text), sections(original)):
            print(f"{name}: sections differ from {source.relative_to(ROOT)}: {fault}")
            wrong = True
        for fault in faults_of_text(page, text):
            print(f"{name}:{fault}")
            wrong = True
        if record.get(name) != digest(source):
            print(f"{name}: behind {source.relative_to(ROOT)}, which changed since the translation")
    for fault in faults_of_llms():
        print(f"{LLMS.relative_to(ROOT)}: {fault}")
        wrong = True
    for name in sorted(set(record) - {str(page.relative_to(ROOT)) for page in pages}):
        print(f"{RECORD.relative_to(ROOT)}: there is no page {name}")
        wrong = True
    sys.exit(wrong)


main()
