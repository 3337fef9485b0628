#!/usr/bin/env bash
# Makes a folder with Debian's newest release (sid) and the servers that stores are tested against: MySQL 9, PostgreSQL 18, Redis 8,
# Valkey 9, etcd 3.5, MariaDB 11.8, ZooKeeper 3.9, or later.
#
# usage: newest.sh ROOT
#
# Needs root, for chroot: `ROOT/enter PROGRAM ARGUMENT...` runs a program there, and `ROOT/clients` has the clients of the servers as
# scripts that do so. The tests use both with SNOWMINT_TEST_SERVERS_ROOT=ROOT, PATH=ROOT/clients:$PATH and TMPDIR=ROOT/tmp. Takes 2 min
# and 3 GB the first time. Only ROOT/proc is a mount: umount it before you delete the folder.
set -euo pipefail

[[ $# == 1 ]] || { echo "usage: newest.sh ROOT" >&2; exit 2; }
[[ $(id -u) == 0 ]] || { echo "newest.sh: run it as root: it uses chroot" >&2; exit 2; }
mkdir -p "$1"
root=$(cd "$1" && pwd -P)
log=$root.log
mirror=$(grep -hE '^(URIs:|deb )' /etc/apt/sources.list /etc/apt/sources.list.d/* 2>/dev/null | grep -oE 'https?://[^ ]+' | head -1) || true

say() { echo "newest.sh: $*; see $log" >&2; exit 1; }
inside() { DEBIAN_FRONTEND=noninteractive chroot "$root" "$@" >>"$log" 2>&1; }

if [[ ! -e $root/complete ]]; then
    command -v debootstrap >/dev/null || apt-get install -y -qq --no-install-recommends debootstrap >/dev/null
    [[ -d $root/usr/bin ]] || debootstrap --variant=minbase sid "$root" "${mirror:-http://deb.debian.org/debian}" >"$log" 2>&1 || say "debootstrap failed"
fi
mountpoint -q "$root/proc" || mount -t proc proc "$root/proc"
# Each path below the folder is the same path inside: the tests give servers the paths of their folders. Not a bind mount of /tmp, which
# would empty the real one if somebody deletes the folder.
mkdir -p "$root$(dirname "$root")"
ln -sfn / "$root$root"
# PostgreSQL keeps shared memory there.
mkdir -p "$root/dev/shm"
chmod 1777 "$root/dev/shm" "$root/tmp"

if [[ ! -e $root/complete ]]; then
    printf '#!/bin/sh\nexit 101\n' >"$root/usr/sbin/policy-rc.d"
    chmod +x "$root/usr/sbin/policy-rc.d"
    mkdir -p "$root/etc/postgresql-common"
    echo 'create_main_cluster = false' >"$root/etc/postgresql-common/createcluster.conf"
    printf 'path-exclude=/usr/share/doc/*\npath-exclude=/usr/share/man/*\n' >"$root/etc/dpkg/dpkg.cfg.d/nodoc"
    inside apt-get install -y -qq --no-install-recommends mysql-server-core mysql-client-core valkey-server valkey-tools redis-server redis-tools \
        postgresql etcd-server etcd-client zookeeper default-jre-headless rsync lsof iproute2 liburing2 libsnappy1v5 liblz4-1 libpmem1 libncurses6 ||
        say "installing the servers failed"
    # MariaDB and MySQL have files of the same names, so MariaDB lies in a folder of its own.
    mkdir -p "$root/mdb" "$root/var/tmp/mdb"
    inside sh -c 'cd /var/tmp/mdb && apt-get download -qq mariadb-server mariadb-server-core mariadb-client mariadb-client-core mariadb-common galera-4 libmariadb3' ||
        say "downloading MariaDB failed"
    for package in "$root"/var/tmp/mdb/*.deb; do dpkg -x "$package" "$root/mdb"; done
    chroot "$root" id mysql >/dev/null 2>&1 || inside useradd --system --no-create-home mysql || say "useradd failed"
    touch "$root/complete"
fi

# What begins with `cd` runs in the current folder, if that exists inside.
cat >"$root/enter" <<END
#!/bin/sh
exec chroot '$root' /usr/bin/env PATH=/usr/sbin:/usr/bin:/sbin:/bin:/mdb/usr/bin:/mdb/usr/sbin /bin/sh -c 'cd "\$0" 2>/dev/null || cd /; exec "\$@"' "\$PWD" "\$@"
END
chmod 755 "$root/enter"
client() {
    local folder=$root/$1 name=$2
    shift 2
    mkdir -p "$folder"
    printf "#!/bin/sh\nexec '%s' %s \"\$@\"\n" "$root/enter" "$*" >"$folder/$name"
    chmod 755 "$folder/$name"
}
for name in redis-cli etcdctl psql pg_dump; do client clients "$name" "$name"; done
client clients mariadb /mdb/usr/bin/mariadb
client clients mariadb-dump /mdb/usr/bin/mariadb-dump
# The same names for tests that run on MySQL instead of MariaDB, or Valkey instead of Redis.
client clients-mysql mariadb mysql
client clients-mysql mariadb-dump mysqldump '"$@" --set-gtid-purged=OFF --no-tablespaces #'
client clients-valkey redis-cli valkey-cli

"$root/enter" sh -c 'mysqld --version; mariadbd --version; ls -d /usr/lib/postgresql/*; redis-server --version; valkey-server --version; etcd --version | head -1
    ls /usr/share/java/zookeeper-[0-9]*.jar' 2>/dev/null || true
