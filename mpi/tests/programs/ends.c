/* Communicators that are freed late leave nothing: in MPI_Finalize, by an attribute of MPI_COMM_SELF,
 * and after it, those of a session. Two ranks, with topologies/turns. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <malloc.h>

#include "check.h"

/* LEAK_BYTES is less than what the library keeps for one. */
enum { COMMS = 50, LEAK_BYTES = 400 };
static MPI_Comm comm[COMMS];
static int rank;
static long (*counter)(int);

static size_t heap(void)
{
    return mallinfo2().uordblks;
}

static void make(MPI_Comm whole)
{
    for (int i = 0; i < COMMS; i++) {
        int sum = 0;
        long before = counter(0);
        MPI_Comm_dup(whole, &comm[i]);
        MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, comm[i]);
        CHECK(sum == 1 && counter(0) == before + 1);
    }
}

/* Returns how many bytes have come free. */
static long release(void)
{
    size_t before = heap();
    for (int i = 0; i < COMMS; i++)
        MPI_Comm_free(&comm[i]);
    return (long)(before - heap());
}

static long expected;

static void check_released(const char *when)
{
    long freed = release();
    printf("%s: %ld bytes came free, %ld before\n", when, freed, expected);
    if (freed < expected - LEAK_BYTES * COMMS) {
        fprintf(stderr, "%s: too few\n", when);
        exit(1);
    }
}

static int delete(MPI_Comm self, int key, void *value, void *state)
{
    (void)self, (void)key, (void)value, (void)state;
    check_released("in MPI_Finalize");
    return MPI_SUCCESS;
}

#if MPI_VERSION >= 4
static void check_session(void)
{
    MPI_Session session;
    MPI_Group group;
    MPI_Comm whole;
    MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &session);
    MPI_Group_from_session_pset(session, "mpi://WORLD", &group);
    MPI_Comm_create_from_group(group, "ends", MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &whole);
    MPI_Group_free(&group);
    make(whole);
    MPI_Finalize();
    check_released("after MPI_Finalize");
    MPI_Comm_free(&whole);
    MPI_Session_finalize(&session);
}
#endif

int main(int argc, char **argv)
{
    int key;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    *(void **)&counter = dlsym(RTLD_DEFAULT, "isthmus_mpi_counter");
    CHECK(counter);
    /* The MPI keeps memory for later the first time. */
    for (int round = 0; round < 3; round++) {
        make(MPI_COMM_WORLD);
        expected = release();
    }
#if MPI_VERSION >= 4
    if (argc > 1) {
        check_session();
        return 0;
    }
#endif
    make(MPI_COMM_WORLD);
    MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, delete, &key, NULL);
    MPI_Comm_set_attr(MPI_COMM_SELF, key, NULL);
    MPI_Finalize();
    return 0;
}
