/* The library's own calls; include/isthmus_mpi.h says what they do. */
#ifndef ISTHMUS_OWN_CALLS_H
#define ISTHMUS_OWN_CALLS_H

#include <mpi.h>

/* The prefix of resource types, as in "isthmus://site". */
#define TYPE_PREFIX "isthmus://"

/* What is split by a type that isn't known. */
enum unknown_type { UNKNOWN_IS_ERROR, UNKNOWN_IS_NULL };

/* Splits by a type that begins with the prefix. Collective. `join`: 0 for a rank that gets
 * no communicator. */
int split_by_type(MPI_Comm comm, const char *type, int key, int join, enum unknown_type unknown, MPI_Comm *made);

int own_comm_split(MPI_Comm comm, const char *type, int key, MPI_Comm *made);
int own_levels(MPI_Comm comm);
int own_level_name(MPI_Comm comm, int level, char *name, int length);
int own_place_name(MPI_Comm comm, int rank, int level, char *name, int length);
int own_color(MPI_Comm comm, int rank, int level, int *color);
int own_group(MPI_Comm comm, int rank, int *group, char *name, int length);

/* Collectives over sites that the program has called: all of them, or those that weren't native. */
long own_counter(int with_native);

/* The algorithm that the calling thread's last collective over sites took. "first" if it is the MPI's own because it is
 * one of the first of its communicator; "" if there was none. */
int own_last(char *name, int length);

#endif
