# Sourced by scripts/setup and scripts/cargo: find a Rust that is new enough.
# shellcheck shell=bash

: "${root:?the root of the repository}"

# The workspace's own statement, such as 1.88.
rust_needed() { sed -n 's/^rust-version *= *"\([0-9.]*\)".*/\1/p' "$root/Cargo.toml"; }

at_least() { [ "$(printf '%s\n%s\n' "$1" "$2" | sort -V | head -n 1)" = "$2" ]; }

# Whether the directory $1 holds cargo and rustc that are new enough.
rust_suits() {
    local tool version
    for tool in cargo rustc; do
        [ -x "$1/$tool" ] || return 1
        version=$("$1/$tool" --version 2>/dev/null | sed -n "s/^$tool \([0-9.]*\).*/\1/p")
        [ -n "$version" ] && at_least "$version" "$(rust_needed)" || return 1
    done
}

# Prints the directory of the first suitable cargo: the one in PATH, rustup's,
# a versioned one of the distribution, another toolchain of rustup.
find_rust() {
    local candidate rustup='' home=${CARGO_HOME:-${HOME:-/root}/.cargo}
    candidate=$(command -v cargo || true)
    for candidate in "${candidate%/*}" "$home/bin" /usr/bin /usr/lib/rust-*/bin; do
        if [ -n "$candidate" ] && rust_suits "$candidate"; then
            printf '%s\n' "$candidate"
            return
        fi
    done
    if have rustup; then
        rustup=rustup
    elif [ -x "$home/bin/rustup" ]; then
        rustup=$home/bin/rustup
    fi
    if [ -n "$rustup" ] && candidate=$(RUSTUP_AUTO_INSTALL=0 "$rustup" which --toolchain stable cargo 2>/dev/null); then
        candidate=${candidate%/*}
        if rust_suits "$candidate"; then
            printf '%s\n' "$candidate"
            return
        fi
    fi
    return 1
}

# Whether the directory $1 has rustfmt and clippy as well.
rust_has_lint_tools() {
    PATH=$1:$PATH cargo fmt --version >/dev/null 2>&1 && PATH=$1:$PATH cargo clippy --version >/dev/null 2>&1
}
