#!/usr/bin/env bash
# Counts the instructions per id on each hot path with callgrind. Fails if one rose by more than 5% above instructions/counts.txt.
# `--update` writes that file.
set -euo pipefail
cd "$(dirname "$0")"

# N is a multiple of the largest batch; the difference of two N cancels the cost of starting.
low=8192 high=40960 limit_percent=5
update=no
case "${1-}" in
    --update) update=yes ;;
    '') ;;
    *) echo "usage: $0 [--update]" >&2; exit 2 ;;
esac
command -v valgrind >/dev/null || { echo "valgrind is not installed: apt-get install valgrind" >&2; exit 1; }

export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$PWD/target}"
cargo build --quiet --release --locked --manifest-path instructions/Cargo.toml >&2
program="$CARGO_TARGET_DIR/release/snowmint-instructions"

count() {
    valgrind --tool=callgrind --callgrind-out-file=/dev/null "$program" "$1" "$2" 2>&1 |
        awk '/Collected :/ { print $NF; found = 1 } END { exit !found }'
}

measure() {
    local few many
    few=$(count "$1" "$low")
    many=$(count "$1" "$high")
    awk -v name="$1" -v few="$few" -v many="$many" -v n=$((high - low)) \
        'BEGIN { printf "%s\t%.2f\n", name, (many - few) / n }'
}

counts=$(mktemp)
trap 'rm -f "$counts"' EXIT
for path in $("$program" --list); do measure "$path"; done >"$counts"

if [ "$update" = yes ]; then
    {
        echo "# Instructions an id; written by instructions.sh --update with $(rustc --version | cut -d' ' -f1,2), $(uname -m)."
        cat "$counts"
    } >instructions/counts.txt
    echo "wrote instructions/counts.txt"
    exit
fi

awk -F'\t' -v limit="$limit_percent" '
    BEGIN { print "| path | instructions | before | change |"; print "|---|--:|--:|--:|" }
    NR == FNR { if ($0 !~ /^#/) before[$1] = $2; next }
    !($1 in before) { printf "| %s | %s | - | new: run instructions.sh --update |\n", $1, $2; failed = 1; next }
    {
        change = before[$1] > 0 ? ($2 / before[$1] - 1) * 100 : 0
        mark = ""
        if (change > limit) { mark = " **too many**"; failed = 1 }
        printf "| %s | %s | %s | %+.1f%%%s |\n", $1, $2, before[$1], change, mark
        delete before[$1]
    }
    END {
        for (path in before) { printf "| %s | gone | %s | |\n", path, before[path]; failed = 1 }
        exit failed
    }
' instructions/counts.txt "$counts"
