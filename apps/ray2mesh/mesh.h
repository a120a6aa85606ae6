/* The cells of the Earth that rays go through. */
#ifndef MESH_H
#define MESH_H

#include <stddef.h>
#include <stdint.h>

#include "rays.h"

/* Cells by latitude, longitude and depth: of so many degrees and km. */
struct grid {
    double radius;
    int latitudes, longitudes, layers;
};

/* What is known of a cell: how many rays went through it, and how far all together, in mm, which add up
 * to the same in any order. */
struct cover {
    int64_t length_mm;
    uint32_t rays;
};

struct mesh {
    struct grid grid;
    size_t cells;
    struct cover *cover;
    /* The cells that have something, in any order. */
    uint32_t *covered;
    size_t covered_count, covered_room;
    /* The last ray that each cell has counted. */
    uint32_t *seen, ray;
};

/* A place of the surface, in degrees. */
struct place {
    double latitude, longitude;
};

/* Most cells. */
#define MOST_CELLS 10000000

/* The cells of so many degrees and km, or fewer where they don't go in evenly. */
struct grid grid_of(double radius, double degrees, double layer_km);

size_t grid_cells(const struct grid *grid);

struct mesh mesh_of(const struct grid *grid);
void mesh_free(struct mesh *mesh);

/* Adds to a cell. */
void mesh_cover(struct mesh *mesh, size_t cell, int64_t length_mm, uint32_t rays);

/* Empties all cells. */
void mesh_clear(struct mesh *mesh);

/* The angle between two places, seen from the centre, 0 to pi. */
double angle_between(const struct place *from, const struct place *to);

/* Adds a ray from a place in the direction of another one. */
void mesh_add(struct mesh *mesh, const struct place *from, const struct place *to, const struct point *points,
              size_t count);

#endif
