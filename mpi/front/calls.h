/* The calls that the library takes over: X(name without MPI_, number of arguments).
 * Front and back ends are compiled with the same list, which fixes the order of the
 * table that a back end gives to the front. */
#ifndef ISTHMUS_CALLS_H
#define ISTHMUS_CALLS_H

/* Those with large counts. */
#define COUNT_CALLS(X) \
    X(Bcast_c, 5) X(Reduce_c, 7) X(Allreduce_c, 6) X(Gather_c, 8) X(Gatherv_c, 9) \
    X(Scatter_c, 8) X(Scatterv_c, 9) X(Allgather_c, 7) X(Allgatherv_c, 8) \
    X(Reduce_scatter_c, 6) X(Reduce_scatter_block_c, 6) X(Alltoall_c, 7) X(Alltoallv_c, 9)

#define MPI_CALLS(X) \
    X(Init, 2) X(Init_thread, 4) X(Finalize, 0) \
    X(Barrier, 1) X(Bcast, 5) X(Reduce, 7) X(Allreduce, 6) X(Gather, 8) X(Gatherv, 9) \
    X(Scatter, 8) X(Scatterv, 9) X(Allgather, 7) X(Allgatherv, 8) X(Reduce_scatter, 6) \
    X(Reduce_scatter_block, 6) X(Alltoall, 7) X(Alltoallv, 9) \
    COUNT_CALLS(X) \
    X(Comm_free, 1) X(Comm_disconnect, 1) X(Comm_get_attr, 4) X(Attr_get, 4) X(Comm_split_type, 5) \
    X(Intercomm_merge, 3) X(Cart_create, 6) X(Dist_graph_create, 9) X(Dist_graph_create_adjacent, 10)

enum call {
#define X(name, arguments) CALL_##name,
    MPI_CALLS(X)
#undef X
    CALLS
};

#endif
