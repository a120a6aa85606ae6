# shellcheck shell=bash disable=SC2154
# For tests/check, which has what is used here: parts on communicators.

# Calls that make a communicator, while another thread calls collectives. What the MPI can't do by
# itself isn't the library's to mend: after a failure the call is made without it, and if that fails,
# too, left out.
contexts() {
    local skipped="" name
    in_sites turns
    until launch "$1" 3 "${sites[@]}" "$CHECK/$1/contexts" "$CHECK/file" but "$skipped" | tee "$CHECK/said"; do
        name=$(sed -n 's/^contexts: //p' "$CHECK/said" | tail -n 1)
        [[ -n $name && $name != "done" && " $skipped " != *" $name "* ]]
        if launch "$1" 3 "$CHECK/$1/contexts" "$CHECK/file" only "$name"; then
            echo "$name: right without the library, and not with it"
            return 1
        fi
        skipped+=" $name"
    done
    grep -qx "contexts: done" "$CHECK/said"
    # The calls that programs make, every MPI must be able to make so.
    for name in dup split create cart_create; do
        [[ " $skipped " != *" $name "* ]]
    done
}

# Threads that make and free communicators of their own, by chance. An MPI may fail at that by itself:
# what counts is a seed with which it doesn't.
chance() {
    local seed algorithm
    in_sites turns
    for seed in 1 2 3 4; do
        algorithm=$([[ $((seed % 2)) == 0 ]] && echo leaders || echo auto)
        launch "$1" 4 "${sites[@]}" ISTHMUS_COLL="$algorithm" "$CHECK/$1/chance" "$seed" | tee "$CHECK/said" &&
            grep -qx "chance: done" "$CHECK/said" && continue
        for _ in 1 2 3; do
            launch "$1" 4 "$CHECK/$1/chance" "$seed" || continue 2
        done
        echo "seed $seed: right without the library, and not with it"
        return 1
    done
}

# What the library keeps for a communicator, beside what the MPI does: ours, its own.
bytes_of_one() {
    local own whole
    in_sites turns
    own=$(launch "$1" 2 "$CHECK/$1/comms" 200 bytes | awk '/^bytes of one: / { print $4 }')
    whole=$(launch "$1" 2 "${sites[@]}" "$CHECK/$1/comms" 200 bytes | awk '/^bytes of one: / { print $4 }')
    echo "a communicator takes $whole bytes, without the library $own"
    ((whole - own < 3000))
}

comms() {
    in_sites turns
    launch "$1" 3 "${sites[@]}" "$CHECK/$1/comms"
    launch "$1" 2 "${sites[@]}" "$CHECK/$1/comms" 2500
    launch "$1" 2 "${sites[@]}" "$CHECK/$1/comms" 1000 merged
    # MPICH's communicators are in pools, which grow by much at a time.
    [[ $1 != openmpi* ]] || bytes_of_one "$1"
}
