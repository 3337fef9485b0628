#!/usr/bin/env bash
# Tries a binary in a minute, on Linux, macOS or Windows (Git Bash): packaging/smoke.sh [EMULATOR] BINARY. It makes ids, starts a
# node with a file as its store, draws ids from it, and draws greater ones after a restart.
set -euo pipefail
[[ $# == 1 || $# == 2 ]] || { echo "usage: $0 [EMULATOR] BINARY" >&2; exit 2; }
snowmint=("$@")
folder=$(mktemp -d)
node=
trap '[[ -z $node ]] || kill "$node" 2>/dev/null || true; rm -rf "$folder"' EXIT
fail() { echo "failed: $*" >&2; [[ ! -e $folder/log ]] || cat "$folder/log" >&2; exit 1; }

"${snowmint[@]}" --version
made=$("${snowmint[@]}" new -n 3)
[[ $(sort -un <<<"${made//$'\r'/}" | wc -l) -eq 3 ]] || fail "no three ids: $made"
"${snowmint[@]}" inspect 1541815603606036480 >/dev/null || fail 'inspect'

port=$((20000 + RANDOM % 20000))
draw() {
    "${snowmint[@]}" serve --data "$folder/data" --http "127.0.0.1:$port" --resp "127.0.0.1:$((port + 1))" >"$folder/log" 2>&1 &
    node=$!
    local answer=
    for _ in {1..100}; do
        answer=$(curl --silent --fail --noproxy '*' "http://127.0.0.1:$port/v1/ids/default?format=text" || true)
        [[ ! $answer =~ ^[0-9]+ ]] || break
        kill -0 "$node" 2>/dev/null || fail 'the node ended'
        sleep 0.3
    done
    id=${answer//[!0-9]/}
    [[ -n $id ]] || fail 'no id within 30 s'
    kill "$node"
    wait "$node" || true
    node=
}
draw; first=$id
draw
((id > first)) || fail "$id came after $first"
echo "drew $first, and $id after a restart"
