#!/usr/bin/env bash
# Builds the Debian package of a `snowmint` binary: packaging/debian/build.sh BINARY FOLDER
# writes FOLDER/snowmint_VERSION_ARCH.deb. Equal input and SOURCE_DATE_EPOCH give equal bytes. Variables:
#   RUNNABLE     a binary of the same version that this machine can run, if BINARY is for another architecture
#   THIRD_PARTY  a file with the licences of everything that BINARY contains
#   COMPRESSION  none is fast (for tests)
set -euo pipefail
[[ $# == 2 ]] || { echo "usage: $0 BINARY FOLDER" >&2; exit 2; }
binary=$(realpath "$1")
runnable=$(realpath "${RUNNABLE:-$1}")
folder=$(realpath "$2")
here=$(dirname "$(realpath "$0")")
root=$here/../..
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git -C "$root" log -1 --format=%ct 2>/dev/null || date +%s)}
umask 022

version=$("$runnable" --version)
version=${version#snowmint }
# 1.0.0-rc.1 sorts before 1.0.0; Debian writes that as 1.0.0~rc.1.
version=${version/-/\~}
machine=$(readelf --file-header "$binary" | sed -n 's/^ *Machine: *//p')
case $machine in
    *X86-64) architecture=amd64 prefix=x86_64-linux-gnu- ;;
    AArch64) architecture=arm64 prefix=aarch64-linux-gnu- ;;
    *) echo "$binary is for '$machine': expected X86-64 or AArch64" >&2; exit 2 ;;
esac
# The tools of another architecture come with Debian's cross compiler.
[[ $architecture != "$(dpkg --print-architecture)" ]] || prefix=

tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
put() { install -D -m "$1" "$2" "$tree$3"; }
put 755 "$binary" /usr/bin/snowmint
"${prefix}strip" --remove-section=.comment --remove-section=.note "$tree/usr/bin/snowmint"
put 640 "$root/packaging/snowmint.toml" /etc/snowmint/snowmint.toml
for unit in snowmint.service snowmint-http.socket snowmint-resp.socket; do
    put 644 "$root/packaging/systemd/$unit" "/lib/systemd/system/$unit"
done
docs=/usr/share/doc/snowmint
put 644 "$here/copyright" $docs/copyright
put 644 "$root/README.md" $docs/README.md
put 644 "$root/monitoring/alerts.yml" $docs/monitoring/alerts.yml
put 644 "$root/monitoring/dashboard.json" $docs/monitoring/dashboard.json
put 644 "$root/CHANGELOG.md" $docs/changelog
gzip -9n "$tree$docs/changelog"
if [[ -n ${THIRD_PARTY-} ]]; then
    put 644 "$THIRD_PARTY" $docs/THIRD-PARTY.txt
    gzip -9n "$tree$docs/THIRD-PARTY.txt"
fi

# Man pages and completions that the binary generates.
has() { "$runnable" "$1" --help >/dev/null 2>&1; }
if has completions; then
    mkdir -p "$tree"/usr/share/{bash-completion/completions,zsh/vendor-completions,fish/vendor_completions.d}
    "$runnable" completions bash >"$tree/usr/share/bash-completion/completions/snowmint"
    "$runnable" completions zsh >"$tree/usr/share/zsh/vendor-completions/_snowmint"
    "$runnable" completions fish >"$tree/usr/share/fish/vendor_completions.d/snowmint.fish"
fi
if has man; then
    mkdir -p "$tree/usr/share/man/man1"
    "$runnable" man "$tree/usr/share/man/man1" >/dev/null
    gzip -9n "$tree"/usr/share/man/man1/*
fi

# A static binary depends on no library. Any other needs the newest glibc version among its symbols.
depends='adduser'
if readelf -d "$binary" | grep -q '(NEEDED)'; then
    glibc=$("${prefix}objdump" -T "$binary" | grep -o 'GLIBC_[0-9.]*' | sort -Vu | tail -1)
    depends+=", libc6 (>= ${glibc#GLIBC_}), libgcc-s1"
fi

mkdir "$tree/DEBIAN"
for script in postinst prerm postrm; do install -m 755 "$here/$script" "$tree/DEBIAN/$script"; done
echo /etc/snowmint/snowmint.toml >"$tree/DEBIAN/conffiles"
size=$(du -sk --apparent-size --exclude=DEBIAN "$tree" | cut -f1)
sed -e "s/@VERSION@/$version/; s/@ARCHITECTURE@/$architecture/; s/@SIZE@/$size/; s/@DEPENDS@/$depends/" \
    "$here/control.in" >"$tree/DEBIAN/control"
(cd "$tree" && find . -type f -not -path './DEBIAN/*' -printf '%P\0' | sort -z | xargs -0 md5sum) >"$tree/DEBIAN/md5sums"
find "$tree" -newermt "@$SOURCE_DATE_EPOCH" -print0 | xargs -0r touch --no-dereference --date="@$SOURCE_DATE_EPOCH"
dpkg-deb --root-owner-group -Z"${COMPRESSION:-xz}" --build "$tree" "$folder/snowmint_${version}_$architecture.deb" >/dev/null
echo "$folder/snowmint_${version}_$architecture.deb"
