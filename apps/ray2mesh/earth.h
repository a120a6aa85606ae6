/* A spherical Earth, and the two kinds of waves that go through it.
 *
 * Radii are in km, times in s, angles in radians. A ray keeps its parameter p = r sin(i) / v, in
 * s/rad, all along (Snell-Descartes on a sphere, i from the vertical). The slowness at a radius is
 * r / v, in s/rad: a ray passes where it is larger than p, and turns where it is p. */
#ifndef EARTH_H
#define EARTH_H

#include <stddef.h>

/* Thin enough for the law below to follow speeds that are linear in depth within 0.01 s. */
#define SHELL_KM 20.0

#define PI 3.14159265358979323846

/* A part of the Earth where v = a r^b (Bullen's law), so that the slowness goes with r^power,
 * power = 1 - b. Angles and times have a closed form then (Bullen and Bolt, An Introduction to the
 * Theory of Seismology, 7.3; Buland and Chapman, 1983). */
struct shell {
    double outer, inner;
    double outer_slowness, inner_slowness;
    double power;
};

/* Speeds of one kind of wave, from the surface down: to the centre, or to where it can't go on. */
struct speeds {
    size_t shells;
    struct shell *shell;
    /* The slowness of P or S right above the core; 0 if there is none. */
    double core_slowness;
};

struct earth {
    double radius;
    struct speeds p, s;
};

/* A line of a model's table: depth in km, speeds in km/s. */
struct sample {
    double depth, p, s;
};

/* A model's lines: those of a file in the format "tvel" of the travel time tables of Buland and
 * Kennett, as ObsPy has them: two lines of text, then depth, speeds of P and S, and a density, with two
 * lines at a depth where speeds change at once. Returns the number of lines, or -1 with the reason in
 * `error`. The caller frees `samples`. */
int earth_read(const char *path, struct sample **samples, char *error, size_t room);

/* The depth in km down to which S goes: that of the core, or of the centre. */
double earth_solid_km(const struct sample *samples, int count);

/* Makes shells of a model's lines. Exits if there is no memory. */
struct earth earth_of(const struct sample *samples, int count);

void earth_free(struct earth *earth);

/* The slowness of the wave right below a radius, and the least between there and the surface. */
double slowness_below(const struct speeds *speeds, double radius);
double least_slowness_above(const struct speeds *speeds, double radius);

#endif
