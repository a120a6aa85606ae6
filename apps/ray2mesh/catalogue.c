#include "catalogue.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "lines.h"

/* All pairs of so many of each are counted in an int. */
enum { MOST = 40000 };

/* No earthquake is higher or deeper. */
#define HIGHEST_KM 10
#define DEEPEST_KM 1000

static const char *wrong_place(const struct place *place)
{
    if (!(place->latitude >= -90 && place->latitude <= 90))
        return "the latitude isn't -90 to 90";
    if (!(place->longitude >= -180 && place->longitude <= 360))
        return "the longitude isn't -180 to 360";
    return NULL;
}

static const char *event_of(const char *text, void *items, size_t index)
{
    struct event *event = (struct event *)items + index;
    if (sscanf(text, "%lf %lf %*f %*f %*f %*f %lf", &event->place.longitude, &event->place.latitude,
               &event->depth_km) != 3)
        return "it has no seven numbers";
    if (!(event->depth_km >= -HIGHEST_KM && event->depth_km <= DEEPEST_KM))
        return "the depth isn't 0 to 1,000 km";
    event->depth_km = fmax(0, event->depth_km);
    return wrong_place(&event->place);
}

static const char *station_of(const char *text, void *items, size_t index)
{
    struct station *station = (struct station *)items + index;
    char network[9], name[13];
    if (sscanf(text, "%8[^|]|%12[^|]|%lf|%lf", network, name, &station->place.latitude,
               &station->place.longitude) != 4)
        return "it isn't Network|Station|Latitude|Longitude";
    snprintf(station->name, sizeof station->name, "%s.%s", network, name);
    for (char *letter = station->name; *letter; letter++)
        if (strchr(",\" \t", *letter))
            return "the name has a comma, quote or blank in it";
    return wrong_place(&station->place);
}

int events_read(const char *path, struct event **events, char *error, size_t room)
{
    static const struct lines lines = {event_of, sizeof(struct event), 0, MOST};
    void *items = NULL;
    int count = lines_read(path, &lines, &items, error, room);
    *events = items;
    return count;
}

int stations_read(const char *path, struct station **stations, char *error, size_t room)
{
    static const struct lines lines = {station_of, sizeof(struct station), 0, MOST};
    void *items = NULL;
    int count = lines_read(path, &lines, &items, error, room);
    *stations = items;
    return count;
}
