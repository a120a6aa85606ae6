/* Wrong arguments: the MPI's own check must speak, with the class of error that it has. */
#include "differ.h"

#include <stdio.h>

int error_class(int code)
{
    int class = MPI_SUCCESS;
    if (code != MPI_SUCCESS)
        MPI_Error_class(code, &class);
    return class;
}

static int compare(const char *what, int code, int native_code)
{
    if (code != MPI_SUCCESS && error_class(code) == error_class(native_code))
        return 0;
    fprintf(stderr, "differ: %s: error class %d, the MPI's own: %d\n", what, error_class(code), error_class(native_code));
    return 1;
}

#define BOTH(what, call) failures += compare(what, MPI_##call, native.call)

/* Handles of nothing, which MPICH tells; Open MPI's are addresses. On a communicator whose errors
 * are returned, while those of MPI_COMM_WORLD and MPI_COMM_SELF end the program. */
static int handles_differ(MPI_Comm whole)
{
    int failures = 0;
#ifdef MPICH_VERSION
    const MPI_Datatype no_type = (MPI_Datatype)0x77;
    const MPI_Op no_op = (MPI_Op)0x77;
    int word = 1, sum = 0;
    MPI_Comm comm;
    MPI_Comm_dup(whole, &comm);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    BOTH("invalid datatype", Bcast(&word, 1, no_type, 0, comm));
    BOTH("invalid datatype", Alltoall(MPI_IN_PLACE, 1, MPI_INT, &sum, 1, no_type, comm));
    BOTH("invalid operation", Allreduce(&word, &sum, 1, MPI_INT, no_op, comm));
    BOTH("invalid operation", Reduce(&word, &sum, 1, MPI_INT, no_op, 0, comm));
    BOTH("operation of another type", Allreduce(&word, &sum, 1, MPI_FLOAT, MPI_BAND, comm));
    MPI_Comm_free(&comm);
#else
    (void)whole;
#endif
    return failures;
}

int errors_differ(MPI_Comm comm)
{
    int failures = handles_differ(comm), size, word = 1, sum = 0;
    MPI_Errhandler handler;
    MPI_Comm_size(comm, &size);
    MPI_Comm_get_errhandler(comm, &handler);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    BOTH("root too high", Bcast(&word, 1, MPI_INT, size, comm));
    BOTH("root below 0", Reduce(&word, &sum, 1, MPI_INT, MPI_SUM, -5, comm));
    BOTH("negative count", Bcast(&word, -1, MPI_INT, 0, comm));
    BOTH("null datatype", Allgather(&word, 1, MPI_DATATYPE_NULL, &sum, 1, MPI_DATATYPE_NULL, comm));
    BOTH("null operation", Allreduce(&word, &sum, 1, MPI_INT, MPI_OP_NULL, comm));
#undef BOTH
    failures += equal_differ(comm);
    MPI_Comm_set_errhandler(comm, handler);
    if (handler != MPI_ERRORS_ARE_FATAL && handler != MPI_ERRORS_RETURN)
        MPI_Errhandler_free(&handler);
    return failures;
}
