#!/usr/bin/env bash
# Nanoseconds an id in the client of each language, beside the language's own UUID v4 and generators in the process, in one run.
# Prints Markdown. Needs what `./check clients` needs; client and server share this machine.
set -euo pipefail
cd "$(dirname "$0")/.."

snowmint="${SNOWMINT:-${CARGO_TARGET_DIR:-target}/dist/snowmint}"
[ -x "$snowmint" ] || { echo "no binary: cargo build --profile dist -p snowmint-cli" >&2; exit 1; }
# Spring Boot would read the variable as its property `snowmint`.
for language in go java node python; do env -u SNOWMINT "clients/$language/check.sh" >&2; done

scratch=$(mktemp -d)
port=$((20000 + RANDOM % 20000))
printf '[namespaces.default]\nscheme = "snowflake"\n\n[namespaces.orders]\nscheme = "segment"\n' >"$scratch/namespaces.toml"
"$snowmint" serve --store "sqlite:$scratch/store.db" --data "$scratch" --namespaces-file "$scratch/namespaces.toml" \
    --http "127.0.0.1:$port" --resp off 2>"$scratch/log" &
server=$!
trap 'kill $server; wait $server || true; rm -rf "$scratch"' EXIT
export SNOWMINT_SERVER="http://127.0.0.1:$port"
for ((n = 0; n < 100; n++)); do curl -fs "$SNOWMINT_SERVER/readyz" >"$scratch/ready" && break; sleep 0.1; done
[ -s "$scratch/ready" ] || { cat "$scratch/log" >&2; exit 1; }

echo '## Clients: one thread, ns an id'
echo
echo '| language | call | ns | p99.9 of a call at 100,000 a second, µs |'
echo '|---|---|--:|--:|'
# Each prints lines such as {"row":"uuid v4","ns":979.1,"p999_us":1.2}.
rows() { "${@:2}" | jq -r --arg language "$1" '"| \($language) | \(.row) | \(.ns * 10 | round / 10) | \(if .p999_us then .p999_us else "" end) |"'; }
rows Go clients/go/target/bench
rows Java java -jar clients/java/bench/target/bench.jar
rows Python clients/python/target/venv/bin/python clients/python/bench/bench.py
rows Node.js node clients/node/bench/bench.mjs
