#!/usr/bin/env bash
# Builds target/static/ARCHITECTURE/snowmint: the shipped binary, linked statically with glibc, so that it runs on every Linux of
# this architecture, even in an empty container. It contains no paths of this machine.
#   packaging/static.sh [amd64|arm64]   default: the architecture of this machine
# For another one it needs Debian's cross compiler: gcc-aarch64-linux-gnu and libc6-dev-arm64-cross, or the same for amd64.
set -euo pipefail
cd "$(dirname "$0")/.."
architecture=${1:-$(dpkg --print-architecture)}
case $architecture in
    amd64) machine=x86_64 ;;
    arm64) machine=aarch64 ;;
    *) echo "invalid architecture '$architecture': expected amd64 or arm64" >&2; exit 2 ;;
esac
target=$machine-unknown-linux-gnu
prefix=
if [[ $target != "$(rustc -vV | sed -n 's/^host: //p')" ]]; then
    prefix=$machine-linux-gnu-
    command -v "${prefix}gcc" >/dev/null \
        || { echo "${prefix}gcc is missing: apt-get install gcc-${machine//_/-}-linux-gnu libc6-dev-$architecture-cross" >&2; exit 1; }
    rustup target list --installed | grep -qx "$target" || rustup target add "$target"
    linker=${target//-/_}
    export "CARGO_TARGET_${linker^^}_LINKER=${prefix}gcc"
fi
cargo_home=${CARGO_HOME:-$HOME/.cargo}
# With --target, the flags do not apply to build scripts and procedural macros, which cannot be static.
RUSTFLAGS="-C target-feature=+crt-static --remap-path-prefix=$PWD=/snowmint --remap-path-prefix=$cargo_home/registry/src=/crates" \
    cargo build --quiet --locked --profile dist --package snowmint-cli --target "$target"
binary=target/$target/dist/snowmint
! readelf -d "$binary" | grep '(NEEDED)' || { echo "$binary needs the libraries above: it is not static" >&2; exit 1; }
install -D "$binary" "target/static/$architecture/snowmint"
"${prefix}strip" "target/static/$architecture/snowmint"
