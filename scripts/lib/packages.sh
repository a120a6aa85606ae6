# Sourced by scripts/setup: the system packages of each group.
# shellcheck shell=bash

# One line each: package | groups | probe | what for
# A probe is a command, a file (pattern) with a slash, or py:MODULE. What the
# probe finds is used as it is, wherever it came from. What is `optional` as well is left out
# where the system's archive doesn't have it; tests that need it say that they are skipped.
package_table='
gcc              | build test demo bench lint deny fuzz | cc                              | link Rust, compile C
libc6-dev        | build test demo bench lint deny fuzz | /usr/include/stdio.h            | C headers to link against
ca-certificates  | build test demo bench lint deny fuzz | /etc/ssl/certs/ca-certificates.crt | fetch Rust crates and MPICH
make             | test demo bench            | make                            | build the MPI programs
protobuf-compiler| build test demo bench lint deny fuzz | protoc                          | generate the gRPC services
valgrind         | test                       | valgrind                        | faults of memory in the preloaded library; programs under it are carried
procps           | test                       | ps                              | look for processes left behind
iproute2         | test demo bench dist       | ip                              | network namespaces and links of the lab
nftables         | test demo bench            | nft                             | NAT and firewalls of the lab
conntrack        | test                       | conntrack                       | make NATs of the lab forget
openmpi-bin      | test demo bench            | mpirun.openmpi                  | Open MPI, launcher and compiler wrapper
libopenmpi-dev   | build test bench ray2mesh  | /usr/lib/*/openmpi/include/mpi.h| compile the MPI library for Open MPI
mpich            | test bench                 | mpirun.mpich                    | MPICH 4, launcher and compiler wrapper
libmpich-dev     | build test bench           | /usr/include/*/mpich/mpi.h      | compile the MPI library for MPICH
g++              | test bench fuzz            | c++                             | compile C++ programs for MPI, and the fuzzer
gfortran         | test bench                 | gfortran                        | compile Fortran programs for MPI
lammps           | test demo bench            | lmp                             | the program of the demo
python3-venv     | test bench dist ray2mesh portable symbols | py:ensurepip                    | install MPIs apart from the system
python3-torch    | test-all bench             | /usr/lib/python3*/dist-packages/torch/__init__.py | PyTorch with Gloo between sites (150 MB)
postgresql       | test-all                   | /usr/lib/postgresql/*/bin/initdb| PostgreSQL between sites
nginx-light      | test-all                   | /usr/sbin/nginx                 | a web server between sites
apache2-utils    | test-all                   | ab                              | 1,000 connections to that
slurmctld        | test bench                 | slurmctld                       | Slurm in the lab: batch jobs with isthmus (6 MB)
slurmd           | test bench                 | slurmd                          | the same, on nodes of the lab
slurm-client     | test bench                 | sbatch                          | the same, its commands
munge            | test bench                 | munged                          | the same, how its parts know one another
dma              | test optional              | /usr/sbin/sendmail              | the next ones want a program that sends mail; this one is no service
gridengine-master| test optional              | sge_qmaster                     | Grid Engine in the lab: pilots on it (50 MB)
gridengine-exec  | test optional              | sge_execd                       | the same, on nodes of the lab
gridengine-client| test optional              | qsub                            | the same, its commands
libfaketime      | test                       | /usr/lib/*/faketime/libfaketimeMT.so.1 | a cluster whose clock is wrong
gdb              | test-all                   | gdb                             | programs under a debugger are carried
bubblewrap       | test                       | bwrap                           | programs in a container are carried
podman           | test-all                   | podman                          | nodes in containers of an ordinary user (80 MB)
slirp4netns      | test-all                   | slirp4netns                     | the networks of these containers
nodejs           | test-all                   | node                            | Node.js between sites (13 MB)
default-jdk-headless | test-all               | javac                           | compile and run Java between sites (120 MB)
python3-zmq      | test-all                   | /usr/lib/python3*/dist-packages/zmq/__init__.py | ZeroMQ between sites (1 MB)
python3-grpcio   | test-all                   | /usr/lib/python3*/dist-packages/grpc/__init__.py | gRPC between sites (3 MB)
redis-server     | test-all                   | redis-server                    | Redis, its client and its benchmark between sites (2 MB)
python3-distributed | test-all bench          | /usr/lib/python3*/dist-packages/distributed/__init__.py | Dask between sites (3 MB)
golang-go        | test-all                   | go                              | programs in Go are recognised
musl-tools       | test                       | musl-gcc                        | programs for another C library are recognised
iperf3           | test-all bench             | iperf3                          | check rates and delays of the lab; a program between sites
haproxy          | bench                      | haproxy                         | relay to compare with
socat            | bench                      | socat                           | relay to compare with
openssl          | bench                      | openssl                         | certificate of the HAProxy to compare with
stunnel4         | bench                      | stunnel                         | encrypted tunnel to compare with
wireguard-go     | bench                      | wireguard-go                    | encrypted tunnel to compare with
nebula           | bench                      | nebula                          | encrypted network to compare with
wireguard-tools  | bench                      | wg                              | sets up that tunnel
openssh-client   | bench                      | ssh                             | encrypted tunnel to compare with
openssh-server   | bench                      | sshd                            | encrypted tunnel to compare with
libsimgrid-dev   | bench                      | smpicc                          | simulate collectives of thousands of ranks
binutils         | dist symbols               | readelf                         | find which C library the binaries need
dpkg             | dist                       | dpkg-deb                        | make the Debian package
rpm              | dist                       | rpmbuild                        | make the RPM
debootstrap      | dist                       | debootstrap                     | new Debian systems to try the packages in
qemu-user-static | dist                       | qemu-aarch64-static             | run what is compiled for ARM (40 MB)
shellcheck       | lint                       | shellcheck                      | check the shell scripts
python3          | lint dist                  | python3                         | check the docs and the picture of the crates, make the wheel
'

# Services that a package would start and enable by itself. Nothing here needs
# them to run, and nobody asked for an open port.
declare -A package_units=(
    [openssh-server]='ssh.service ssh.socket'
    [haproxy]='haproxy.service'
    [stunnel4]='stunnel4.service'
    [iperf3]='iperf3.service'
    [nftables]='nftables.service'
    [nginx-light]='nginx.service'
    [redis-server]='redis-server.service'
    [postgresql]='postgresql.service'
    [podman]='podman.service podman.socket podman-restart.service podman-auto-update.service podman-auto-update.timer'
    [slurmctld]='slurmctld.service'
    [slurmd]='slurmd.service'
    [munge]='munge.service'
    [gridengine-master]='gridengine-master.service'
    [gridengine-exec]='gridengine-exec.service'
)

probe() {
    case $1 in
        py:*) system_python -c "import ${1#py:}" >/dev/null 2>&1 ;;
        */*) compgen -G "$1" >/dev/null ;;
        *) have "$1" ;;
    esac
}

# Debian's own Python: python3-venv belongs to it, whichever python3 is first in PATH.
system_python() {
    if [ -x /usr/bin/python3 ]; then /usr/bin/python3 "$@"; else python3 "$@"; fi
}

trim() {
    local text=$1
    text=${text#"${text%%[![:space:]]*}"}
    printf '%s' "${text%"${text##*[![:space:]]}"}"
}

# Whether a package is optional, and the system's archive doesn't have it.
is_left_out() {
    [[ " $(trim "$2") " == *' optional '* ]] && ! apt-cache show "$1" >/dev/null 2>&1
}

# Prints "package<TAB>what for" for each missing package of the given groups.
missing_packages() {
    local name groups test reason group
    while IFS='|' read -r name groups test reason; do
        name=$(trim "$name")
        [ -n "$name" ] || continue
        for group in "$@"; do
            if [[ " $(trim "$groups") " == *" $group "* ]]; then
                probe "$(trim "$test")" || is_left_out "$name" "$groups" ||
                    printf '%s\t%s\n' "$name" "$(trim "$reason")"
                break
            fi
        done
    done <<<"$package_table"
}

apt_updated=
apt_trouble=
apt_update() {
    if [ -z "$apt_updated" ] && can_be_root; then
        # Without the option it says nothing of a server that it has not reached. One of
        # several may be away; what that means shows when packages are installed.
        if ! as_root apt-get -q -o DPkg::Lock::Timeout=300 -o APT::Update::Error-Mode=any update >&2; then
            # shellcheck disable=SC2034 # for who installs
            apt_trouble='; apt-get update has failed before: is this machine connected, and is /etc/apt right?'
        fi
        apt_updated=yes
    fi
}

apt_get() {
    apt_update
    as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -y \
        -o DPkg::Lock::Timeout=300 -o Dpkg::Use-Pty=0 "$@" >&2
}

# Installs packages; never removes one, and starts no service: while it runs, a
# policy-rc.d says that none may start. Not for a subshell: it sets a trap.
apt_install() {
    local policy=/usr/sbin/policy-rc.d status=0 package
    can_be_root || die "needs root, and there is no sudo; as root run: apt-get install --no-install-recommends $*"
    if [ ! -e "$policy" ]; then
        trap 'as_root rm -f /usr/sbin/policy-rc.d' EXIT
        printf '#!/bin/sh\nexit 101\n' | as_root tee "$policy" >/dev/null
        as_root chmod 755 "$policy"
    else
        policy=
    fi
    apt_get --no-remove --no-install-recommends install "$@" || status=$?
    if [ -n "$policy" ]; then
        as_root rm -f "$policy"
        trap - EXIT
    fi
    [ "$status" -eq 0 ] || return "$status"
    for package in "$@"; do
        disable_units "$package"
    done
}

# Where there is no systemd (containers), nothing starts these anyway.
disable_units() {
    local unit
    have systemctl || return 0
    for unit in ${package_units[$1]:-}; do
        if [ "$(systemctl is-enabled "$unit" 2>/dev/null)" = enabled ]; then
            as_root systemctl disable --quiet "$unit"
            say "$1: left $unit disabled"
        fi
    done
}
