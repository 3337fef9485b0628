#!/usr/bin/env bash
# Lays out the files of the image: packaging/docker/tree.sh BINARY FOLDER, as root. THIRD_PARTY may name a file with the licences of
# everything that BINARY contains. The Dockerfile uses it for a build from source, release.sh for the published image, try.sh for
# tests.
set -euo pipefail
[[ $# == 2 ]] || { echo "usage: $0 BINARY FOLDER" >&2; exit 2; }
binary=$1 folder=$2
root=$(dirname "$(realpath "$0")")/../..
install -D -m 755 "$binary" "$folder/usr/bin/snowmint"
install -D -m 644 /etc/ssl/certs/ca-certificates.crt "$folder/etc/ssl/certs/ca-certificates.crt"
install -d "$folder/usr/share"
cp -a /usr/share/zoneinfo "$folder/usr/share/"
rm -rf "$folder"/usr/share/zoneinfo/{posix,right}
install -D -m 644 -t "$folder/usr/share/doc/snowmint" "$root/LICENSE-APACHE" "$root/LICENSE-MIT"
[[ -z ${THIRD_PARTY-} ]] || install -m 644 "$THIRD_PARTY" "$folder/usr/share/doc/snowmint/THIRD-PARTY.txt"
install -d -o 65532 -g 65532 -m 750 "$folder/var/lib/snowmint"
install -d -m 1777 "$folder/tmp"
