#!/usr/bin/env bash
# Runs a binary like its container, without a container engine: packaging/docker/try.sh BINARY, as root. The file tree is that of
# the Dockerfile, read-only except for the volume; user, variables, command and health check come from the Dockerfile. A binary
# that is not static also gets its libraries. Checks that host names resolve from /etc/hosts and through DNS.
set -euo pipefail
here=$(dirname "$(realpath "$0")")

if [[ ${1-} != --inside ]]; then
    [[ $# == 1 ]] || { echo "usage: $0 BINARY" >&2; exit 2; }
    exec unshare --mount --pid --net --fork --kill-child "$(realpath "$0")" --inside "$(realpath "$1")"
fi
binary=$2

root=$(mktemp -d)
fail() { echo "failed: $*" >&2; cat "$root"/../snowmint-log.$$ >&2 2>/dev/null; exit 1; }
log=$root/../snowmint-log.$$
trap 'rm -f "$log"' EXIT
mount -t tmpfs -o mode=755 tmpfs "$root"
"$here/tree.sh" "$binary" "$root"
libraries=$(ldd "$binary" 2>/dev/null | grep -o '/[^ ]*' || true)
for library in $libraries; do install -D "$library" "$root$library"; done
mkdir "$root/proc"
# Files that a container engine adds.
printf '127.0.0.1 localhost\n127.0.0.1 store.internal\n' >"$root/etc/hosts"
printf 'nameserver 127.0.0.1\n' >"$root/etc/resolv.conf"
mount -t proc proc "$root/proc"
mkdir "$root/dev"
for device in null random urandom zero; do
    touch "$root/dev/$device"
    mount --bind "/dev/$device" "$root/dev/$device"
done

from_dockerfile() { sed -n "/^FROM scratch/,\$ s/^ *$1 //p" "$here/Dockerfile"; }
user=$(from_dockerfile USER)
mapfile -t variables < <(sed -n '/^FROM scratch/,$ s/^\(ENV\)\? *\([A-Z_]*=[^ ]*\).*/\2/p' "$here/Dockerfile" | grep -E '^(PATH|SNOWMINT_)')
mapfile -t health < <(from_dockerfile CMD | head -1 | python3 -c 'import json, sys; print(*json.load(sys.stdin), sep="\n")')
((${#variables[@]} == 5)) || fail "variables of the Dockerfile: ${variables[*]}"
mount -t tmpfs -o "uid=${user%:*},gid=${user#*:},mode=750" tmpfs "$root/var/lib/snowmint"
enter=(env -i "${variables[@]}" /usr/sbin/chroot --userspec="$user" "$root")
in_image() { "${enter[@]}" "$@"; }

python3 -c 'import fcntl, socket, struct; fcntl.ioctl(socket.socket(), 0x8914, struct.pack("16sh14x", b"lo", 1))'
mount -o remount,ro "$root"

# Not a function, so that the background process is the node itself.
"${enter[@]}" /usr/bin/snowmint serve --insecure >"$log" 2>&1 &
pid=$!
for _ in {1..150}; do
    if answer=$(in_image "${health[@]}" 2>&1); then break; fi
    kill -0 $pid 2>/dev/null || fail "the node ended: $answer"
    sleep 0.1
done
in_image "${health[@]}" >/dev/null || fail "not healthy: $answer"
id=$(exec 3<>/dev/tcp/127.0.0.1/8080; printf 'GET /v1/ids/default?format=text HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n' >&3; tail -n1 <&3)
[[ $id =~ ^[0-9]+$ ]] || fail "no id: $id"
[[ $(stat -c %u:%g "$root/proc/$pid") == "$user" ]] || fail "the node runs as another user than $user"
kill -TERM $pid
wait $pid || fail "the node ended with $?"
! in_image "${health[@]}" >/dev/null 2>&1 || fail "healthy without a node"
echo "user $user; id $id"

in_image /usr/bin/snowmint ns add day --scheme segment --text '{date}-{number}' --time-zone Asia/Shanghai >"$log" 2>&1 \
    || fail "no time zones"

# Without --insecure, a node in the image refuses to serve other machines.
if in_image /usr/bin/snowmint serve >"$log" 2>&1; then fail "it serves all comers"; else [[ $? == 2 ]] || fail "another error"; fi

data=$(mktemp -d)
mount -t tmpfs tmpfs "$data"
# A DNS server that knows one name.
python3 - "$data/dns" <<'P' &
import pathlib, socket, sys
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind(("127.0.0.1", 53))
pathlib.Path(sys.argv[1]).touch()
while True:
    query, peer = server.recvfrom(512)
    end = query.index(b"\0", 12) + 5
    known = query[12:end - 5].lower() == b"\x05store\x07example\x04test"
    answers = known and query[end - 4:end - 2] == b"\0\1"
    head = query[:2] + (b"\x85\x80" if known else b"\x85\x83") + b"\0\1" + (b"\0\1" if answers else b"\0\0") + b"\0\0\0\0"
    server.sendto(head + query[12:end] + (b"\xc0\x0c\0\1\0\1\0\0\0\x3c\0\4\x7f\0\0\1" if answers else b""), peer)
P
redis-server --bind 127.0.0.1 --port 6379 --dir "$data" --save '' --appendonly yes --appendfsync always --loglevel warning >/dev/null &
for _ in {1..100}; do (exec 3<>/dev/tcp/127.0.0.1/6379) 2>/dev/null && [[ -e $data/dns ]] && break; sleep 0.1; done

names() {
    local name
    for name in localhost store.internal store.example.test; do
        in_image /usr/bin/snowmint workers --store "redis://$name:6379?may_lose=0" >"$log" 2>&1 || fail "$name does not lead to the store $1"
    done
    ! in_image /usr/bin/snowmint workers --store "redis://nobody.example.test:6379?may_lose=0" >"$log" 2>&1 || fail "an unknown name leads somewhere"
    echo "names resolved $1"
}
names 'without nsswitch.conf'
mount -o remount,rw "$root"
echo 'hosts: mymachines resolve [!UNAVAIL=return] files myhostname dns' >"$root/etc/nsswitch.conf"
if [[ -z $libraries ]]; then
    # A system with another glibc: its modules must not be loaded.
    for folder in lib/x86_64-linux-gnu usr/lib64 lib64 lib; do
        mkdir -p "$root/$folder"
        for module in mymachines resolve myhostname; do
            gcc -shared -nostdlib -o "$root/$folder/libnss_$module.so.2" -x c - <<<'__attribute__((constructor)) static void loaded(void) { __builtin_trap(); }'
        done
    done
fi
names 'with foreign modules in nsswitch.conf'
