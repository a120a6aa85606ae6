#include "spread.h"

#ifndef WITHOUT_POOLS

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../mpi/include/isthmus_mpi.h"
#include "../../mpi/include/isthmus_pool.h"
#include "exchange.h"
#include "memory.h"

const int with_pools = 1;

static void give_up(MPI_Comm comm, const char *why)
{
    fprintf(stderr, "ray2mesh: %s\n", why);
    MPI_Abort(comm, 1);
}

/* A task's result: the times of its rays, then its part of the mesh. */
static void do_task(const isthmus_pool *pool, struct work *work, const struct isthmus_pool_item *task)
{
    static const char too_long[] = "the result is too long: take fewer rays at once";
    struct range range;
    memcpy(&range, task->data, sizeof range);
    mesh_clear(&work->mesh);
    size_t times = (size_t)range.count * sizeof(struct result);
    struct result *results = allocate(times);
    work_trace(work, range, results);
    struct entry *entries = entries_of(&work->mesh);
    size_t cells = work->mesh.covered_count * sizeof *entries;
    char *bytes = allocate(times + cells);
    memcpy(bytes, results, times);
    memcpy(bytes + times, entries, cells);
    if (isthmus_pool_done(pool, task->id, 0, bytes, times + cells) != ISTHMUS_POOL_OK)
        isthmus_pool_done(pool, task->id, 1, too_long, sizeof too_long - 1);
    free(bytes);
    free(entries);
    free(results);
}

static void work_in(MPI_Comm comm, const isthmus_pool *pool, struct work *work)
{
    char why[256] = "";
    struct isthmus_pool_item task;
    while (isthmus_pool_task(pool, -1, &task) == ISTHMUS_POOL_OK) {
        do_task(pool, work, &task);
        isthmus_pool_free(&task);
    }
    if (isthmus_pool_why(pool, why, sizeof why) != ISTHMUS_POOL_OK)
        give_up(comm, why);
}

/* Task number n has the rays from n * chunk on. */
static struct range rays_of(uint64_t task, int chunk, int rays)
{
    int first = (int)task * chunk;
    return (struct range){first, rays - first < chunk ? rays - first : chunk};
}

static void take_in(MPI_Comm comm, struct work *work, struct range range, const struct isthmus_pool_item *item,
                    struct result *times)
{
    char why[512];
    size_t bytes = (size_t)range.count * sizeof *times;
    if (item->kind != ISTHMUS_POOL_DONE) {
        snprintf(why, sizeof why, "rays %d to %d weren't traced: %.*s", range.first, range.first + range.count - 1,
                 (int)(item->bytes < 256 ? item->bytes : 256), (const char *)item->data);
        give_up(comm, why);
    }
    memcpy(times + range.first, item->data, bytes);
    size_t count = (item->bytes - bytes) / sizeof(struct entry);
    struct entry *entries = allocate(count * sizeof *entries);
    memcpy(entries, (const char *)item->data + bytes, count * sizeof *entries);
    entries_add(&work->mesh, entries, count);
    free(entries);
}

static void lead(MPI_Comm comm, const isthmus_pool *pool, struct work *work, int chunk, struct result *times)
{
    char error[256] = "";
    int rays = survey_rays(work->survey);
    uint64_t tasks = (uint64_t)((rays + chunk - 1) / chunk);
    for (uint64_t task = 0; task < tasks; task++) {
        struct range range = rays_of(task, chunk, rays);
        if (isthmus_pool_submit(pool, &range, sizeof range, NULL, error, sizeof error) != ISTHMUS_POOL_OK)
            give_up(comm, error);
    }
    for (uint64_t done = 0; done < tasks; done++) {
        struct isthmus_pool_item item;
        if (isthmus_pool_result(pool, -1, &item) != ISTHMUS_POOL_OK) {
            isthmus_pool_why(pool, error, sizeof error);
            give_up(comm, error);
        }
        take_in(comm, work, rays_of(item.id, chunk, rays), &item, times);
        isthmus_pool_free(&item);
    }
    isthmus_pool_end(pool);
}

void spread_by_pool(MPI_Comm comm, struct work *work, int chunk, struct result *times)
{
    int rank;
    char error[256] = "";
    isthmus_pool *pool = isthmus_pool_of_ranks(comm, NULL, NULL, 0, error, sizeof error);
    MPI_Comm_rank(comm, &rank);
    if (!pool)
        give_up(comm, error);
    if (rank == 0)
        lead(comm, pool, work, chunk, times);
    else
        work_in(comm, pool, work);
    isthmus_pool_release(pool);
}

#else

const int with_pools = 0;

void spread_by_pool(MPI_Comm comm, struct work *work, int chunk, struct result *times)
{
    (void)work, (void)chunk, (void)times;
    MPI_Abort(comm, 1);
}

#endif
