/* What the stub has of MPI. */
#ifndef STUB_H
#define STUB_H

extern int stub_calls;

int MPI_Init(int *argc, char ***argv);
int MPI_Bcast(void *buffer, int count, int datatype, int root, int comm);
int MPI_Allreduce(const void *send, void *recv, int count, int datatype, int op, int comm);
int MPI_Finalize(void);
int PMPI_Get_library_version(char *version, int *length);

#endif
