"""A preprocessor of mdBook: links from the pages of docs to files elsewhere in the repository lead to the code host."""

import json
import posixpath
import re
import sys

HOST = "https://github.com/snowmint/snowmint/blob/main"
LINK = re.compile(r"(\]\()(\.\./[^)#]+)")


def leads_out(page, target):
    """The path in the repository of a link that leaves docs, or None."""
    path = posixpath.normpath(posixpath.join("docs", posixpath.dirname(page), target))
    return None if path.startswith("docs/") else path


def rewrite(page, text):
    def replaced(match):
        path = leads_out(page, match[2])
        return f"{match[1]}{HOST}/{path}" if path else match[0]

    return LINK.sub(replaced, text)


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
