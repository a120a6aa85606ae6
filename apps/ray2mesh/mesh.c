#include "mesh.h"

#include <math.h>
#include <stdlib.h>

#include "memory.h"

/* Pieces of a ray are divided at the cells' sides up to this length. */
#define SMALLEST_KM 0.001

struct vector {
    double x, y, z;
};

struct grid grid_of(double radius, double degrees, double layer_km)
{
    return (struct grid){
        .radius = radius,
        .latitudes = (int)fmax(1, round(180 / degrees)),
        .longitudes = (int)fmax(1, round(360 / degrees)),
        .layers = (int)fmax(1, round(radius / layer_km)),
    };
}

size_t grid_cells(const struct grid *grid)
{
    return (size_t)grid->latitudes * (size_t)grid->longitudes * (size_t)grid->layers;
}

struct mesh mesh_of(const struct grid *grid)
{
    struct mesh mesh = {.grid = *grid, .cells = grid_cells(grid)};
    mesh.cover = allocate(mesh.cells * sizeof *mesh.cover);
    mesh.seen = allocate(mesh.cells * sizeof *mesh.seen);
    return mesh;
}

void mesh_free(struct mesh *mesh)
{
    free(mesh->cover);
    free(mesh->covered);
    free(mesh->seen);
}

static struct vector scaled(struct vector a, double by)
{
    return (struct vector){a.x * by, a.y * by, a.z * by};
}

static struct vector sum(struct vector a, struct vector b)
{
    return (struct vector){a.x + b.x, a.y + b.y, a.z + b.z};
}

static double product(struct vector a, struct vector b)
{
    return a.x * b.x + a.y * b.y + a.z * b.z;
}

static struct vector cross(struct vector a, struct vector b)
{
    return (struct vector){a.y * b.z - a.z * b.y, a.z * b.x - a.x * b.z, a.x * b.y - a.y * b.x};
}

static double length(struct vector a)
{
    return sqrt(product(a, a));
}

static struct vector towards(const struct place *place)
{
    double latitude = place->latitude * PI / 180, longitude = place->longitude * PI / 180;
    return (struct vector){cos(latitude) * cos(longitude), cos(latitude) * sin(longitude), sin(latitude)};
}

double angle_between(const struct place *from, const struct place *to)
{
    struct vector a = towards(from), b = towards(to);
    return atan2(length(cross(a, b)), product(a, b));
}

/* Which of `parts` equal parts a share of the whole is in. */
static size_t part(double share, int parts)
{
    double which = floor(share * parts);
    return which < 0 ? 0 : which >= parts ? (size_t)parts - 1 : (size_t)which;
}

static size_t cell_at(const struct grid *grid, struct vector at)
{
    double radius = length(at);
    double latitude = radius > 0 ? asin(fmax(-1, fmin(1, at.z / radius))) : 0, longitude = atan2(at.y, at.x);
    size_t layer = part(1 - radius / grid->radius, grid->layers);
    size_t row = part(latitude / PI + 0.5, grid->latitudes);
    return (layer * (size_t)grid->latitudes + row) * (size_t)grid->longitudes +
           part(longitude / (2 * PI) + 0.5, grid->longitudes);
}

void mesh_cover(struct mesh *mesh, size_t cell, int64_t length_mm, uint32_t rays)
{
    struct cover *cover = &mesh->cover[cell];
    if (cover->rays == 0 && rays > 0) {
        if (mesh->covered_count == mesh->covered_room) {
            mesh->covered_room = mesh->covered_room ? 2 * mesh->covered_room : 1024;
            mesh->covered = resize(mesh->covered, mesh->covered_room * sizeof *mesh->covered);
        }
        mesh->covered[mesh->covered_count++] = (uint32_t)cell;
    }
    cover->length_mm += length_mm;
    cover->rays += rays;
}

void mesh_clear(struct mesh *mesh)
{
    for (size_t i = 0; i < mesh->covered_count; i++)
        mesh->cover[mesh->covered[i]] = (struct cover){0, 0};
    mesh->covered_count = 0;
}

/* Adds a part of the present ray. */
static void pass(struct mesh *mesh, size_t cell, double km)
{
    mesh_cover(mesh, cell, llround(km * 1e6), mesh->seen[cell] != mesh->ray);
    mesh->seen[cell] = mesh->ray;
}

/* A straight piece. One whose ends are in one cell is taken to be in it. */
static void add_piece(struct mesh *mesh, struct vector from, size_t from_cell, struct vector to, size_t to_cell)
{
    double km = length(sum(to, scaled(from, -1)));
    if (from_cell == to_cell || km < SMALLEST_KM) {
        pass(mesh, from_cell, km);
        return;
    }
    struct vector middle = scaled(sum(from, to), 0.5);
    size_t middle_cell = cell_at(&mesh->grid, middle);
    add_piece(mesh, from, from_cell, middle, middle_cell);
    add_piece(mesh, middle, middle_cell, to, to_cell);
}

/* The direction in which to leave `from`, at a right angle to it, to come to `to`: any, if all do. */
static struct vector departure(struct vector from, struct vector to)
{
    struct vector flat = sum(to, scaled(from, -product(from, to)));
    if (length(flat) < 1e-9)
        flat = cross(from, fabs(from.z) < 0.9 ? (struct vector){0, 0, 1} : (struct vector){1, 0, 0});
    return scaled(flat, 1 / length(flat));
}

void mesh_add(struct mesh *mesh, const struct place *from, const struct place *to, const struct point *points,
              size_t count)
{
    struct vector source = towards(from), direction = departure(source, towards(to)), last = {0};
    size_t last_cell = 0;
    mesh->ray++;
    for (size_t i = 0; i < count; i++) {
        struct vector here = scaled(sum(scaled(source, cos(points[i].angle)), scaled(direction, sin(points[i].angle))),
                                    points[i].radius);
        size_t cell = cell_at(&mesh->grid, here);
        if (i > 0)
            add_piece(mesh, last, last_cell, here, cell);
        last = here;
        last_cell = cell;
    }
}
