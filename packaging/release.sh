#!/usr/bin/env bash
# Builds the files of a release in target/release-files, for each architecture: the static binary as a tarball, the Debian package,
# the image and a bill of materials; and the Helm chart; with the licences of what the binary contains, checksums, and a signature if
# SIGNING_KEY names a secret key of minisign. Then tests what was built. See docs/releasing.md.
#   packaging/release.sh [--no-tests] [ARCHITECTURE...]   default: amd64 arm64
# Needs buildah, and minisign to sign.
set -euo pipefail
umask 022
cd "$(dirname "$0")/.."
# The time of the commit, so that the same commit gives the same files.
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
[[ -z $(git status --porcelain) ]] || { echo "uncommitted changes: commit or stash them first" >&2; exit 1; }
tests=yes
if [[ ${1-} == --no-tests ]]; then tests=; shift; fi
architectures=("$@")
((${#architectures[@]} > 0)) || architectures=(amd64 arm64)

# The binary of this machine writes the man pages and completions of every package.
own=$(dpkg --print-architecture)
runnable=$PWD/target/static/$own/snowmint
packaging/static.sh "$own"
for architecture in "${architectures[@]}"; do
    [[ $architecture == "$own" ]] || packaging/static.sh "$architecture"
done
version=$("$runnable" --version)
version=${version#snowmint }
grep -q "^## \[\?$version" CHANGELOG.md || { echo "CHANGELOG.md has no section for $version" >&2; exit 1; }

files=$PWD/target/release-files
rm -rf "$files"
mkdir -p "$files"
python3 packaging/third_party.py >"$files/THIRD-PARTY.txt"
export THIRD_PARTY=$files/THIRD-PARTY.txt RUNNABLE=$runnable

# A store for images of its own: the build needs no service, and leaves nothing in the machine's store.
images=$(mktemp -d)
trap 'rm -rf "$images"' EXIT
build_image() { buildah --root "$images/root" --runroot "$images/run" --storage-driver vfs "$@" >/dev/null; }
# What engines call `snowmint:VERSION`, the image in the manifests and in the chart.
tag=docker.io/library/snowmint:$version
# Equal files, time and tools give equal bytes.
archive() { # FILE FOLDER NAME
    tar --create --gzip --file "$1" --directory "$2" --sort=name --mtime="@$SOURCE_DATE_EPOCH" \
        --owner=0 --group=0 --numeric-owner --mode='u=rwX,go=rX' "$3"
}
# What `helm package` writes is the same: the folder of the chart.
archive "$files/snowmint-chart-$version.tgz" packaging/helm snowmint

for architecture in "${architectures[@]}"; do
    binary=$PWD/target/static/$architecture/snowmint
    case $architecture in amd64) machine=x86_64 ;; arm64) machine=aarch64 ;; esac
    name=snowmint-$version-linux-$machine
    rm -rf "target/$name"
    mkdir -p "target/$name"/{man,completions}
    cp "$binary" README.md CHANGELOG.md LICENSE-APACHE LICENSE-MIT "$THIRD_PARTY" packaging/snowmint.toml "target/$name"
    cp -r packaging/systemd "target/$name"
    "$runnable" man "target/$name/man" >/dev/null
    for shell in bash zsh fish powershell; do
        "$runnable" completions $shell >"target/$name/completions/snowmint.$shell"
    done
    archive "$files/$name.tar.gz" target "$name"
    rm -r "target/$name"
    packaging/debian/build.sh "$binary" "$files" >/dev/null
    python3 packaging/sbom.py "$machine-unknown-linux-gnu" >"$files/$name.cdx.json"
    # The file tree stands for the stage of the Dockerfile that builds from source.
    packaging/docker/tree.sh "$binary" "$images/$architecture/image"
    build_image build --platform "linux/$architecture" --format docker --timestamp "$SOURCE_DATE_EPOCH" --tag "$tag" \
        --build-context "build=$images/$architecture" --file packaging/docker/Dockerfile "$images/$architecture"
    # Docker's format, because every engine loads it, and because buildah drops the health check from an OCI image.
    image=$files/snowmint-$version-image-$architecture.tar
    build_image push --format v2s2 "$tag" "docker-archive:$image:$tag"
    python3 packaging/docker/repeatable.py "$image"
done

(cd "$files" && sha256sum -- * >SHA256SUMS)
if [[ -n ${SIGNING_KEY-} ]]; then
    minisign -S -s "$SIGNING_KEY" -m "$files/SHA256SUMS" -t "Snowmint $version"
    minisign -V -q -p packaging/minisign.pub -m "$files/SHA256SUMS" \
        || { echo "the signature does not fit packaging/minisign.pub: sign with the key of the project" >&2; exit 1; }
else
    echo "not signed: SIGNING_KEY names no key" >&2
fi
cat "$files/SHA256SUMS"

[[ -n $tests ]] || exit 0
for architecture in "${architectures[@]}"; do
    [[ $architecture != "$own" ]] || continue
    case $architecture in amd64) emulator=qemu-x86_64-static ;; arm64) emulator=qemu-aarch64-static ;; esac
    packaging/smoke.sh "$emulator" "$PWD/target/static/$architecture/snowmint"
done
PATH=$PWD/target/python/bin:$PATH SNOWMINT_BIN=$runnable \
    cargo nextest run --workspace --all-features -E 'package(snowmint-blackbox) and test(/^(packaging|footprint|clients|shutdown)::/)'
