#!/usr/bin/env bash
# Requests per second of `snowmint serve` compared with redis-server's INCR, in one run, in rounds that take turns.
# Prints Markdown. Client and server share this machine; everything listens on loopback and ends with the script.
set -euo pipefail
cd "$(dirname "$0")"

rounds=5 small=100000 large=2000000 http_seconds=2
case "${1-}" in
    --quick) rounds=1 small=20000 large=300000 http_seconds=1 ;;
    '') ;;
    *) echo "usage: $0 [--quick]   (SNOWMINT=path of the binary, if not the dist build)" >&2; exit 2 ;;
esac
for tool in redis-server redis-benchmark redis-cli; do
    command -v "$tool" >/dev/null || { echo "$tool is not installed: apt-get install redis-server redis-tools" >&2; exit 1; }
done

snowmint="${SNOWMINT:-${CARGO_TARGET_DIR:-../target}/dist/snowmint}"
[ -x "$snowmint" ] || { echo "no binary: cargo build --profile dist -p snowmint-cli" >&2; exit 1; }

scratch=$(mktemp -d)
started=()
finish() {
    for pid in "${started[@]}"; do kill "$pid" 2>/dev/null || true; done
    for pid in "${started[@]}"; do wait "$pid" 2>/dev/null || true; done
    rm -rf "$scratch"
}
trap finish EXIT

free_port() {
    local port
    while :; do
        port=$((20000 + RANDOM % 20000))
        (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null || { echo "$port"; return; }
    done
}

# until_ready PID COMMAND...: waits until the command succeeds.
until_ready() {
    local pid=$1
    shift
    for _ in $(seq 300); do
        "$@" >/dev/null 2>&1 && return
        kill -0 "$pid" 2>/dev/null || break
        sleep 0.05
    done
    echo "did not start: $*" >&2
    cat "$scratch"/*.log >&2 || true
    return 1
}

draws() { [[ $(redis-cli -p "$1" ID.NEXT default 2>/dev/null) =~ ^[0-9]+$ ]]; }

# redis NAME OPTION...: sets port and pid.
redis() {
    local name=$1
    shift
    port=$(free_port)
    mkdir "$scratch/$name"
    redis-server --bind 127.0.0.1 --port "$port" --dir "$scratch/$name" --save '' --daemonize no --loglevel warning "$@" \
        >"$scratch/$name.log" 2>&1 &
    pid=$!
    started+=("$pid")
    until_ready "$pid" redis-cli -p "$port" PING
}
redis redis --appendonly no
redis_port=$port redis_pid=$pid
redis everysec --appendonly yes --appendfsync everysec
everysec_port=$port everysec_pid=$pid
redis always --appendonly yes --appendfsync always
always_port=$port always_pid=$pid
printf '[namespaces.numbers]\nscheme = "segment"\n' >"$scratch/namespaces.toml"

# serve NAME LAYOUT: sets port, http and pid.
serve() {
    port=$(free_port) http=$(free_port)
    "$snowmint" serve --http "127.0.0.1:$http" --resp "127.0.0.1:$port" --data "$scratch/$1" --layout "$2" \
        --namespaces-file "$scratch/namespaces.toml" >"$scratch/$1.log" 2>&1 &
    pid=$!
    started+=("$pid")
    until_ready "$pid" draws "$port"
}
serve default twitter
default_port=$port default_http=$http default_pid=$pid
# A sequence of 20 bits: shows the server without the limit of the layout.
serve wide 'time:41@1ms worker:2 sequence:20 epoch:2026-01-01'
wide_port=$port wide_pid=$pid

cpu_ns() { cat /proc/"$1"/task/*/schedstat | awk '{ sum += $1 } END { printf "%.0f", sum }'; }

results="$scratch/results.tsv"
client=()

# benchmark MODE ROUND PIPELINE REQUESTS SUBJECT PORT PID COMMAND...
benchmark() {
    local mode=$1 round=$2 pipeline=$3 requests=$4 subject=$5 port=$6 pid=$7
    shift 7
    local before after
    before=$(cpu_ns "$pid")
    "${client[@]}" redis-benchmark -p "$port" -c 50 -n "$requests" -P "$pipeline" --csv "$@" >"$scratch/csv"
    after=$(cpu_ns "$pid")
    tail -1 "$scratch/csv" | tr -d '"' | awk -F, -v OFS='\t' \
        -v mode="$mode" -v round="$round" -v p="$pipeline" -v subject="$subject" -v ns=$((after - before)) -v n="$requests" \
        '{ print mode, p, subject, round, $2, $5 * 1000, $7 * 1000, ns / n }' >>"$results"
}

run_round() {
    local mode=$1 round=$2
    benchmark "$mode" "$round" 1 "$small" 'redis-server `INCR`' "$redis_port" "$redis_pid" INCR counter
    benchmark "$mode" "$round" 1 "$small" '`ID.NEXT default`' "$default_port" "$default_pid" ID.NEXT default
    benchmark "$mode" "$round" 64 "$large" 'redis-server `INCR`' "$redis_port" "$redis_pid" INCR counter
    benchmark "$mode" "$round" 64 "$large" '`ID.NEXT default`' "$default_port" "$default_pid" ID.NEXT default
    local pipeline requests
    for pipeline in 1 64; do
        requests=$((pipeline == 1 ? small : large))
        benchmark "$mode" "$round" "$pipeline" "$requests" '`INCR numbers`' "$default_port" "$default_pid" INCR numbers
        benchmark "$mode" "$round" "$pipeline" "$requests" 'redis-server `INCR`, appendfsync everysec' "$everysec_port" "$everysec_pid" INCR counter
        benchmark "$mode" "$round" "$pipeline" "$requests" 'redis-server `INCR`, appendfsync always' "$always_port" "$always_pid" INCR counter
    done
    benchmark "$mode" "$round" 64 "$large" '`ID.NEXT default`, sequence of 20 bits' "$wide_port" "$wide_pid" ID.NEXT default
}

modes=(unpinned)
if command -v taskset >/dev/null && [ "$(nproc)" -ge 2 ]; then modes+=(pinned); fi
pin() { for pid in "$redis_pid" "$everysec_pid" "$always_pid" "$default_pid" "$wide_pid"; do taskset -apc "$1" "$pid" >/dev/null; done; }

run_round warm-up 0
for round in $(seq "$rounds"); do
    for mode in "${modes[@]}"; do
        if [ "$mode" = pinned ]; then client=(taskset -c 0) && pin 1; else client=() && pin "0-$(($(nproc) - 1))"; fi
        run_round "$mode" "$round"
    done
done 2>/dev/null

echo
echo "## RESP: requests a second, \`redis-benchmark -c 50\`"
echo
echo "Medians of $rounds interleaved rounds; the ratio is that of each round, to redis-server without persistence in the same round."
echo "\`INCR numbers\` is durable before it is answered, by segments in SQLite."
echo "The default layout limits one worker to 4,096,000 ids a second. Pinned: server on one processor, client on another."
echo
awk -F'\t' '
    function median(list, values, count, i, j, t) {
        count = split(list, values, " ")
        for (i = 2; i <= count; i++)
            for (j = i; j > 1 && values[j - 1] + 0 > values[j] + 0; j--) { t = values[j]; values[j] = values[j - 1]; values[j - 1] = t }
        return values[int((count + 1) / 2)]
    }
    $1 == "warm-up" { next }
    {
        key = $1 FS $2 FS $3
        if (!(key in rps)) order[++keys] = key
        round = $1 FS $2 FS $4
        if ($3 == "redis-server `INCR`") base[round] = $5
        rps[key] = rps[key] " " $5; p50[key] = p50[key] " " $6; p99[key] = p99[key] " " $7; cpu[key] = cpu[key] " " $8
        ratio[key] = ratio[key] " " $5 / base[round]
    }
    END {
        print "| processors | pipeline | subject | requests/s | ratio | p50 us | p99 us | server CPU ns a request |"
        print "|---|--:|---|--:|--:|--:|--:|--:|"
        for (i = 1; i <= keys; i++) {
            key = order[i]
            split(key, part, FS)
            printf "| %s | %s | %s | %.0f | %.2f | %.0f | %.0f | %.0f |\n", part[1], part[2], part[3],
                median(rps[key]), median(ratio[key]), median(p50[key]), median(p99[key]), median(cpu[key])
        }
    }
' "$results"

echo
echo "## Ids in batches and over HTTP"
echo
echo "| what | requests/s | ids/s | p50 us | p99 us |"
echo "|---|--:|--:|--:|--:|"
client=()
benchmark batch 1 1 $((small / 5)) '`ID.NEXT default COUNT 100`' "$default_port" "$default_pid" ID.NEXT default COUNT 100
tail -1 "$results" | awk -F'\t' '{ printf "| %s, c=50 | %.0f | %.0f | %.0f | %.0f |\n", $3, $5, $5 * 100, $6, $7 }'
if command -v wrk >/dev/null; then
    # http COUNT: one row, the median of the rounds by requests a second.
    http() {
        for _ in $(seq $(((rounds + 1) / 2))); do
            wrk -t1 -c50 -d"${http_seconds}s" --latency "http://127.0.0.1:$default_http/v1/ids/default?count=$1" |
                awk -v count="$1" '
                    function us(text) { if (text ~ /us$/) return text + 0; if (text ~ /ms$/) return text * 1000; return text * 1000000 }
                    $1 == "50%" { p50 = us($2) } $1 == "99%" { p99 = us($2) } $1 == "Requests/sec:" { rps = $2 }
                    /Non-2xx/ { bad = ", **" $NF " refused**" }
                    END { printf "| HTTP `GET /v1/ids/default?count=%s`, wrk c=50%s | %.0f | %.0f | %.0f | %.0f |\n", count, bad, rps, rps * count, p50, p99 }'
        done | sort -t'|' -k3n | awk '{ line[NR] = $0 } END { print line[int((NR + 1) / 2)] }'
    }
    http 1
    http 100
else
    echo "| HTTP | wrk is not installed | | | |"
fi
