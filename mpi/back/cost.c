#include "cost.h"

/* `most`: bytes up to which the receiver isn't asked. */
static double message_seconds(double rtt, double bytes_per_second, double bytes, double most)
{
    return MESSAGE_SECONDS + rtt / 2 + bytes / bytes_per_second + (bytes > most ? rtt : 0);
}

double rated_bytes(const struct shape *shape, double bytes, double link_bytes)
{
    return shape->shared_links && link_bytes > bytes ? link_bytes : bytes;
}

/* A message among others over the same link. */
static double shared_seconds(const struct shape *shape, double rtt, double bytes_per_second, double bytes,
                             double link_bytes, double most)
{
    return message_seconds(rtt, bytes_per_second, bytes, most) +
           (rated_bytes(shape, bytes, link_bytes) - bytes) / bytes_per_second;
}

double crossing_seconds(const struct shape *shape, double bytes, double link_bytes)
{
    return shared_seconds(shape, shape->wan_rtt_seconds, shape->wan_bytes_per_second, bytes, link_bytes, EAGER_BYTES);
}

double own_crossing_seconds(const struct shape *shape, double bytes, double link_bytes)
{
    return shared_seconds(shape, shape->wan_rtt_seconds, shape->wan_bytes_per_second, bytes, link_bytes, CUT_MOST);
}

static double level_seconds(const struct shape *shape, const struct level *level, double bytes, int lanes)
{
    return shared_seconds(shape, level->rtt_seconds, level->bytes_per_second, bytes / lanes,
                          bytes * (level->subsets - 1), CUT_MOST);
}

double levels_seconds(const struct shape *shape, int first, double bytes, int lanes)
{
    double seconds = 0;
    for (int l = first; l < shape->levels; l++)
        seconds += level_seconds(shape, &shape->level[l], bytes, lanes);
    return seconds;
}

double gathered_seconds(const struct shape *shape, double bytes)
{
    double seconds = 0;
    for (int l = 0; l < shape->levels; l++)
        seconds += level_seconds(shape, &shape->level[l], bytes * shape->level[l].ranks, 1);
    return seconds;
}

double lan_seconds(const struct shape *shape, double bytes)
{
    return message_seconds(shape->lan_rtt_seconds, shape->lan_bytes_per_second, bytes, EAGER_BYTES);
}

int steps_of(int count)
{
    int steps = 0;
    while (steps < 30 && 1 << steps < count)
        steps++;
    return steps;
}
