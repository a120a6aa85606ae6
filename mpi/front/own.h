/* The library's own calls, besides those of MPI: X(name, number of arguments). What they
 * do is said in include/isthmus_mpi.h, which is what programs use.
 * `counter` and `last` are for tests and benchmarks only: see back/own.h.
 * Those for Fortran take its handles. */
#ifndef ISTHMUS_OWN_H
#define ISTHMUS_OWN_H

#define OWN_CALLS(X) \
    X(comm_split, 4) X(levels, 1) X(level_name, 4) X(place_name, 5) X(color, 4) \
    X(group, 5) X(counter, 1) X(last, 2) \
    X(comm_split_f, 4) X(levels_f, 1) X(level_name_f, 4) X(place_name_f, 5) X(color_f, 4) \
    X(group_f, 5)

enum own_call {
#define X(name, arguments) OWN_##name,
    OWN_CALLS(X)
#undef X
    OWN_CALLS_COUNT
};

#endif
