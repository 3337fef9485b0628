#!/usr/bin/env bash
# Checks the Node.js client: format, lint, types, unit tests, and the package as others see it. Builds the client into dist/, which
# the driver for the conformance kit, the benchmark and the examples use, and installs their packages. Needs Node.js 18 or later, npm
# and OpenSSL (Debian: nodejs npm openssl). The first run downloads packages, later ones need no network.
set -euo pipefail
cd "$(dirname "$0")"

# Installs the locked packages of a folder, unless they are there.
install() {
    local stamp=$1/node_modules/.lock
    cmp -s "$1/package-lock.json" "$stamp" && return
    # Without scripts, because that of Prisma downloads programs that its client without an engine does not need.
    npm ci --prefix "$1" --ignore-scripts --no-audit --no-fund --loglevel=error
    cp "$1/package-lock.json" "$stamp"
}
for folder in . bench examples/*; do
    install "$folder"
done
PATH=$PWD/node_modules/.bin:$PATH

prettier --check --log-level warn .
eslint .

rm -rf dist target/build
tsc -p tsconfig.esm.json
tsc -p tsconfig.cjs.json
echo '{ "type": "commonjs" }' >dist/cjs/package.json
tsc -p tsconfig.test.json

npm pack --silent --pack-destination target >target/packed
# The engine is a program that only migrations need. Any file in its place keeps Prisma from downloading it.
(
    cd examples/prisma
    export DATABASE_URL=postgresql:// PRISMA_SCHEMA_ENGINE_BINARY=/bin/true CHECKPOINT_DISABLE=1
    node_modules/.bin/prisma generate --schema schema.prisma --no-hints >../../target/prisma.log 2>&1 || {
        cat ../../target/prisma.log >&2
        exit 1
    }
)

publint --strict "target/$(<target/packed)"
attw --quiet --profile node16 "target/$(<target/packed)"
node --test target/build/test/
