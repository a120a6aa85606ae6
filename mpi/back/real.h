/* The MPI's own functions. They are looked up in the MPI that the program has loaded,
 * under their PMPI names, so that no other library sees what this one calls. */
#ifndef ISTHMUS_REAL_H
#define ISTHMUS_REAL_H

#include <mpi.h>

/* Those that every MPI has: MPI 3.1. */
#define REAL_CALLS(X) \
    X(Allgather) X(Allgatherv) X(Allreduce) X(Alltoall) X(Alltoallv) X(Barrier) X(Bcast) \
    X(Gather) X(Gatherv) X(Reduce) X(Reduce_local) X(Reduce_scatter) X(Reduce_scatter_block) \
    X(Scatter) X(Scatterv) X(Isend) X(Irecv) X(Send) X(Recv) X(Wait) X(Test) X(Ibcast) X(Iallgather) \
    X(Comm_dup) X(Comm_split) X(Comm_split_type) X(Comm_free) X(Comm_disconnect) X(Comm_rank) X(Comm_size) \
    X(Comm_group) X(Comm_test_inter) X(Comm_remote_size) X(Comm_create_keyval) X(Comm_free_keyval) \
    X(Comm_get_attr) X(Comm_set_attr) X(Comm_delete_attr) X(Comm_get_parent) X(Comm_call_errhandler) \
    X(Comm_get_errhandler) X(Comm_set_errhandler) X(Errhandler_free) \
    X(Group_translate_ranks) X(Group_size) X(Group_free) X(Group_incl) X(Comm_create) \
    X(Intercomm_merge) X(Cart_create) X(Dist_graph_create) X(Dist_graph_create_adjacent) \
    X(Type_size) X(Type_get_extent) X(Type_get_true_extent) X(Type_get_envelope) X(Type_create_hindexed) \
    X(Type_commit) X(Type_free) X(Pack) X(Unpack) X(Pack_size) X(Op_commutative) X(Info_get) X(Init) X(Init_thread) X(Initialized) \
    X(Finalized) X(Finalize) X(Query_thread) X(Wtime) X(Get_library_version) X(Abort)

struct real {
#define X(name) __typeof__(&PMPI_##name) name;
    REAL_CALLS(X)
#undef X
};

/* Gives an error to the communicator's error handler (MPI-4.1, 9.3) and returns it. */
int refuse_call(MPI_Comm comm, int error);

/* Filled before any function of a back end runs. */
extern struct real real;

#endif
