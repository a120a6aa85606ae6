#include "spread.h"

#include <stdlib.h>
#include <string.h>

#include "memory.h"

/* Of messages: times so far, and more rays are wanted; the last times; rays, none of which is the end. */
enum { WANTS = 1, LAST, RAYS };

/* Rays that a boss has got and not given on: at most those of so many messages. It asks for more when it
 * has few. */
enum { RANGES = 2 };

/* What a rank knows of its rays. */
struct desk {
    MPI_Comm comm;
    const struct ranks *ranks;
    int chunk;
    struct range range[RANGES];
    int ranges;
    /* Children that want rays, first come first. */
    int *idle, idles;
    int open;
    /* Whether the parent has been asked, and has said that there are no more. */
    int asked, over;
    /* Times that the parent doesn't have yet; at the master all of them, by their rays. */
    struct result *result;
    size_t results;
    /* What has come last, of all rays at most. */
    struct result *inbox;
    int rays;
};

static int rays_left(const struct desk *desk)
{
    int left = 0;
    for (int i = 0; i < desk->ranges; i++)
        left += desk->range[i].count;
    return left;
}

static int workers_below(const struct ranks *ranks)
{
    int sum = 0;
    for (int i = 0; i < ranks->children; i++)
        sum += ranks->workers[i];
    return sum;
}

/* A worker gets a chunk, a boss one for each worker; less of the last ones, so that all end together. */
static int share(const struct desk *desk, int child)
{
    int workers = desk->ranks->workers[child], most = workers * desk->chunk;
    int fair = (int)((long long)rays_left(desk) * workers / (2 * workers_below(desk->ranks)));
    int rays = fair < most ? fair : most;
    return rays > workers ? rays : workers;
}

static struct range take(struct desk *desk, int most)
{
    struct range *first = &desk->range[0], taken = *first;
    taken.count = taken.count < most ? taken.count : most;
    first->first += taken.count;
    first->count -= taken.count;
    if (first->count == 0) {
        memmove(&desk->range[0], &desk->range[1], (RANGES - 1) * sizeof desk->range[0]);
        desk->ranges--;
    }
    return taken;
}

/* Gives rays to children that want some, or tells them that it is over. */
static void serve(struct desk *desk)
{
    int served = 0;
    while (served < desk->idles && (desk->ranges > 0 || desk->over)) {
        int child = desk->idle[served++];
        struct range range = {0, 0};
        if (desk->ranges > 0)
            range = take(desk, share(desk, child));
        MPI_Send(&range, sizeof range, MPI_BYTE, desk->ranks->child[child], RAYS, desk->comm);
    }
    desk->idles -= served;
    memmove(desk->idle, desk->idle + served, (size_t)desk->idles * sizeof *desk->idle);
}

static void send_up(struct desk *desk, int tag)
{
    MPI_Send(desk->result, (int)(desk->results * sizeof *desk->result), MPI_BYTE, desk->ranks->parent, tag,
             desk->comm);
    desk->results = 0;
}

static void ask(struct desk *desk)
{
    int enough = workers_below(desk->ranks) * desk->chunk;
    if (desk->asked || desk->over || desk->ranges == RANGES || rays_left(desk) >= enough)
        return;
    send_up(desk, WANTS);
    desk->asked = 1;
}

static void from_parent(struct desk *desk)
{
    struct range range;
    memcpy(&range, desk->inbox, sizeof range);
    desk->asked = 0;
    desk->over = range.count == 0;
    if (range.count > 0)
        desk->range[desk->ranges++] = range;
}

static void from_child(struct desk *desk, const MPI_Status *message)
{
    int bytes, child = 0, is_master = desk->ranks->parent < 0;
    MPI_Get_count(message, MPI_BYTE, &bytes);
    for (size_t i = 0; i < (size_t)bytes / sizeof *desk->inbox; i++)
        desk->result[is_master ? (size_t)desk->inbox[i].ray : desk->results++] = desk->inbox[i];
    while (desk->ranks->child[child] != message->MPI_SOURCE)
        child++;
    if (message->MPI_TAG == WANTS)
        desk->idle[desk->idles++] = child;
    else
        desk->open--;
}

static void distribute(struct desk *desk)
{
    const struct ranks *ranks = desk->ranks;
    size_t most = (size_t)desk->rays * sizeof *desk->inbox;
    desk->open = ranks->children;
    desk->idle = allocate((size_t)ranks->children * sizeof *desk->idle);
    desk->inbox = allocate(most);
    while (desk->open > 0) {
        MPI_Status message;
        ask(desk);
        MPI_Recv(desk->inbox, (int)most, MPI_BYTE, MPI_ANY_SOURCE, MPI_ANY_TAG, desk->comm, &message);
        if (message.MPI_SOURCE == ranks->parent)
            from_parent(desk);
        else
            from_child(desk, &message);
        serve(desk);
    }
    free(desk->inbox);
    free(desk->idle);
}

static void work_for(struct desk *desk, struct work *work)
{
    while (!desk->over) {
        struct range range;
        send_up(desk, WANTS);
        MPI_Recv(&range, sizeof range, MPI_BYTE, desk->ranks->parent, RAYS, desk->comm, MPI_STATUS_IGNORE);
        desk->over = range.count == 0;
        work_trace(work, range, desk->result);
        desk->results = (size_t)range.count;
    }
    send_up(desk, LAST);
}

void spread_by_messages(MPI_Comm comm, const struct ranks *ranks, struct work *work, int chunk,
                        struct result *times)
{
    struct desk desk = {.comm = comm, .ranks = ranks, .chunk = chunk, .rays = survey_rays(work->survey)};
    if (ranks->parent < 0) {
        desk.result = times;
        desk.range[desk.ranges++] = (struct range){0, desk.rays};
        desk.over = 1;
        distribute(&desk);
        return;
    }
    desk.result = allocate((size_t)(ranks->children > 0 ? desk.rays : chunk) * sizeof *desk.result);
    if (ranks->children > 0) {
        distribute(&desk);
        send_up(&desk, LAST);
    } else {
        work_for(&desk, work);
    }
    free(desk.result);
}
