#include "output.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>

FILE *output_open(const char *directory, const char *name)
{
    char path[4096];
    if ((size_t)snprintf(path, sizeof path, "%s/%s", directory, name) >= sizeof path) {
        errno = ENAMETOOLONG;
        return NULL;
    }
    return fopen(path, "w");
}

/* Closes a file. Returns 0, or -1 with errno if anything of it wasn't written. */
static int end(FILE *file)
{
    int wrong = ferror(file) || fflush(file), why = errno ? errno : EIO;
    if (fclose(file) == 0 && !wrong)
        return 0;
    errno = wrong ? why : errno;
    return -1;
}

static void write_corners(FILE *file, const struct grid *grid)
{
    fprintf(file, "DIMENSIONS %d %d %d\n", grid->longitudes + 1, grid->latitudes + 1, grid->layers + 1);
    fprintf(file, "POINTS %zu float\n",
            (size_t)(grid->longitudes + 1) * (size_t)(grid->latitudes + 1) * (size_t)(grid->layers + 1));
    for (int layer = 0; layer <= grid->layers; layer++) {
        double radius = grid->radius * (1 - (double)layer / grid->layers);
        for (int row = 0; row <= grid->latitudes; row++) {
            double latitude = PI * ((double)row / grid->latitudes - 0.5);
            for (int column = 0; column <= grid->longitudes; column++) {
                double longitude = 2 * PI * ((double)column / grid->longitudes - 0.5);
                fprintf(file, "%.1f %.1f %.1f\n", radius * cos(latitude) * cos(longitude),
                        radius * cos(latitude) * sin(longitude), radius * sin(latitude));
            }
        }
    }
}

int write_coverage(FILE *file, const struct mesh *mesh)
{
    fprintf(file, "# vtk DataFile Version 3.0\nRays through the Earth, by Ray2mesh\nASCII\n"
                  "DATASET STRUCTURED_GRID\n");
    write_corners(file, &mesh->grid);
    fprintf(file, "CELL_DATA %zu\nSCALARS rays int 1\nLOOKUP_TABLE default\n", mesh->cells);
    for (size_t cell = 0; cell < mesh->cells; cell++)
        fprintf(file, "%lu\n", (unsigned long)mesh->cover[cell].rays);
    fprintf(file, "SCALARS length_km double 1\nLOOKUP_TABLE default\n");
    for (size_t cell = 0; cell < mesh->cells; cell++)
        fprintf(file, "%.6f\n", (double)mesh->cover[cell].length_mm / 1e6);
    return end(file);
}

int write_times(FILE *file, const struct survey *survey, const struct result *times)
{
    fprintf(file, "event,station,depth_km,distance_deg");
    for (int phase = 0; phase < PHASES; phase++)
        fprintf(file, ",%s", phase_names[phase]);
    fprintf(file, "\n");
    for (int ray = 0; ray < survey_rays(survey); ray++) {
        int event = ray / survey->station_count;
        fprintf(file, "%d,%s,%.3f,%.6f", event, survey->stations[ray % survey->station_count].name,
                survey->events[event].depth_km, survey_angle(survey, ray) * 180 / PI);
        for (int phase = 0; phase < PHASES; phase++)
            if (times[ray].time[phase] < 0)
                fprintf(file, ",");
            else
                fprintf(file, ",%.3f", times[ray].time[phase]);
        fprintf(file, "\n");
    }
    return end(file);
}
