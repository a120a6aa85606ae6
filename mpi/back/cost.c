#include "cost.h"

static double message_seconds(double rtt, double bytes_per_second, double bytes)
{
    return MESSAGE_SECONDS + rtt / 2 + bytes / bytes_per_second + (bytes > EAGER_BYTES ? rtt : 0);
}

double wan_seconds(const struct shape *shape, double bytes)
{
    return message_seconds(shape->wan_rtt_seconds, shape->wan_bytes_per_second, bytes);
}

double rated_bytes(const struct shape *shape, double bytes, double link_bytes)
{
    return shape->shared_links && link_bytes > bytes ? link_bytes : bytes;
}

double crossing_seconds(const struct shape *shape, double bytes, double link_bytes)
{
    return wan_seconds(shape, bytes) +
           (rated_bytes(shape, bytes, link_bytes) - bytes) / shape->wan_bytes_per_second;
}

static double level_seconds(const struct shape *shape, const struct level *level, double bytes, int lanes)
{
    double message = bytes / lanes, link = rated_bytes(shape, message, bytes * (level->subsets - 1));
    return message_seconds(level->rtt_seconds, level->bytes_per_second, message) +
           (link - message) / level->bytes_per_second;
}

double levels_seconds(const struct shape *shape, int first, double bytes, int lanes)
{
    double seconds = 0;
    for (int l = first; l < shape->levels; l++)
        seconds += level_seconds(shape, &shape->level[l], bytes, lanes);
    return seconds;
}

double gathered_seconds(const struct shape *shape, int first, double bytes)
{
    double seconds = 0;
    for (int l = first; l < shape->levels; l++)
        seconds += level_seconds(shape, &shape->level[l], bytes * shape->level[l].ranks, 1);
    return seconds;
}

double lan_seconds(const struct shape *shape, double bytes)
{
    return message_seconds(shape->lan_rtt_seconds, shape->lan_bytes_per_second, bytes);
}

int steps_of(int count)
{
    int steps = 0;
    while (steps < 30 && 1 << steps < count)
        steps++;
    return steps;
}
