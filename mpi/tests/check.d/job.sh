# shellcheck shell=bash disable=SC2154
# For tests/check, which has what is used here.

# A job's directory: a link to the front, and a topology that says where this process is.
job() {
    local rank node
    for rank in 0 1; do
        node=$([[ $rank == 0 ]] && echo alpha || echo beta)
        mkdir -p "$CHECK/job$rank"
        ln -sf "$FRONT" "$CHECK/job$rank/"
        rm -rf "$CHECK/job$rank/mpi"
        mkdir "$CHECK/job$rank/mpi"
        { grep -v ^rank "$TOPOLOGIES/turns"; echo "self n1.$node"; } >"$CHECK/job$rank/topology"
    done
    cat >"$CHECK/job.sh" <<'END'
rank=${OMPI_COMM_WORLD_RANK:-${PMI_RANK:-}}
export ISTHMUS_COLL=${4:-leaders}
[[ $rank == 0 ]] || export ISTHMUS_COLL=leaders
LD_PRELOAD=$1/job$rank/libisthmus_mpi.so exec "$2" 2
END
    launch "$1" 2 ISTHMUS_MPI_REPORT="$CHECK/report" bash "$CHECK/job.sh" "$CHECK" "$CHECK/$1/calls"
    counted bcast 2
    cat "$CHECK"/report/* >"$CHECK/all"
    grep -q '^sent alpha beta [1-9]' "$CHECK/all"
    grep -q '^sent beta alpha [1-9]' "$CHECK/all"
    # Without a word in the environment each reports into its job's directory.
    launch "$1" 2 bash "$CHECK/job.sh" "$CHECK" "$CHECK/$1/calls"
    grep -q "^sent alpha beta [1-9]" "$CHECK"/job0/mpi/mpi.*
    grep -q "^sent beta alpha [1-9]" "$CHECK"/job1/mpi/mpi.*
    # Ranks whose users have asked for different things, or that have read different files:
    # native, and said once.
    rm -f "$CHECK"/report/*
    launch "$1" 2 ISTHMUS_MPI_REPORT="$CHECK/report" bash "$CHECK/job.sh" "$CHECK" "$CHECK/$1/calls" - segments 2>&1 | tee "$CHECK/said"
    said 1 "isthmus: collectives are the MPI's own"
    if counted bcast 1; then return 1; fi
    echo "path alpha beta 1 1" >>"$CHECK/job1/topology"
    rm -f "$CHECK"/report/*
    launch "$1" 2 ISTHMUS_MPI_REPORT="$CHECK/report" bash "$CHECK/job.sh" "$CHECK" "$CHECK/$1/calls" 2>&1 | tee "$CHECK/said"
    said 1 "isthmus: collectives are the MPI's own"
    if counted bcast 1; then return 1; fi
    # One that has none it can read.
    echo "nonsense" >>"$CHECK/job0/topology"
    launch "$1" 2 bash "$CHECK/job.sh" "$CHECK" "$CHECK/$1/calls" 2>&1 | tee "$CHECK/said"
    said 1 "isthmus: collectives are the MPI's own: .*/job0/topology: line .*: unknown word: nonsense"
    # One that has none.
    rm "$CHECK/job1/topology"
    sed -i /nonsense/d "$CHECK/job0/topology"
    launch "$1" 2 bash "$CHECK/job.sh" "$CHECK" "$CHECK/$1/calls" 2>&1 | tee "$CHECK/said"
    said 1 "isthmus: collectives are the MPI's own: .*/job1/topology isn't there"
    # And none at all: nothing is said.
    rm "$CHECK/job0/topology"
    launch "$1" 2 bash "$CHECK/job.sh" "$CHECK" "$CHECK/$1/calls" 2>&1 | tee "$CHECK/said"
    said 0 isthmus
}
