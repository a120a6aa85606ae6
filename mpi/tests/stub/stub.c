/* A stub of an MPI, such as serial programs are linked with: every process is alone. VERSION is
 * what it says of itself; without it, it has no profiling interface. */
#include "stub.h"

#include <string.h>

int stub_calls;

#ifdef VERSION
#define PROFILING(name) extern __typeof__(MPI_##name) PMPI_##name __attribute__((alias("MPI_" #name)));
#else
#define PROFILING(name)
#endif

int MPI_Init(int *argc, char ***argv)
{
    (void)argc, (void)argv;
    stub_calls++;
    return 0;
}
PROFILING(Init)

int MPI_Bcast(void *buffer, int count, int datatype, int root, int comm)
{
    (void)buffer, (void)count, (void)datatype, (void)root, (void)comm;
    stub_calls++;
    return 0;
}
PROFILING(Bcast)

/* Of ints. */
int MPI_Allreduce(const void *send, void *recv, int count, int datatype, int op, int comm)
{
    (void)datatype, (void)op, (void)comm;
    stub_calls++;
    memcpy(recv, send, (unsigned)count * sizeof(int));
    return 0;
}
PROFILING(Allreduce)

int MPI_Finalize(void)
{
    stub_calls++;
    return 0;
}
PROFILING(Finalize)

#ifdef VERSION
int PMPI_Get_library_version(char *version, int *length)
{
    strcpy(version, VERSION);
    *length = (int)strlen(version);
    return 0;
}
#endif
