/* The library's own calls with Fortran's handles (MPI-4.1, 19.3.4), for isthmus_mpi.f90. */
#ifndef ISTHMUS_FORTRAN_H
#define ISTHMUS_FORTRAN_H

int own_comm_split_f(int comm, const char *type, int key, int *made);
int own_levels_f(int comm);
int own_level_name_f(int comm, int level, char *name, int length);
int own_place_name_f(int comm, int rank, int level, char *name, int length);
int own_color_f(int comm, int rank, int level, int *color);
int own_group_f(int comm, int rank, int *group, char *name, int length);

#endif
