"""Lays out a registry in a folder, with the packages that `cargo package` made and everything in Cargo.lock:
packaging/registry.py TARGET_FOLDER REGISTRY

It stands for crates.io after a release, so that `cargo install snowmint-cli` can be tried before it:
cargo install snowmint-cli --config 'source.crates-io.replace-with="try"' --config 'source.try.local-registry="REGISTRY"'
"""

import hashlib
import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent


def place(name):
    """The file of a crate in an index."""
    name = name.lower()
    if len(name) < 4:
        return Path(str(len(name)), *([name[0]] if len(name) == 3 else []), name)
    return Path(name[:2], name[2:4], name)


def entry(package, content):
    dependencies = [
        {
            "name": it["rename"] or it["name"],
            "package": it["name"] if it["rename"] else None,
            "req": it["req"],
            "features": it["features"],
            "optional": it["optional"],
            "default_features": it["uses_default_features"],
            "target": it["target"],
            "kind": it["kind"] or "normal",
        }
        for it in package["dependencies"]
        # A published crate has no dependencies that are only in this repository.
        if it["req"] != "*" or not it.get("path")
    ]
    return {
        "name": package["name"],
        "vers": package["version"],
        "deps": dependencies,
        "cksum": hashlib.sha256(content).hexdigest(),
        "features": {},
        "features2": package["features"],
        "links": package["links"],
        "yanked": False,
        "v": 2,
    }


def main():
    target, registry = map(Path, sys.argv[1:])
    metadata = json.loads(subprocess.check_output(["cargo", "metadata", "--locked", "--format-version", "1", "--all-features"], cwd=ROOT))
    index = {}
    registry.mkdir(parents=True)
    for package in metadata["packages"]:
        file = f"{package['name']}-{package['version']}.crate"
        if package["source"] is None:
            crate = target / "package" / file
            if not crate.is_file():
                continue
        else:
            # registry/src/SOURCE/CRATE/Cargo.toml was unpacked from registry/cache/SOURCE/CRATE.crate.
            folder = Path(package["manifest_path"]).parent
            crate = folder.parents[2] / "cache" / folder.parent.name / file
        content = crate.read_bytes()
        (registry / file).write_bytes(content)
        index.setdefault(package["name"], []).append(json.dumps(entry(package, content)))
    for name, lines in index.items():
        file = registry / "index" / place(name)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("\n".join(lines) + "\n")
    print(f"{len(index)} crates")


main()
