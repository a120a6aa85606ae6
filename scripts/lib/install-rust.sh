# Sourced by scripts/setup: install Rust, from the distribution if it has a new one.
# shellcheck shell=bash

# The version of a package that apt would install, without epoch and suffix.
apt_candidate() {
    LC_ALL=C apt-cache policy "$1" 2>/dev/null |
        sed -n 's/^ *Candidate: *\([0-9]*:\)\{0,1\}\([0-9][0-9.]*\).*/\2/p'
}

# The sets of packages that hold a Rust new enough, best first, one per line:
# the plain packages, Debian's rustc-web (kept new in stable releases, to build
# browsers with), Ubuntu's versioned ones.
rust_packages() {
    local needed=$1 version
    version=$(apt_candidate rustc)
    if [ -n "$version" ] && at_least "$version" "$needed"; then
        printf 'rustc cargo rust-clippy rustfmt\n'
    fi
    version=$(apt_candidate rustc-web)
    if [ -n "$version" ] && at_least "$version" "$needed"; then
        printf 'rustc-web cargo-web rust-web-clippy rustfmt-web\n'
    fi
    for version in $(LC_ALL=C apt-cache pkgnames rustc-1. | sed -n 's/^rustc-\(1\.[0-9]*\)$/\1/p' | sort -rV); do
        if at_least "$version" "$needed"; then
            printf 'rustc-%s cargo-%s rust-%s-clippy rustfmt-%s\n' "$version" "$version" "$version" "$version"
        fi
    done
}

# Only the packages that apt knows: not every version has its own rustfmt.
known_packages() {
    local package
    for package in "$@"; do
        [ -z "$(apt_candidate "$package")" ] || printf '%s\n' "$package"
    done
}

install_rust() {
    local needed line lines
    needed=$(rust_needed)
    if have apt-get; then
        apt_update
        mapfile -t lines < <(rust_packages "$needed")
        for line in "${lines[@]}"; do
            # shellcheck disable=SC2046,SC2086 # a list of words
            set -- $(known_packages $line)
            say "installing $* (Rust $needed or newer, to build isthmus)"
            apt_install "$@" && find_rust >/dev/null && return
            say "apt could not install $*; if older packages stand in the way, remove those first (see above)"
        done
    fi
    if ! have rustup && have apt-get && [ -n "$(apt_candidate rustup)" ]; then
        say 'installing rustup (this distribution'\''s own Rust is too old)'
        apt_install rustup || true
    fi
    if have rustup; then
        say 'installing the stable Rust toolchain with rustup'
        rustup toolchain install stable --profile minimal --component rustfmt --component clippy || true
        find_rust >/dev/null && return
    fi
    die "needs Rust $needed or newer and found no way to install it; get it from https://rustup.rs, then try again"
}

# Debian's package that the Rust in $1 comes from; nothing if it comes from elsewhere.
package_of_rust() {
    { dpkg -S "$(readlink -f "$1/rustc")" 2>/dev/null || true; } | sed 's/:.*//' | head -n 1
}

install_lint_tools() {
    local rust=$1 package
    if PATH=$rust:$PATH have rustup && PATH=$rust:$PATH rustup component add rustfmt clippy; then
        return
    fi
    package=$(package_of_rust "$rust")
    case $package in
        rustc-web) apt_install rust-web-clippy rustfmt-web ;;
        rustc-1.*)
            # shellcheck disable=SC2046 # a list of words
            apt_install $(known_packages "rust-${package#rustc-}-clippy" "rustfmt-${package#rustc-}")
            ;;
        rustc) apt_install rust-clippy rustfmt ;;
        *) die "the Rust in $rust has no rustfmt or no clippy; install them, then try again" ;;
    esac
}

# Whether the Rust in $1 can compile for the machines $2, such as aarch64.
rust_has_target() {
    local libraries
    libraries=$(PATH=$1:$PATH rustc --print target-libdir --target "$2-unknown-linux-gnu" 2>/dev/null) &&
        compgen -G "$libraries/libstd-*.rlib" >/dev/null
}

# Debian's packages of Rust have the libraries of other machines as packages of those.
install_rust_target() {
    local rust=$1 machine=$2 package architecture
    local -A architectures=([x86_64]=amd64 [aarch64]=arm64)
    say "installing Rust's libraries for $machine (to compile for all machines)"
    if PATH=$rust:$PATH have rustup && PATH=$rust:$PATH rustup target add "$machine-unknown-linux-gnu"; then
        return
    fi
    architecture=${architectures[$machine]}
    package=$(package_of_rust "$rust")
    [ -n "$package" ] || die "the Rust in $rust has no libraries for $machine; install them, then try again"
    as_root dpkg --add-architecture "$architecture"
    # shellcheck disable=SC2034 # of packages.sh: there is a new list to fetch
    apt_updated=
    apt_install "libstd-rust${package#rustc}-dev:$architecture"
    rust_has_target "$rust" "$machine" || die "installed, but the Rust in $rust still can't compile for $machine"
}
