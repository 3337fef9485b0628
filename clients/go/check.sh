#!/usr/bin/env bash
# Checks the Go client: format, vet, staticcheck, unit tests with the race detector, and builds the driver for the conformance kit,
# the benchmark and the example into target/. Needs Go 1.19 or later and a C compiler (Debian: golang-go gcc libc6-dev). The first
# run downloads modules (Debian: ca-certificates), later ones need no network.
set -euo pipefail
cd "$(dirname "$0")"

export GOFLAGS=-buildvcs=false GOWORK=off
target=$PWD/target
mkdir -p "$target"

# Each release of staticcheck reads only the Go versions of its time.
minor=$(go env GOVERSION | sed -E 's/^go1\.([0-9]+).*/\1/')
if ((minor >= 25)); then release=v0.7.0; elif ((minor >= 23)); then release=v0.6.1; else release=v0.4.7; fi
staticcheck=$target/staticcheck-$release-go1.$minor
if [[ ! -x $staticcheck ]]; then
    if GOBIN=$target go install "honnef.co/go/tools/cmd/staticcheck@$release"; then
        mv "$target/staticcheck" "$staticcheck"
    else
        echo "staticcheck $release cannot be installed: skipped" >&2
        staticcheck=true
    fi
fi

unformatted=$(gofmt -l .)
if [[ -n $unformatted ]]; then
    printf 'gofmt -w these files:\n%s\n' "$unformatted" >&2
    exit 1
fi
for module in . gorm driver bench examples/gorm-service; do
    (cd "$module" && go vet ./... && "$staticcheck" ./...)
done
for module in . gorm; do
    (cd "$module" && go test -race -short ./...)
done
go test -run '^$' -fuzz FuzzReadRanges -fuzztime 20000x . >"$target/fuzz.log" || { cat "$target/fuzz.log" >&2; exit 1; }
for module in driver bench examples/gorm-service; do
    (cd "$module" && go build -o "$target/${module##*/}" .)
done
