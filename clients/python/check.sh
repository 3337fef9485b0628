#!/usr/bin/env bash
# Checks the Python client: format, lint, types, unit tests, and builds the package into target/dist. The driver for the conformance
# kit, the benchmark and the examples run with target/venv/bin/python. Needs Python 3.10 or later (Debian: python3-venv). The first
# run installs the packages of requirements.txt, later ones need no network.
set -euo pipefail
cd "$(dirname "$0")"

venv=target/venv
wanted=$(cat requirements.txt pyproject.toml check.sh | sha256sum)
if [[ $(cat $venv/installed 2>/dev/null) != "$wanted" ]]; then
    rm -rf $venv
    mkdir -p target
    python3 -m venv $venv
    $venv/bin/pip install --quiet --disable-pip-version-check --require-virtualenv -r requirements.txt
    $venv/bin/pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps --editable .
    echo "$wanted" >$venv/installed
fi

export PYTHONDONTWRITEBYTECODE=1
$venv/bin/ruff format --check --quiet . || { echo "format these files: clients/python/$venv/bin/ruff format clients/python" >&2; exit 1; }
$venv/bin/ruff check --quiet .
$venv/bin/mypy --no-error-summary src tests driver bench examples/fastapi examples/sqlalchemy
$venv/bin/python -m pytest --quiet -p no:cacheprovider
rm -rf target/dist
$venv/bin/hatchling build -d target/dist >target/build.log 2>&1 || { cat target/build.log >&2; exit 1; }
$venv/bin/python - <<'CHECK'
import zipfile, pathlib

(wheel,) = pathlib.Path("target/dist").glob("*.whl")
names = zipfile.ZipFile(wheel).namelist()
for end in ("snowmint/py.typed", "/LICENSE-APACHE", "/LICENSE-MIT"):
    if not any(name.endswith(end) for name in names):
        raise SystemExit(f"{wheel} has no {end}")
CHECK
