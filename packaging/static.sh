#!/usr/bin/env bash
# Builds target/static/snowmint: the shipped binary, linked statically with glibc, so that it runs on every Linux of this
# architecture, even in an empty container. It contains no paths of this machine.
set -euo pipefail
cd "$(dirname "$0")/.."
target=$(rustc -vV | sed -n 's/^host: //p')
cargo_home=${CARGO_HOME:-$HOME/.cargo}
# With --target, the flags do not apply to build scripts and procedural macros, which cannot be static.
RUSTFLAGS="-C target-feature=+crt-static --remap-path-prefix=$PWD=/snowmint --remap-path-prefix=$cargo_home/registry/src=/crates" \
    cargo build --quiet --locked --profile dist --package snowmint-cli --target "$target"
binary=target/$target/dist/snowmint
! readelf -d "$binary" | grep '(NEEDED)' || { echo "$binary needs the libraries above: it is not static" >&2; exit 1; }
install -D "$binary" target/static/snowmint
strip target/static/snowmint
