/* Makes a survey known to all ranks. */
#ifndef SHARE_H
#define SHARE_H

#include <mpi.h>

#include "survey.h"

/* The files that a survey is made of. */
struct files {
    const char *model, *events, *stations;
};

/* Reads them. Returns 0, or -1 with the file's name and the reason in `error`. */
int survey_read(const struct files *files, struct survey *survey, char *error, size_t room);

/* Broadcasts what rank 0 has read. Collective. */
void survey_share(MPI_Comm comm, struct survey *survey);

void survey_free(struct survey *survey);

#endif
