# Sourced by scripts/setup: whether this machine can run tests at all. It is asked before
# anything is installed or compiled.
# shellcheck shell=bash

: "${root:?the root of the repository}"

# Dies where no command can be run as root.
expect_root() {
    local why=$1
    [ "$(id -u)" -ne 0 ] || return 0
    have sudo || die "$why needs root, and there is no sudo here. Run it as root."
    # Where nobody can type a password, sudo would fail only after all was compiled.
    if [ ! -t 0 ] && ! sudo -n true 2>/dev/null; then
        die "$why needs root, and sudo asks for a password where there is no terminal. Run it as root," \
            'or on a terminal.'
    fi
}

# Runs a command in new namespaces such as the lab's.
apart() { as_root unshare --net --mount --pid --uts --ipc --fork -- "$@" 2>&1; }

# Dies where root can't make namespaces, which takes no package to find out.
expect_namespaces() {
    local problem
    problem=$(apart true) || die "the tests emulate grids in network namespaces, and root can't make any here:"$'\n' \
        " $problem"$'\n' \
        'Use a machine or virtual machine of your own, or a container that may (docker run --privileged).'
}

# What the kernel must have for the lab, once the tools that use it are installed.
lab_needs=(
    'veth devices|ip link add a0 type veth peer name a1'
    'bridges|ip link add b0 type bridge'
    'TUN devices (/dev/net/tun)|ip tuntap add mode tun t0'
    'NAT by nftables|nft add table ip t; nft add chain ip t c "{ type nat hook postrouting priority 100; }";
        nft add rule ip t c masquerade'
    'conntrack|nft add table ip t; nft add chain ip t c "{ type filter hook forward priority 0; }";
        nft add rule ip t c ct state established accept'
)

# Dies where the kernel lacks something, and names all that it lacks.
expect_kernel() {
    local need problem missing=''
    for need in "${lab_needs[@]}"; do
        problem=$(apart sh -ec "${need#*|}") || missing+=$'\n'"  ${need%%|*}: ${problem//$'\n'/ }"
    done
    [ -z "$missing" ] || die "the tests emulate grids, and this kernel lacks:$missing"$'\n' \
        'Use another kernel, or load its modules (veth, bridge, tun, nf_tables, nft_masq, nft_ct) as root.'
}

# Compiling would fail later, and say less.
fetch_crates() {
    local host problem
    host=$("$root/scripts/cargo" -vV | sed -n 's/^host: //p')
    problem=$("$root/scripts/cargo" fetch --quiet --locked --target "$host" 2>&1) ||
        die "cargo could not fetch the crates that isthmus is built from:"$'\n'"$problem"$'\n' \
            'Connect this machine to the network, or configure a mirror or a vendored copy in ~/.cargo/config.toml.'
}
