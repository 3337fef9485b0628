"""Writes the bill of materials of the `snowmint` binary: CycloneDX 1.6, from Cargo's own resolution.

packaging/sbom.py [TARGET] >snowmint.cdx.json lists each crate that is linked into the binary or runs in its build, with version,
licence, checksum and dependencies. Equal input and SOURCE_DATE_EPOCH give equal bytes.
"""

import json
import os
import subprocess
import sys
import tomllib
import uuid
from datetime import datetime, timezone
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGE = "snowmint-cli"


def main():
    host = subprocess.check_output(["rustc", "-vV"], text=True).split("host: ")[1].split()[0]
    target = sys.argv[1] if len(sys.argv) > 1 else host
    command = ["cargo", "metadata", "--locked", "--format-version", "1", "--filter-platform", target]
    metadata = json.loads(subprocess.check_output([*command, "--manifest-path", ROOT / "crates" / PACKAGE / "Cargo.toml"]))
    packages = {it["id"]: it for it in metadata["packages"]}
    checksums = {(it["name"], it["version"]): it.get("checksum") for it in tomllib.loads((ROOT / "Cargo.lock").read_text())["package"]}
    needs = {
        node["id"]: sorted(dep["pkg"] for dep in node["deps"] if any(kind["kind"] != "dev" for kind in dep["dep_kinds"]))
        for node in metadata["resolve"]["nodes"]
    }
    (root,) = [it["id"] for it in metadata["packages"] if it["name"] == PACKAGE]
    used, waiting = {root}, [root]
    while waiting:
        for dependency in needs[waiting.pop()]:
            if dependency not in used:
                used.add(dependency)
                waiting.append(dependency)

    purl = lambda it: f"pkg:cargo/{it['name']}@{it['version']}"

    def component(package):
        told = {"type": "library", "bom-ref": purl(package), "name": package["name"], "version": package["version"],
                "purl": purl(package), "scope": "required"}
        if package["license"]:
            # Old crates write MIT/Apache-2.0.
            told["licenses"] = [{"expression": package["license"].replace("/", " OR ")}]
        if checksum := checksums.get((package["name"], package["version"])):
            told["hashes"] = [{"alg": "SHA-256", "content": checksum}]
        if package["repository"]:
            told["externalReferences"] = [{"type": "vcs", "url": package["repository"]}]
        return told

    of_purl = sorted(used, key=lambda it: purl(packages[it]))
    made_at = datetime.fromtimestamp(int(os.environ.get("SOURCE_DATE_EPOCH", 0)), timezone.utc)
    told = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "timestamp": made_at.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "component": {**component(packages[root]), "type": "application", "name": "snowmint"},
        },
        "components": [component(packages[it]) for it in of_purl if it != root],
        "dependencies": [{"ref": purl(packages[it]), "dependsOn": sorted(purl(packages[to]) for to in needs[it])} for it in of_purl],
    }
    content = json.dumps(told, sort_keys=True)
    told["serialNumber"] = f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, content)}"
    json.dump(told, sys.stdout, indent=1)
    print()


main()
