#!/usr/bin/env bash
# Builds the files of a release in target/release-files: the static binary as a tarball, the Debian package, a bill of materials
# and checksums. Then tests the shipped binary: the package, the image and black-box tests. See docs/releasing.md.
set -euo pipefail
umask 022
cd "$(dirname "$0")/.."
# The time of the commit, so that the same commit gives the same files.
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
[[ -z $(git status --porcelain) ]] || { echo "uncommitted changes: commit or stash them first" >&2; exit 1; }

packaging/static.sh
binary=$PWD/target/static/snowmint
version=$("$binary" --version)
version=${version#snowmint }
architecture=$(uname -m)
grep -q "^## \[\?$version" CHANGELOG.md || { echo "CHANGELOG.md has no section for $version" >&2; exit 1; }

files=$PWD/target/release-files
name=snowmint-$version-linux-$architecture
rm -rf "$files" "target/$name"
mkdir -p "$files" "target/$name"/{man,completions}
cp "$binary" README.md CHANGELOG.md LICENSE-APACHE LICENSE-MIT packaging/snowmint.toml "target/$name"
cp -r packaging/systemd "target/$name"
"$binary" man "target/$name/man" >/dev/null
for shell in bash zsh fish powershell; do
    "$binary" completions $shell >"target/$name/completions/snowmint.$shell"
done
tar --create --gzip --file "$files/$name.tar.gz" --directory target --sort=name --mtime="@$SOURCE_DATE_EPOCH" \
    --owner=0 --group=0 --numeric-owner --mode='u=rwX,go=rX' "$name"
rm -r "target/$name"
packaging/debian/build.sh "$binary" "$files"
python3 packaging/sbom.py >"$files/$name.cdx.json"
(cd "$files" && sha256sum -- * >SHA256SUMS)
cat "$files/SHA256SUMS"

[[ ${1-} == --no-tests ]] || PATH=$PWD/target/python/bin:$PATH SNOWMINT_BIN=$binary \
    cargo nextest run --workspace --all-features -E 'package(snowmint-blackbox) and test(/^(packaging|footprint|clients|shutdown)::/)'
