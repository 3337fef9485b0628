"""Makes an image archive the same for the same files, in place: packaging/docker/repeatable.py ARCHIVE

In Docker's format, buildah writes the random name of the container in which it built. OCI images lack it, but buildah drops their
health check.
"""

import hashlib
import io
import json
import sys
import tarfile
from pathlib import Path


def main():
    archive = Path(sys.argv[1])
    repeatable = archive.with_suffix(".new")
    with tarfile.open(archive) as old, tarfile.open(repeatable, "w", format=tarfile.USTAR_FORMAT) as new:

        def add(name, size, content):
            info = tarfile.TarInfo(name)
            info.size = size
            new.addfile(info, content)

        (image,) = json.load(old.extractfile("manifest.json"))
        config = json.load(old.extractfile(image["Config"]))
        # Not every release of buildah writes all of them.
        for place, name in (config, "container"), (config, "container_config"), (config["config"], "Hostname"):
            place.pop(name, None)
        if "Healthcheck" not in config["config"]:
            sys.exit(f"{archive} has no health check: build it with --format docker")
        content = json.dumps(config).encode()
        image["Config"] = f"{hashlib.sha256(content).hexdigest()}.json"
        for layer in image["Layers"]:
            add(layer, old.getmember(layer).size, old.extractfile(layer))
        for name, told in (image["Config"], content), ("manifest.json", json.dumps([image]).encode()):
            add(name, len(told), io.BytesIO(told))
    repeatable.rename(archive)


main()
