/* What Ray2mesh writes: files that other programs read. */
#ifndef OUTPUT_H
#define OUTPUT_H

#include <stdio.h>

#include "survey.h"

/* Opens a file of a directory. Returns NULL, with errno, if it can't. */
FILE *output_open(const char *directory, const char *name);

/* coverage.vtk: for each cell, how many rays went through it and how far in km, as a structured
 * grid of VTK's legacy format, in ASCII. Closes the file. Returns 0, or -1 with errno. */
int write_coverage(FILE *file, const struct mesh *mesh);

/* times.csv: a line for each ray: event (from 0), station, depth in km, distance in degrees,
 * and when each phase arrives, in s; empty where none does. Closes the file. Returns 0, or -1 with
 * errno. */
int write_times(FILE *file, const struct survey *survey, const struct result *times);

#endif
