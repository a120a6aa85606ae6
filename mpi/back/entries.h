/* What the front's table of a back end points to. */
#ifndef ISTHMUS_ENTRIES_H
#define ISTHMUS_ENTRIES_H

#include <mpi.h>

int entry_Init(int *argc, char ***argv);
int entry_Init_thread(int *argc, char ***argv, int required, int *provided);
int entry_Finalize(void);

int entry_Comm_get_attr(MPI_Comm comm, int keyval, void *value, int *flag);
int entry_Comm_split_type(MPI_Comm comm, int type, int key, MPI_Info info, MPI_Comm *made);
int entry_Comm_free(MPI_Comm *comm);
int entry_Comm_disconnect(MPI_Comm *comm);
int entry_Intercomm_merge(MPI_Comm intercomm, int high, MPI_Comm *made);
int entry_Cart_create(MPI_Comm comm, int ndims, const int *dims, const int *periods, int reorder, MPI_Comm *made);
int entry_Dist_graph_create(MPI_Comm comm, int n, const int *sources, const int *degrees, const int *destinations,
                            const int *weights, MPI_Info info, int reorder, MPI_Comm *made);
int entry_Dist_graph_create_adjacent(MPI_Comm comm, int indegree, const int *sources, const int *source_weights,
                                     int outdegree, const int *destinations, const int *destination_weights,
                                     MPI_Info info, int reorder, MPI_Comm *made);

#endif
