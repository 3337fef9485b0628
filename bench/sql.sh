#!/usr/bin/env bash
# Ids made in PostgreSQL by `snowmint sql` compared with nextval, Instagram's function and UUID v7, in one run, in rounds that
# take turns.
# Prints Markdown. The server is a new one on a Unix socket and syncs every commit; it stops when the script ends.
set -euo pipefail
cd "$(dirname "$0")"

rounds=5 seconds=4 bulk=500000
case "${1-}" in
    # One round proves little: on two processors, the rates of equal rounds differ by a third.
    --quick) rounds=3 seconds=1 bulk=100000 ;;
    '') ;;
    *) echo "usage: $0 [--quick]   (SNOWMINT=path of the binary, if not the dist build)" >&2; exit 2 ;;
esac
snowmint="${SNOWMINT:-${CARGO_TARGET_DIR:-../target}/dist/snowmint}"
[ -x "$snowmint" ] || { echo "no binary: cargo build --profile dist -p snowmint-cli" >&2; exit 1; }
bin=$(printf '%s\n' /usr/lib/postgresql/*/bin | sort -V | tail -1)
[ -x "$bin/initdb" ] || { echo "PostgreSQL is not installed: apt-get install postgresql" >&2; exit 1; }

scratch=$(mktemp -d)
server=
finish() {
    [ -z "$server" ] || { kill -INT "$server" 2>/dev/null || true; wait "$server" 2>/dev/null || true; }
    rm -rf "$scratch"
}
trap finish EXIT
as=()
if [ "$(id -u)" = 0 ]; then
    chown postgres: "$scratch" && chmod 755 "$scratch"
    as=(setpriv --reuid=postgres --regid=postgres --init-groups --reset-env --)
fi
(cd "$scratch" && "${as[@]}" "$bin/initdb" -D "$scratch/data" -U postgres -A trust -E UTF8 --locale=C --no-instructions) >/dev/null
(cd "$scratch" && exec "${as[@]}" "$bin/postgres" -D "$scratch/data" -c listen_addresses= -c unix_socket_directories="$scratch" \
    -c shared_buffers=256MB -c max_wal_size=4GB) >"$scratch.log" 2>&1 &
server=$!
export PGHOST=$scratch PGUSER=postgres PGDATABASE=postgres
for _ in {1..200}; do "$bin/pg_isready" -q && break; sleep 0.05; done
sql() { psql -XAtq -v ON_ERROR_STOP=1 "$@"; }

"$snowmint" sql postgres --layout twitter --worker 7 | sql -1 -f -
# Instagram's function: a time of 41 bits, a shard of 13, and nextval modulo 1024, with an epoch of 2011.
sql <<'SQL'
CREATE SEQUENCE plain;
CREATE SEQUENCE instagram;
CREATE FUNCTION instagram_id() RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    counted bigint;
    unix_ms bigint;
BEGIN
    SELECT nextval('instagram') % 1024 INTO counted;
    SELECT floor(extract(epoch FROM clock_timestamp()) * 1000) INTO unix_ms;
    RETURN (unix_ms - 1314220021721) << 23 | 5 << 10 | counted;
END $$;
CREATE FUNCTION uuid7() RETURNS uuid LANGUAGE sql VOLATILE AS $$
    SELECT encode(set_bit(set_bit(overlay(uuid_send(gen_random_uuid())
        PLACING substring(int8send(floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint) FROM 3) FROM 1 FOR 6),
        52, 1), 53, 1), 'hex')::uuid $$;
SQL

subjects=("nextval" "snowmint_next_id" "Instagram's function" "UUID v7 in SQL")
calls=("nextval('plain')" "snowmint_next_id()" "instagram_id()" "uuid7()")
types=(bigint bigint bigint uuid)

# rate FILE CLIENTS: transactions per second.
rate() { pgbench -n -f "$1" -c "$2" -j 2 -T "$seconds" -M prepared 2>/dev/null | awk '/^tps/ { printf "%.0f\n", $3 }'; }
# ms SQL: the time of a statement, in ms.
ms() { sql -c '\timing on' -c "$1" | awk '/^Time:/ { print $2 }'; }
median() { sort -n | awk '{ a[NR] = $1 } END { print a[int((NR + 1) / 2)] }'; }

for i in "${!subjects[@]}"; do
    sql -c "CREATE TABLE t$i (id ${types[i]} DEFAULT ${calls[i]}, v int)"
    echo "SELECT ${calls[i]};" >"$scratch/one$i"
    echo "INSERT INTO t$i (v) VALUES (1);" >"$scratch/row$i"
    echo "INSERT INTO t$i (v) SELECT 1 FROM generate_series(1, 5000);" >"$scratch/rows$i"
done
for _ in $(seq "$rounds"); do
    for i in "${!subjects[@]}"; do
        rate "$scratch/one$i" 1 >>"$scratch/alone.$i"
        rate "$scratch/one$i" 16 >>"$scratch/calls.$i"
        rate "$scratch/row$i" 16 >>"$scratch/inserts.$i"
        ms "SELECT count(${calls[i]}) FROM generate_series(1, $bulk)" >>"$scratch/bulk.$i"
        sql -c "TRUNCATE t$i"
        rate "$scratch/rows$i" 16 >>"$scratch/load.$i"
        sql -c "SELECT count(*) - count(DISTINCT id), count(*) FROM t$i" >>"$scratch/twice.$i"
        sql -c "TRUNCATE t$i"
    done
    ms "SELECT count(*) FROM snowmint_next_ids($bulk)" >>"$scratch/many"
done

echo
echo "## SQL: ids made in PostgreSQL"
echo
echo "| ids by | one connection, calls/s | 16 connections, calls/s | 16 connections, rows/s | one statement, ns an id | 16 bulk loads, duplicates of ids |"
echo "|---|--:|--:|--:|--:|--:|"
per_id() { median | awk -v n="$bulk" '{ printf "%.0f", $1 * 1e6 / n }'; }
for i in "${!subjects[@]}"; do
    twice=$(awk -F'|' '{ d += $1; n += $2 } END { printf "%d of %d", d, n }' "$scratch/twice.$i")
    echo "| ${subjects[i]} | $(median <"$scratch/alone.$i") | $(median <"$scratch/calls.$i") | $(median <"$scratch/inserts.$i") | $(per_id <"$scratch/bulk.$i") | $twice |"
done
echo "| snowmint_next_ids($bulk) | | | | $(per_id <"$scratch/many") | |"
echo
echo "Median of $rounds rounds, $(psql -V | awk '{ print "PostgreSQL", $3 }'). Calls are \`SELECT\` of one id; rows are \`INSERT\` of one row with a \`DEFAULT\`,"
echo "each committed and synced; bulk loads are \`INSERT\` of 5,000 rows. Instagram's function counts modulo 1,024 a millisecond and"
echo "does not notice when it wraps. About one call a second of snowmint_next_id is synced too, of nextval one in 32. pgEdge's README"
echo "(github.com/pgEdge/snowflake) says of its extension, without a table: \"in the double digit per millisecond range\"."
