/* A pool of MPI ranks: tasks that sleep, some of which have large results. Rank 0 checks them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <mpi.h>

#include "../../mpi/include/isthmus_mpi.h"
#include "../../mpi/include/isthmus_pool.h"

enum { TASKS = 500, LARGE = 200000 };

static void fail(const char *why)
{
    fprintf(stderr, "%s\n", why);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static size_t length_of(uint64_t number)
{
    return number % 50 == 7 ? LARGE : sizeof number;
}

/* The result of a task: its number, again and again. */
static void fill(unsigned char *result, uint64_t number)
{
    for (size_t at = 0; at < length_of(number); at++)
        result[at] = (unsigned char)(number >> (8 * (at % 2)));
}

static void work(const isthmus_pool *pool)
{
    struct isthmus_pool_item task;
    static unsigned char result[LARGE];
    struct timespec pause = {0, 2000000};
    while (isthmus_pool_task(pool, -1, &task) == ISTHMUS_POOL_OK) {
        uint64_t number;
        memcpy(&number, task.data, sizeof number);
        nanosleep(&pause, NULL);
        fill(result, number);
        isthmus_pool_done(pool, task.id, 0, result, length_of(number));
        isthmus_pool_free(&task);
    }
}

static void lead(const isthmus_pool *pool)
{
    static unsigned char want[LARGE];
    char error[256] = "";
    int seen[TASKS] = {0};
    for (uint64_t number = 0; number < TASKS; number++)
        if (isthmus_pool_submit(pool, &number, sizeof number, NULL, error, sizeof error) != ISTHMUS_POOL_OK)
            fail(error);
    for (int i = 0; i < TASKS; i++) {
        struct isthmus_pool_item result;
        if (isthmus_pool_result(pool, 60000, &result) != ISTHMUS_POOL_OK)
            fail("no result within a minute");
        fill(want, result.id);
        if (result.kind != ISTHMUS_POOL_DONE || result.bytes != length_of(result.id) || seen[result.id]++ ||
            memcmp(result.data, want, result.bytes) != 0)
            fail("a wrong result");
        isthmus_pool_free(&result);
    }
    struct isthmus_pool_numbers numbers;
    isthmus_pool_numbers(pool, &numbers);
    printf("%d results of %d workers\n No Errors\n", TASKS, (int)numbers.members);
}

int main(int argc, char **argv)
{
    int rank;
    char error[256] = "";
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    isthmus_pool *pool =
        isthmus_pool_of_ranks(MPI_COMM_WORLD, rank == 0 ? "flat_below=0" : NULL, NULL, 0, error, sizeof error);
    if (!pool)
        fail(error);
    if (rank == 0)
        lead(pool);
    else
        work(pool);
    isthmus_pool_end(pool);
    isthmus_pool_release(pool);
    MPI_Finalize();
    return 0;
}
