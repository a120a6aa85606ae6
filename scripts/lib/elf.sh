# Sourced by scripts/dist: what programs and libraries need of the system.
# shellcheck shell=bash

# The newest version of the C library of which one of the files needs a function, as 2.34.
glibc_needed() {
    readelf --version-info --wide "$@" | sed -n 's/.*Name: GLIBC_\([0-9][0-9.]*\) .*/\1/p' | sort -V | tail -n 1
}

# The kind of machines that runs a program, as uname calls it.
machine_of() {
    case $(readelf --file-header --wide "$1") in
        *'Advanced Micro Devices X86-64'*) echo x86_64 ;;
        *AArch64*) echo aarch64 ;;
        *) die "no packages are made for the kind of machine of $1" ;;
    esac
}

# Debian's packages with the libraries that the files are linked to, with commas.
debian_depends() {
    local file library packages=''
    for file in "$@"; do
        while read -r library; do
            case $library in
                libc.so.6 | libm.so.6 | libdl.so.2 | libpthread.so.0 | librt.so.1 | libutil.so.1 | ld-linux*)
                    packages+="libc6 (>= $(glibc_needed "$file"))"$'\n'
                    ;;
                libgcc_s.so.1) packages+=$'libgcc-s1\n' ;;
                # Only loaded into programs that have it already.
                libmpi.so.*) ;;
                *) die "$file needs $library, and scripts/lib/elf.sh knows no package for that" ;;
            esac
        done < <(readelf --dynamic --wide "$file" | sed -n 's/.*(NEEDED).*\[\(.*\)\]$/\1/p')
    done
    # Of several versions of one package the newest.
    printf '%s' "$packages" | sort -rV | awk '!seen[$1]++' | sort | paste -sd , | sed 's/,/, /g'
}
