# Sourced by the other scripts: messages, and who may do what.
# shellcheck shell=bash

: "${program:?the name of the script, for its messages}"

say() { printf '%s: %s\n' "$program" "$*" >&2; }
die() {
    say "$*"
    exit 1
}

have() { command -v -- "$1" >/dev/null 2>&1; }

# Where system tools live that an ordinary user's PATH leaves out on Debian.
PATH=$PATH:/usr/sbin:/sbin

can_be_root() { [ "$(id -u)" -eq 0 ] || have sudo; }

# Runs a command as root: directly, or through sudo.
as_root() {
    if [ "$(id -u)" -eq 0 ]; then
        "$@"
    elif have sudo; then
        sudo "$@"
    else
        die "needs root, and there is no sudo; as root run: $*"
    fi
}
