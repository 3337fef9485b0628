#!/usr/bin/env bash
# Runs every measurement and writes RESULTS.md. Takes about 40 minutes; leave the machine idle meanwhile.
set -euo pipefail
cd "$(dirname "$0")"

quick=()
out=RESULTS.md
only=
case "${1-} ${2-}" in
    '--quick ') quick=(--quick) out=/dev/stdout ;;
    '--only hostile' | '--only fleet' | '--only network' | '--only network-short' | '--only scale' | '--only sql' | '--only clients') only=$2 ;;
    ' ') ;;
    *)
        echo "usage: $0 [--quick | --only hostile|fleet|network|network-short|scale|sql|clients]" >&2
        echo "  --quick: a few minutes, to standard output; --only: replaces these tables of RESULTS.md" >&2
        exit 2
        ;;
esac

export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$(cd .. && pwd)/target}"
(cd .. && cargo build --quiet --profile dist --locked -p snowmint-cli) >&2
cargo build --quiet --release --locked >&2
release="$CARGO_TARGET_DIR/release"
dist="$CARGO_TARGET_DIR/dist"

results=$(mktemp)
trap 'rm -f "$results"' EXIT

changed() { git diff --quiet HEAD -- ../crates 2>/dev/null || echo ' with changes not committed'; }
load() { cut -d' ' -f1-3 /proc/loadavg; }

# part HEADING COMMAND...: replaces the sections of RESULTS.md whose headings match by the output of the command.
part() {
    local heading=$1 before
    before=$(load)
    shift
    "$@" >"$results.part"
    awk -v heading="$heading" -v stamp="Measured apart from the rest on $(date -u +%F), at commit $(git rev-parse --short HEAD)$(changed). Load before: $before; after: $(load)." '
        function put() { if (done++) return; while ((getline line < new) > 0) { if (line == "" && !begun) continue; begun = 1; print line; if (line ~ /^## / && !stamped++) print "\n" stamp } print "" }
        /^## / { skip = $0 ~ heading; if (skip) put() }
        !skip { print }
        END { if (!done) print ""; put() }
    ' new="$results.part" RESULTS.md | cat -s | sed -e '${/^$/d}' >"$results"
    rm -f "$results.part"
    cat "$results" >RESULTS.md
}
# A group that fails prints the reason in its place.
network() { "$release/network" "$dist/snowmint" "$@" || true; }
case $only in
    hostile) part '^## Hostile clients' "$release/hostile" "$dist/snowmint" && exit ;;
    network) part '^## Network: ' network && exit ;;
    network-short) part '^## Network: ' network --short && exit ;;
    sql) SNOWMINT="$dist/snowmint" part '^## SQL: ' ./sql.sh && exit ;;
    clients) SNOWMINT="$dist/snowmint" part '^## Clients: ' ./clients.sh && exit ;;
    fleet) part '^## ([0-9]+ nodes|Nodes on one store)' "$release/fleet" && exit ;;
    scale) part '^## Scale: ' "$release/scale" "$dist/snowmint" && exit ;;
esac

{
    echo "# Results"
    echo
    echo "Written by \`bench/run.sh\` on $(date -u +%F), at commit $(git rev-parse --short HEAD)$(changed). Read the ratios, not the nanoseconds."
    echo
    echo "- $(nproc) processors, $(awk -F': ' '/^model name/ { print $2; exit }' /proc/cpuinfo), $(awk '/^MemTotal/ { printf "%.0f GiB", $2 / 1048576 }' /proc/meminfo)"
    echo "- Linux $(uname -r), $(rustc --version), $(redis-server --version | awk '{ print "redis-server", substr($3, 3) }')"
    echo "- load before: $(load)"
    echo "- peers: $(awk '/^name = / { name = $3 } /^version = / && name ~ /^"(ferroid|idgenerator|rs-snowflake|scru64|snowflaked|snowid|tsid|ulid|uuid)"$/ { gsub(/"/, "", name); gsub(/"/, "", $3); printf "%s%s %s", sep, name, $3; sep = ", " }' Cargo.lock)"
    "$release/ids" "${quick[@]}"
    "$release/segments" "${quick[@]}"
    SNOWMINT="$dist/snowmint" ./service.sh "${quick[@]}"
    "$release/whole" "$dist/snowmint" "${quick[@]}"
    network "${quick[@]}"
    "$release/hostile" "$dist/snowmint" "${quick[@]}"
    SNOWMINT="$dist/snowmint" ./sql.sh "${quick[@]}"
    SNOWMINT="$dist/snowmint" ./clients.sh
    "$release/scale" "$dist/snowmint" "${quick[@]}"
    [ ${#quick[@]} -gt 0 ] || "$release/fleet"
    echo
    echo "## Instructions an id, under callgrind, on a manual clock"
    echo
    ./instructions.sh || echo "**more than 5% over instructions/counts.txt, or a path without a baseline**"
} >"$results"
cat "$results" >"$out"
