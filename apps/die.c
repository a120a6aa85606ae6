/*
 * die: one rank dies in the middle of the job while the others wait for it.
 *
 *   mpirun -n N die MODE [RANK [WAIT]]    (last rank, barrier)
 *
 *   MODE   how that rank dies, after every pair of ranks has exchanged a message:
 *            abort   MPI_Abort with code 7
 *            exit    exit(7) without MPI_Finalize
 *            kill    SIGKILL to itself
 *            segv    SIGSEGV to itself
 *            leave   exit(0) without MPI_Finalize
 *            quit    _exit(0) without MPI_Finalize
 *            stop    _Exit(0) without MPI_Finalize
 *            all     every rank aborts, as by abort
 *            never   it doesn't: it waits like the others
 *   WAIT   what the others do meanwhile:
 *            barrier MPI_Barrier that the dead rank never enters
 *            recv    MPI_Recv of a message that nobody sends
 *            sleep   nothing in MPI at all
 *
 * The dying rank first prints "rank R of N on HOST dies: MODE". The job must
 * end with a status other than 0, and leave no process behind; not every MPI
 * ends it after leave, quit and stop. A rank that
 * outlives its wait prints a line and ends with status 3. Wrong arguments:
 * status 2.
 */
#define _POSIX_C_SOURCE 200809L
#include <errno.h>
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { EXIT_CODE = 7, TAG_HELLO = 1, TAG_NEVER = 2 };

static const char *const MODES[] = {"abort", "exit", "kill", "segv", "leave", "quit", "stop", "all", "never", NULL};
static const char *const WAITS[] = {"barrier", "recv", "sleep", NULL};

static int is_one_of(const char *word, const char *const *words)
{
    for (; *words != NULL; words++) {
        if (strcmp(word, *words) == 0) {
            return 1;
        }
    }
    return 0;
}

static void exchange_with_all(int rank, int size)
{
    for (int distance = 1; distance < size; distance++) {
        int to = (rank + distance) % size, from = (rank + size - distance) % size, word = -1;
        MPI_Sendrecv(&rank, 1, MPI_INT, to, TAG_HELLO, &word, 1, MPI_INT, from, TAG_HELLO, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
    }
}

static void die(const char *mode)
{
    if (strcmp(mode, "abort") == 0 || strcmp(mode, "all") == 0) {
        MPI_Abort(MPI_COMM_WORLD, EXIT_CODE);
    } else if (strcmp(mode, "kill") == 0) {
        raise(SIGKILL);
    } else if (strcmp(mode, "segv") == 0) {
        signal(SIGSEGV, SIG_DFL); /* Open MPI's handler would print a stack trace first. */
        raise(SIGSEGV);
    } else if (strcmp(mode, "leave") == 0) {
        exit(0);
    } else if (strcmp(mode, "quit") == 0) {
        _exit(0);
    } else if (strcmp(mode, "stop") == 0) {
        _Exit(0);
    }
    _exit(EXIT_CODE);
}

static void wait_for_ever(const char *how)
{
    int word = 0;
    if (strcmp(how, "barrier") == 0) {
        MPI_Barrier(MPI_COMM_WORLD);
    } else if (strcmp(how, "recv") == 0) {
        MPI_Recv(&word, 1, MPI_INT, MPI_ANY_SOURCE, TAG_NEVER, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else {
        for (;;) {
            pause();
        }
    }
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);

    int rank = 0, size = 0, length = 0;
    char host[MPI_MAX_PROCESSOR_NAME] = "";
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Get_processor_name(host, &length);

    char *end = NULL;
    const char *mode = argc > 1 ? argv[1] : "";
    const char *how = argc > 3 ? argv[3] : "barrier";
    errno = 0;
    long victim = argc > 2 ? strtol(argv[2], &end, 10) : size - 1;
    int bad_rank = argc > 2 && (errno != 0 || end == argv[2] || *end != '\0' || victim < 0 || victim >= size);
    if (argc > 4 || bad_rank || !is_one_of(mode, MODES) || !is_one_of(how, WAITS)) {
        if (rank == 0) {
            fprintf(stderr, "usage: die abort|exit|kill|segv|leave|quit|stop|all|never [RANK [barrier|recv|sleep]]\n");
        }
        MPI_Finalize();
        return 2;
    }

    exchange_with_all(rank, size);
    if (strcmp(mode, "all") == 0 || (rank == victim && strcmp(mode, "never") != 0)) {
        printf("rank %d of %d on %s dies: %s\n", rank, size, host, mode);
        fflush(stdout);
        die(mode);
    }
    wait_for_ever(how);
    printf("rank %d of %d on %s lives on\n", rank, size, host);
    fflush(stdout);
    _exit(3);
}
