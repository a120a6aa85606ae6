/* Pools of workers over sites: many independent tasks, run by all processes of a job.
 *
 * One process is the master: it begins a pool, submits tasks and takes results. The others are
 * workers: they join the pool, take tasks and give results. A task's arguments and its result are
 * bytes; they are copied. Link with -listhmus_pool.
 *
 *     master                                      worker
 *     isthmus_pool_begin()    -- ticket -->       isthmus_pool_join()
 *     isthmus_pool_submit()                       isthmus_pool_task()
 *     isthmus_pool_result()                       isthmus_pool_done()
 *     isthmus_pool_end()                          (isthmus_pool_task() returns ISTHMUS_POOL_ENDED)
 *
 * In an MPI program isthmus_pool_of_ranks() does the first line. Include mpi.h and isthmus_mpi.h
 * before this file to have it.
 *
 * Workers come and go at any time. A task whose worker is lost is run again; each task has one
 * result. From 30 workers on, those of a node or site get their tasks from one of them, its boss, which
 * gets them together, so that one message crosses between sites for many tasks.
 *
 * Tasks of 2 GiB and more are refused, and results likewise. All functions may be called by several
 * threads at once, but isthmus_pool_release(). The library has a thread of its own for each pool. It
 * makes no MPI calls. Workers connect with the master and with their boss by TCP. Both ends show each
 * other that they know the pool's ticket, which is a secret. Between sites isthmus encrypts. */
#ifndef ISTHMUS_POOL_H
#define ISTHMUS_POOL_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct isthmus_pool isthmus_pool;

/* What functions return: there is something, there was nothing in that time, the pool has ended, or
 * the call was wrong. */
#define ISTHMUS_POOL_OK 1
#define ISTHMUS_POOL_NOTHING 0
#define ISTHMUS_POOL_ENDED -1
#define ISTHMUS_POOL_WRONG -2

/* What a result is: what the task gave, what it gave as an error, or text that says that the processes
 * which ran it have ended. */
#define ISTHMUS_POOL_DONE 0
#define ISTHMUS_POOL_FAILED 1
#define ISTHMUS_POOL_LOST 2

/* A task or a result. isthmus_pool_free() frees what it holds. */
struct isthmus_pool_item {
    uint64_t id;
    int kind;
    const void *data;
    size_t bytes;
    void *owner;
};

/* Tasks that wait, that are at workers, that have a result, that were given to another worker; results
 * that came twice, and were dropped; workers there are, and that were lost. */
struct isthmus_pool_numbers {
    uint64_t waiting, out, done, again, dropped, members, lost;
};

/* Begins a pool, as its master. Each worker gets `setup`, of 512 KiB at most, once, before its first
 * task. Returns NULL if it can't, with the reason in `error`, cut to `room` bytes.
 *
 * `options` are lines of name=value, or NULL:
 *
 *     places=SITE/NODE    where this process runs, from the widest place on
 *     attempts=2          processes that may certainly end by a task before it is given up
 *     flat_below=30       fewer workers have no bosses
 *     slots=0             tasks that this process runs itself at once, by isthmus_pool_task()
 *     host=NAME           how workers reach this process; by default the name of its host
 *     port=0              at which port; 0 is any
 *     key=HEX             the pool's key, 64 hexadecimal digits; by default a random one
 *     expects=0           workers that will join: isthmus_pool_end() waits until they have
 *     patience_s=60       seconds for which it does so */
isthmus_pool *isthmus_pool_begin(const char *options, const void *setup, size_t setup_bytes, char *error,
                                 size_t room);

/* What workers need to join, HOST:PORT:KEY. It lives as long as the pool. */
const char *isthmus_pool_ticket(const isthmus_pool *pool);

/* Joins a pool, as a worker. Options are `places`, and
 *
 *     slots=1             tasks that it runs at once
 *     patience_s=60       seconds for which it tries to reach the master */
isthmus_pool *isthmus_pool_join(const char *ticket, const char *options, char *error, size_t room);

/* Adds a task; stores its number, from 0 on. */
int isthmus_pool_submit(const isthmus_pool *pool, const void *data, size_t bytes, uint64_t *id, char *error,
                        size_t room);

/* Takes a task back that no worker has got yet: 1 if it did, and 0 if it has got a result, or will. */
int isthmus_pool_cancel(const isthmus_pool *pool, uint64_t id);

/* Waits for the next result, for so many milliseconds, or without end if negative. */
int isthmus_pool_result(const isthmus_pool *pool, int milliseconds, struct isthmus_pool_item *result);

/* Waits for the bytes that each worker gets once, at a worker. They are there once. */
int isthmus_pool_setup(const isthmus_pool *pool, struct isthmus_pool_item *setup);

/* Waits for the next task. */
int isthmus_pool_task(const isthmus_pool *pool, int milliseconds, struct isthmus_pool_item *task);

/* Gives a task's result, or its error if `failed` isn't 0. */
int isthmus_pool_done(const isthmus_pool *pool, uint64_t id, int failed, const void *data, size_t bytes);

/* Frees what an item holds. */
void isthmus_pool_free(struct isthmus_pool_item *item);

/* Counts, at the master. */
int isthmus_pool_numbers(const isthmus_pool *pool, struct isthmus_pool_numbers *numbers);

/* The same by the outermost of the workers' places, at the master: a line for each, with its workers, the
 * tasks that have a result from there, and its name. Lines that don't fit into `room` bytes are left out. */
int isthmus_pool_sites(const isthmus_pool *pool, char *sites, size_t room);

/* Why the pool has ended, as text cut to `room` bytes: ISTHMUS_POOL_OK if its master has ended it,
 * ISTHMUS_POOL_ENDED if it has failed, ISTHMUS_POOL_NOTHING if it goes on. */
int isthmus_pool_why(const isthmus_pool *pool, char *reason, size_t room);

/* Ends the pool, at the master, or this process's part in it. The master first waits for workers that have
 * yet to join, if it was told how many it expects. Calls of other threads return. */
void isthmus_pool_end(const isthmus_pool *pool);

/* Frees the pool. No other call may go on, and none may follow. */
void isthmus_pool_release(isthmus_pool *pool);

#if defined(MPI_VERSION) && defined(ISTHMUS_MPI_H)

#include <stdio.h>
#include <string.h>

/* Longest ticket, and longest list of places. */
#define ISTHMUS_POOL_TICKET_ 512
#define ISTHMUS_POOL_PLACES_ 4096

/* How many other ranks there are, where this one runs, and the options after that. Returns whether there is
 * room for all. */
static inline int isthmus_pool_options_(MPI_Comm comm, int rank, const char *options, char *all, size_t room)
{
    int levels = 0, size;
    MPI_Comm_size(comm, &size);
    size_t used = (size_t)snprintf(all, room, "expects=%d\nplaces=", size - 1);
    isthmus_levels(comm, &levels);
    for (int level = 1; level < levels && used < room; level++) {
        char name[256] = "";
        isthmus_place_name(comm, rank, level, name, sizeof name);
        used += (size_t)snprintf(all + used, room - used, "%s/", name);
    }
    if (used < room)
        used += (size_t)snprintf(all + used, room - used, "\n%s", options ? options : "");
    return used < room;
}

/* A pool of a communicator's ranks: rank 0 is its master, all others are workers. Collective. Returns
 * NULL at a rank that can't take part, and at all of them if rank 0 can't begin. */
static inline isthmus_pool *isthmus_pool_of_ranks(MPI_Comm comm, const char *options, const void *setup,
                                                  size_t setup_bytes, char *error, size_t room)
{
    int rank;
    char ticket[ISTHMUS_POOL_TICKET_] = "", all[ISTHMUS_POOL_PLACES_];
    isthmus_pool *pool = NULL;
    MPI_Comm_rank(comm, &rank);
    int fits = isthmus_pool_options_(comm, rank, options, all, sizeof all);
    if (!fits && room > 0)
        snprintf(error, room, "the options and the places' names take more than %zu bytes", sizeof all);
    if (rank == 0 && fits) {
        pool = isthmus_pool_begin(all, setup, setup_bytes, error, room);
        if (pool)
            snprintf(ticket, sizeof ticket, "%s", isthmus_pool_ticket(pool));
    }
    MPI_Bcast(ticket, sizeof ticket, MPI_CHAR, 0, comm);
    if (rank != 0 && fits && ticket[0])
        pool = isthmus_pool_join(ticket, all, error, room);
    else if (rank != 0 && fits && room > 0)
        snprintf(error, room, "the master, rank 0, can't begin the pool");
    return pool;
}

#endif

#ifdef __cplusplus
}
#endif

#endif
