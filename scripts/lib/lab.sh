# Sourced by the demos: an emulated grid that is gone when they end.
# shellcheck shell=bash

target=${CARGO_TARGET_DIR:-target}
[[ $target == /* ]] || target=$PWD/$target
isthmus=${ISTHMUS_BIN:-$target/demo/isthmus}
: "${lab:?its name, which no other lab has}"

say() { printf '\n\033[1m%s\033[0m\n' "$*"; }
on() { local node=$1; shift; "$isthmus" lab exec --lab "$lab" "$node" -- "$@"; }

scratch=$(mktemp -d)
finish() {
    "$isthmus" lab down --lab "$lab" >/dev/null 2>&1 || true
    rm -rf "$scratch"
}
trap finish EXIT
trap 'exit 130' INT TERM HUP

# In root's labs everybody is root; MPI asks whether that is meant. Nodes share
# this machine's cores, so ranks that wait must yield.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_mpi_yield_when_idle=1

# Brings up a grid whose nodes see these directories, wherever they lie.
lab_up() {
    local grid=$1 shared
    shift
    shared=$(printf ', "%s"' "$@")
    { printf 'share = [%s]\n' "${shared#, }" && cat "$grid"; } >"$scratch/grid.toml"
    "$isthmus" lab up --lab "$lab" "$scratch/grid.toml"
}
