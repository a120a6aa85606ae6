/* Earthquakes, and stations that record them. */
#ifndef CATALOGUE_H
#define CATALOGUE_H

#include <stddef.h>

#include "mesh.h"

struct event {
    struct place place;
    double depth_km;
};

struct station {
    struct place place;
    char name[24];
};

/* Earthquakes in the format ZMAP: longitude, latitude, year, month, day, magnitude, depth in km, and
 * more, with tabs or blanks between. One above the sea's level is taken to be at the surface. Returns how
 * many, or -1 with the reason in `error`. The caller frees them. */
int events_read(const char *path, struct event **events, char *error, size_t room);

/* Stations as text of FDSN's services: Network|Station|Latitude|Longitude and more. Returns how many, or
 * -1 with the reason in `error`. The caller frees them. */
int stations_read(const char *path, struct station **stations, char *error, size_t room);

#endif
