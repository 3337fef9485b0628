#!/usr/bin/env bash
# Tests a Debian package: packaging/debian/try.sh PACKAGE [ROOT], as root. Installs the package in an in-memory copy of ROOT
# (default: this system), runs the command of its unit as the unit's user, draws ids, upgrades, removes and purges.
# Nothing outside the copy changes. ROOT may be a new system: `mmdebstrap --variant=minbase --include=adduser stable ROOT`.
set -euo pipefail

if [[ ${1-} != --inside ]]; then
    [[ $# == 1 || $# == 2 ]] || { echo "usage: $0 PACKAGE [ROOT]" >&2; exit 2; }
    # Separate namespaces: the ports of the package are free there, and all processes end with the script.
    exec unshare --mount --pid --net --fork --kill-child "$(realpath "$0")" --inside "$(realpath "$1")" "$(realpath "${2-/}")"
fi
package=$2 from=$3

fail() { echo "failed: $*" >&2; [[ ! -e ${log-} ]] || cat "$log" >&2; exit 1; }
memory=$(mktemp -d)
mount -t tmpfs -o mode=755 tmpfs "$memory"
mkdir "$memory"/{upper,work,root}
mount -t overlay -o "lowerdir=$from,upperdir=$memory/upper,workdir=$memory/work" overlay "$memory/root"
root=$memory/root
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mount -t tmpfs tmpfs "$root/run"
cp "$package" "$root/run/snowmint.deb"
log=$root/run/log
# The loopback device of the new network is down: SIOCSIFFLAGS, IFF_UP.
python3 -c 'import fcntl, socket, struct; fcntl.ioctl(socket.socket(), 0x8914, struct.pack("16sh14x", b"lo", 1))'

enter=(env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive chroot "$root")
inside() { "${enter[@]}" "$@"; }
owner() { inside stat -c '%U:%G %a' "$1"; }
is() { [[ $1 == "$2" ]] || fail "$3: expected '$2', found '$1'"; }
setting() { sed -n "s/^$1=//p" "$root/lib/systemd/system/snowmint.service"; }

# Runs the command of the unit as systemd does, except for the socket for READY=1: the unit's user, its directory, no capabilities.
start() {
    read -ra command <<<"$(setting ExecStart)"
    local user; user=$(setting User)
    # Not a function, so that the background process is the service itself.
    "${enter[@]}" setpriv --reuid="$user" --regid="$(setting Group)" --init-groups --no-new-privs --bounding-set=-all \
        env --chdir="$(setting WorkingDirectory)" sh -c 'umask "$0"; exec "$@"' "$(setting UMask)" "${command[@]}" >>"$log" 2>&1 &
    pid=$!
    for _ in {1..150}; do
        if inside snowmint health >/dev/null 2>&1; then return; fi
        kill -0 $pid 2>/dev/null || fail "the service ended"
        sleep 0.1
    done
    fail "no lease within 15 s"
}
stop() { kill -TERM $pid; wait $pid || fail "the service ended with $?"; }
draw() { inside bash -c 'exec 3<>/dev/tcp/127.0.0.1/8080; printf "GET /v1/ids/default?format=text HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n" >&3; tail -n1 <&3'; }

# Slim systems omit documentation.
install() { inside dpkg --force-unsafe-io --force-confold --path-include='/usr/share/*' -i /run/snowmint.deb >>"$log" 2>&1 || fail "the package was not installed"; }

# The copy begins without what the system has of Snowmint: a `snowmint serve` by root leaves a data directory that is not the
# package's user's.
inside dpkg -P snowmint >/dev/null 2>&1 || true
rm -rf "$root"/{etc,var/lib}/snowmint

install
is "$(owner /etc/snowmint/snowmint.toml)" 'root:snowmint 640' 'the configuration file'
is "$(owner /var/lib/snowmint)" 'snowmint:snowmint 750' 'the data directory'
inside snowmint config check /etc/snowmint/snowmint.toml >/dev/null || fail "the configuration file is invalid"
files=(doc/snowmint/copyright doc/snowmint/changelog.gz)
! inside snowmint man --help >/dev/null 2>&1 || files+=(man/man1/snowmint.1.gz man/man1/snowmint-serve.1.gz)
! inside snowmint completions --help >/dev/null 2>&1 || files+=(bash-completion/completions/snowmint zsh/vendor-completions/_snowmint)
for file in "${files[@]}"; do
    [[ -s $root/usr/share/$file ]] || fail "/usr/share/$file is missing"
done
if [[ -x $root/usr/bin/systemd-analyze ]]; then
    verified=$(inside systemd-analyze verify --man=no snowmint.service snowmint-http.socket snowmint-resp.socket 2>&1) || fail "$verified"
    is "$(grep snowmint <<<"$verified" || true)" '' 'the units'
    # 0 is the safest, 10 the least safe.
    inside systemd-analyze security --offline=true --threshold=20 --no-pager /lib/systemd/system/snowmint.service >>"$log" 2>&1 || fail "the unit is exposed"
    echo 'units verified'
fi
[[ -L $root/etc/systemd/system/multi-user.target.wants/snowmint.service ]] || fail "the service is not enabled"

start
first=$(draw)
[[ $first =~ ^[0-9]+$ ]] || fail "no id: $first"
echo "installed; first id $first"
is "$(owner /var/lib/snowmint/snowmint.db)" 'snowmint:snowmint 640' 'the data file'
stop

# An upgrade keeps the administrator's changes.
echo '# mine' >>"$root/etc/snowmint/snowmint.toml"
inside chmod 600 /etc/snowmint/snowmint.toml
install
is "$(tail -n1 "$root/etc/snowmint/snowmint.toml")" '# mine' 'the configuration file after an upgrade'
is "$(inside stat -c %a /etc/snowmint/snowmint.toml)" 600 'its permissions after an upgrade'
inside chmod 640 /etc/snowmint/snowmint.toml
start
second=$(draw)
((second > first)) || fail "$second came after $first"
stop
echo "upgraded; next id $second"

inside dpkg -r snowmint >>"$log" 2>&1 || fail "the package was not removed"
[[ ! -e $root/usr/bin/snowmint ]] || fail "the binary is still there"
[[ -s $root/var/lib/snowmint/snowmint.db && -s $root/etc/snowmint/snowmint.toml ]] || fail "removal deleted data"
inside dpkg -P snowmint >>"$log" 2>&1 || fail "the package was not purged"
left=$(cd "$root" && ls -d var/lib/snowmint etc/snowmint usr/share/doc/snowmint etc/systemd/system/*snowmint* etc/systemd/system/*/snowmint* var/lib/systemd/deb-systemd-helper-*/*snowmint* 2>/dev/null || true)
is "$left" '' 'files after a purge'
is "$(inside getent passwd snowmint || true)" '' 'the user after a purge'
echo 'removed; purged'
