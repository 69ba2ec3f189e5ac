#!/usr/bin/env bash
# A demonstration on a simulated server, in under a minute: jobs start and queue, one is killed with -9 and the
# next job gets its GPU, a stranger is detected. Run by `./dev run`; needs berth and berth-sim-job in PATH.
set -euo pipefail

folder=$(mktemp -d)
mkdir -m 1777 "$folder/harbour"
export BERTH_SIM=2x24GiB BERTH_SIM_STATE=$folder/sim.state BERTH_DIR=$folder/harbour
unset BERTH_LEASE CUDA_VISIBLE_DEVICES
started=()
finish() {
    for pid in "${started[@]}"; do kill "$pid" 2>/dev/null || true; done
    wait 2>/dev/null || true
    rm -rf "$folder"
}
trap finish EXIT
trap 'exit 130' INT

if [ -t 1 ]; then bold=$'\e[1m' plain=$'\e[0m'; else bold='' plain=''; fi
tell() { printf '\n%s%s%s\n' "$bold" "$*" "$plain"; }
show() { printf '$ %s\n' "$*"; "$@"; }
# pause SECONDS: gives the viewer time to read; the programs do not need it.
pause() { sleep "${BERTH_STORY_PAUSE:-$1}"; }
# until_true COMMAND...: waits until the command succeeds, for at most 20 seconds.
until_true() {
    local i
    for i in $(seq 200); do
        if "$@" >/dev/null 2>&1; then return 0; fi
        sleep 0.1
    done
    echo "story: gave up after 20 s, waiting for: $*" >&2
    exit 1
}
# job LABEL SECONDS: starts a job in the background, with its messages in a file of its own.
job() {
    printf '$ berth run --label %s -- berth-sim-job --mem 8GiB --time %ss &\n' "$1" "$2"
    berth run --label "$1" -- berth-sim-job --quiet --mem 8GiB --util 90 --time "$2s" 2>"$folder/$1.log" &
    started+=($!)
}
holds() { berth status --json | tr -d '\n ' | grep -q "\"leases\":\[{[^]]*\"label\":\"$1\""; }
waits() { berth status --json | tr -d '\n ' | grep -q "\"queue\":\[{.*\"label\":\"$1\""; }
gone() { ! holds "$1" && ! waits "$1"; }

tell "A simulated server with two GPUs, and three users: Ann, Bob and Eve."
show berth status
pause 2

tell "Ann and Bob start jobs. Each job gets a GPU at once."
job ann 30
until_true holds ann
job bob 12
until_true holds bob

tell "Eve starts a third job. It waits, shows the reason, and starts as soon as a GPU is free."
job eve 6
until_true waits eve
show berth status
pause 3

tell "Ann's job and its berth process are killed with -9. The kernel closes the bell: the lease ends, and Eve's job starts."
ann=${started[0]}
printf '$ kill -9 %s %s\n' "$ann" "$(pgrep -P "$ann" | tr '\n' ' ')"
# shellcheck disable=SC2046
kill -9 "$ann" $(pgrep -P "$ann")
wait "$ann" 2>/dev/null || true
until_true holds eve
show berth status
pause 3

tell "A user runs a program on Bob's GPU without berth. When Bob's job ends, berth reports the program as a stranger."
CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES=1 berth-sim-job --quiet --mem 9GiB --util 60 --time 60s &
started+=($!)
until_true gone bob
until_true gone eve
show berth status
pause 2

tell "Berth does not grant that GPU. A request for both GPUs waits, and shows the process that uses the GPU:"
printf '$ berth run -n 2 --timeout 2s -- true\n'
berth run -n 2 --timeout 2s -- true || printf '(exit code %s)\n' $?

tell "End of the demonstration. Next: README.md, and berth --help"
