/* Every call of the standard that makes a communicator, a window or a file. Threads of all ranks but
 * the first wait in it. Their main threads call collectives on another communicator meanwhile, and so
 * does the first rank, which comes to the call only then. That is legal: other communicators, other
 * threads. Three ranks, with topologies/turns.
 *
 *   contexts FILE             all of them
 *   contexts FILE but NAMES   all but these
 *   contexts FILE only NAME   this one */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "check.h"

/* WAIT_US: nothing tells when a thread waits inside the MPI. If it is too short, the test finds less. */
enum { RANKS = 3, ROUNDS = 6, NUMBERS = 20000, WAIT_US = 50000, PATIENCE_SECONDS = 20 };

static const char *program, *path;
static int rank;
static MPI_Comm on, other, made, prepared;   /* of the call, of the collectives; what is made, and of what */
static MPI_Group group;
static MPI_Win window;
static MPI_File file;
static int memory[RANKS];

static void call_dup(void) { MPI_Comm_dup(on, &made); }
static void call_dup_with_info(void) { MPI_Comm_dup_with_info(on, MPI_INFO_NULL, &made); }
static void call_split(void) { MPI_Comm_split(on, 0, -rank, &made); }
static void call_split_type(void) { MPI_Comm_split_type(on, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &made); }
static void call_create(void) { MPI_Comm_create(on, group, &made); }
static void call_create_group(void) { MPI_Comm_create_group(on, group, 5, &made); }
static void call_cart_sub(void) { MPI_Cart_sub(prepared, (int[]){1}, &made); }
static void call_intercomm_merge(void) { MPI_Intercomm_merge(prepared, rank == 0, &made); }

static void call_idup(void)
{
    MPI_Request request;
    MPI_Comm_idup(on, &made, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
}

static void call_cart_create(void)
{
    MPI_Cart_create(on, 1, (int[]){RANKS}, (int[]){0}, 0, &made);
}

static void call_graph_create(void)
{
    MPI_Graph_create(on, RANKS, (int[]){1, 2, 3}, (int[]){1, 2, 0}, 0, &made);
}

static void call_dist_graph_create(void)
{
    int next = (rank + 1) % RANKS, degree = 1;
    MPI_Dist_graph_create(on, 1, &rank, &degree, &next, MPI_UNWEIGHTED, MPI_INFO_NULL, 0, &made);
}

static void call_dist_graph_create_adjacent(void)
{
    int next = (rank + 1) % RANKS, last = (rank + 2) % RANKS;
    MPI_Dist_graph_create_adjacent(on, 1, &last, MPI_UNWEIGHTED, 1, &next, MPI_UNWEIGHTED, MPI_INFO_NULL, 0, &made);
}

/* The first rank is one of the two groups. */
static void call_intercomm_create(void) { MPI_Intercomm_create(prepared, 0, on, rank == 0, 7, &made); }

static void call_win_create(void)
{
    MPI_Win_create(memory, sizeof memory, sizeof *memory, MPI_INFO_NULL, on, &window);
}

static void call_win_allocate(void)
{
    void *base;
    MPI_Win_allocate(sizeof memory, sizeof *memory, MPI_INFO_NULL, on, &base, &window);
}

static void call_win_allocate_shared(void)
{
    void *base;
    MPI_Win_allocate_shared(sizeof memory, sizeof *memory, MPI_INFO_NULL, prepared, &base, &window);
}

static void call_win_create_dynamic(void) { MPI_Win_create_dynamic(MPI_INFO_NULL, on, &window); }

static void call_file_open(void)
{
    CHECK(MPI_File_open(on, path, MPI_MODE_CREATE | MPI_MODE_RDWR | MPI_MODE_DELETE_ON_CLOSE, MPI_INFO_NULL, &file) == MPI_SUCCESS);
}

static void call_spawn(void)
{
    char *arguments[] = {"child", NULL};
    MPI_Comm_spawn(program, arguments, 1, MPI_INFO_NULL, 0, on, &made, MPI_ERRCODES_IGNORE);
}

static void call_spawn_multiple(void)
{
    char *programs[] = {(char *)program, (char *)program}, *arguments[] = {"child", NULL}, **all[] = {arguments, arguments};
    MPI_Comm_spawn_multiple(2, programs, all, (int[]){1, 1}, (MPI_Info[]){MPI_INFO_NULL, MPI_INFO_NULL}, 0, on, &made,
                            MPI_ERRCODES_IGNORE);
}

static char port[MPI_MAX_PORT_NAME];

/* The first rank waits for the others, or they for it. */
static void call_connect(void)
{
    if (rank == 0)
        MPI_Comm_accept(port, MPI_INFO_NULL, 0, prepared, &made);
    else
        MPI_Comm_connect(port, MPI_INFO_NULL, 0, prepared, &made);
}

#if MPI_VERSION >= 4
static void call_idup_with_info(void)
{
    MPI_Request request;
    MPI_Comm_idup_with_info(on, MPI_INFO_NULL, &made, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
}

static void call_create_from_group(void)
{
    MPI_Comm_create_from_group(group, "contexts", MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &made);
}

static void call_intercomm_create_from_groups(void)
{
    MPI_Group first, rest;
    MPI_Group_incl(group, 1, (int[]){0}, &first);
    MPI_Group_excl(group, 1, (int[]){0}, &rest);
    MPI_Intercomm_create_from_groups(rank == 0 ? first : rest, 0, rank == 0 ? rest : first, 0, "contexts", MPI_INFO_NULL,
                                     MPI_ERRORS_ARE_FATAL, &made);
    MPI_Group_free(&first);
    MPI_Group_free(&rest);
}
#define OF_MPI_4(X) X(idup_with_info, whole) X(create_from_group, whole) X(intercomm_create_from_groups, whole)
#else
#define OF_MPI_4(X)
#endif

/* What a call is made of beside `on`. */
static void whole(void) {}
static void grid(void) { MPI_Cart_create(on, 1, (int[]){RANKS}, (int[]){0}, 0, &prepared); }
static void shared(void) { MPI_Comm_split_type(on, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &prepared); }
static void parted(void) { MPI_Comm_split(on, rank == 0, 0, &prepared); }

static void inter(void)
{
    MPI_Comm part;
    MPI_Comm_split(on, rank == 0, 0, &part);
    MPI_Intercomm_create(part, 0, on, rank == 0, 7, &prepared);
    MPI_Comm_free(&part);
}

static void with_port(void)
{
    parted();
    if (rank == 0)
        MPI_Open_port(MPI_INFO_NULL, port);
    MPI_Bcast(port, sizeof port, MPI_CHAR, 0, on);
}

#define ALL(X) \
    X(dup, whole) X(dup_with_info, whole) X(idup, whole) X(split, whole) X(split_type, whole) X(create, whole) \
    X(create_group, whole) X(cart_create, whole) X(cart_sub, grid) X(graph_create, whole) X(dist_graph_create, whole) \
    X(dist_graph_create_adjacent, whole) X(intercomm_create, parted) X(intercomm_merge, inter) OF_MPI_4(X) \
    X(win_create, whole) X(win_allocate, whole) X(win_allocate_shared, shared) X(win_create_dynamic, whole) \
    X(file_open, whole) X(spawn, whole) X(spawn_multiple, whole) X(connect, with_port)

static const struct what {
    const char *name;
    void (*prepare)(void), (*call)(void);
} all[] = {
#define X(name, prepare) {#name, prepare, call_##name},
    ALL(X)
#undef X
};

static _Atomic int called;

static void *wait_in_it(void *what)
{
    called = 1;
    ((const struct what *)what)->call();
    return NULL;
}

static void collectives(void)
{
    static double numbers[NUMBERS];
    for (int i = 0; i < ROUNDS; i++) {
        int sum = 0, ranks[RANKS];
        MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, other);
        CHECK(sum == RANKS * (RANKS - 1) / 2);
        numbers[0] = numbers[NUMBERS - 1] = rank ? 0 : i;
        MPI_Bcast(numbers, NUMBERS, MPI_DOUBLE, 0, other);
        CHECK(numbers[0] == i && numbers[NUMBERS - 1] == i);
        MPI_Allgather(&rank, 1, MPI_INT, ranks, 1, MPI_INT, other);
        CHECK(ranks[0] == 0 && ranks[1] == 1 && ranks[2] == 2);
        MPI_Barrier(other);
    }
}

/* What was made works, and goes. */
static void finish(void)
{
    int inter, sum = 0, size;
    if (made != MPI_COMM_NULL) {
        MPI_Comm_test_inter(made, &inter);
        MPI_Comm_size(made, &size);
        if (inter) {
            MPI_Comm_disconnect(&made);
        } else {
            MPI_Allreduce((int[]){1}, &sum, 1, MPI_INT, MPI_SUM, made);
            CHECK(sum == size);
            MPI_Comm_free(&made);
        }
    }
    if (window != MPI_WIN_NULL)
        MPI_Win_free(&window);
    if (file != MPI_FILE_NULL)
        MPI_File_close(&file);
    if (prepared != MPI_COMM_NULL)
        MPI_Comm_free(&prepared);
    if (port[0] && rank == 0)
        MPI_Close_port(port);
    port[0] = '\0';
}

static void run(const struct what *what)
{
    pthread_t thread;
    if (rank == 0) {
        printf("contexts: %s\n", what->name);
        fflush(stdout);
    }
    alarm(PATIENCE_SECONDS);
    made = prepared = MPI_COMM_NULL;
    window = MPI_WIN_NULL;
    file = MPI_FILE_NULL;
    called = 0;
    /* Open MPI gives contexts out by that of the communicator of which one is made: this is the lower one. */
    MPI_Comm_dup(MPI_COMM_WORLD, &on);
    MPI_Comm_dup(MPI_COMM_WORLD, &other);
    MPI_Comm_group(on, &group);
    what->prepare();
    if (rank > 0) {
        CHECK(pthread_create(&thread, NULL, wait_in_it, (void *)what) == 0);
        while (!called)
            usleep(1000);
        usleep(WAIT_US);
        collectives();
        pthread_join(thread, NULL);
    } else {
        collectives();
        what->call();
    }
    finish();
    MPI_Group_free(&group);
    MPI_Comm_free(&other);
    MPI_Comm_free(&on);
}

static int is_among(const char *name, char *names)
{
    char copy[1024];
    snprintf(copy, sizeof copy, "%s", names);
    for (char *word = strtok(copy, " "); word; word = strtok(NULL, " "))
        if (strcmp(word, name) == 0)
            return 1;
    return 0;
}

int main(int argc, char **argv)
{
    int provided, size;
    MPI_Comm parent;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_get_parent(&parent);
    if (parent != MPI_COMM_NULL) {
        MPI_Comm_disconnect(&parent);
        MPI_Finalize();
        return 0;
    }
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    CHECK(provided == MPI_THREAD_MULTIPLE && size == RANKS && (argc == 2 || argc == 4));
    program = argv[0];
    path = argv[1];
    int only = argc == 4 && strcmp(argv[2], "only") == 0;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (argc == 2 || is_among(all[i].name, argv[3]) == only)
            run(&all[i]);
    if (rank == 0)
        printf("contexts: done\n");
    MPI_Finalize();
    return 0;
}
