"""A preprocessor of mdBook. Links to files outside docs lead to the code host, and links to a README.md to the
index.html that mdBook makes of it.
"""

import json
import posixpath
import re
import sys

HOST = "https://github.com/snowmint/snowmint/blob/main"
OUT = re.compile(r"(\]\()(\.\./[^)#]+)")
INDEX = re.compile(r"(\]\((?:(?!\w+://)[^)#]*/)?)README\.md(?=[)#])")


def leads_out(page, target):
    """The path in the repository of a link that leaves docs, or None."""
    path = posixpath.normpath(posixpath.join("docs", posixpath.dirname(page), target))
    return None if path.startswith("docs/") else path


def rewrite(page, text):
    def replaced(match):
        path = leads_out(page, match[2])
        return f"{match[1]}{HOST}/{path}" if path else match[0]

    return INDEX.sub(r"\1index.md", OUT.sub(replaced, text))


def chapters(items):
    for item in items:
        if isinstance(item, dict) and "Chapter" in item:
            yield item["Chapter"]
            yield from chapters(item["Chapter"]["sub_items"])


if __name__ == "__main__":
    # `book.py supports RENDERER` asks whether it can be used.
    if sys.argv[1:2] == ["supports"]:
        sys.exit(0)
    _, book = json.load(sys.stdin)
    for chapter in chapters(book.get("items", book.get("sections", []))):
        if chapter["path"]:
            chapter["content"] = rewrite(chapter["path"], chapter["content"])
    json.dump(book, sys.stdout)
