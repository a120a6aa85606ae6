/*
 * pingpong: latency and bandwidth between ranks 0 and 1.
 *
 *   mpirun -n 2 pingpong [--seconds S] [--rounds N] [--turn I/N] [BYTES ...]
 *
 * BYTES are message sizes, by default 1 10 100 ... 10000000. Each size takes
 * about S seconds (0.5) after a warm-up, or exactly N rounds if --rounds is
 * given. With --turn it is measured in every N-th half second of the clock only,
 * in the I-th of N, counted from 0, for S seconds in all, and the ranks sleep in
 * between: N jobs at once are then measured in turns. Rank 0 prints one JSON
 * object on one line for each size:
 *
 *   bytes                 message size
 *   rounds                round trips measured
 *   median_half_rtt_us    median of half the round-trip time, microseconds
 *   min_half_rtt_us       the shortest one
 *   mb_per_s              bytes / median_half_rtt_us, that is 10^6 bytes per second
 *
 * The last message of each size is checked. Ranks beyond the second sleep
 * until the end, so that they don't take processor time from the first two.
 * Exit status: 1 if a message is wrong (the program aborts), 2 for wrong
 * arguments or fewer than two ranks.
 */
#define _POSIX_C_SOURCE 200809L
#include <errno.h>
#include <limits.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { TAG_PING = 1, TAG_PONG = 2, TAG_LAST_PING = 3, TURN_MS = 500, MAX_TURNS = 64 };
enum { WARM_UP_ROUNDS = 10, MIN_ROUNDS = 10, MAX_ROUNDS = 100000, MAX_SIZES = 64 };

struct options {
    double seconds;
    int rounds; /* 0: as many as fit into `seconds` */
    int turn, turns; /* 0 turns: all the time */
    int sizes[MAX_SIZES];
    int size_count;
};

static const int DEFAULT_SIZES[] = {1, 10, 100, 1000, 10000, 100000, 1000000, 10000000};

static double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static int parse_int(const char *text, int low, int high, int *value)
{
    char *end = NULL;
    errno = 0;
    long parsed = strtol(text, &end, 10);
    if (errno != 0 || end == text || *end != '\0' || parsed < low || parsed > high) {
        return -1;
    }
    *value = (int)parsed;
    return 0;
}

/* "I/N" */
static int parse_turn(const char *text, struct options *options)
{
    char copy[32];
    const char *slash = strchr(text, '/');
    if (slash == NULL || (size_t)(slash - text) >= sizeof copy) {
        return -1;
    }
    memcpy(copy, text, (size_t)(slash - text));
    copy[slash - text] = '\0';
    if (parse_int(slash + 1, 1, MAX_TURNS, &options->turns) != 0) {
        return -1;
    }
    return parse_int(copy, 0, options->turns - 1, &options->turn);
}

static int parse_arguments(int argc, char **argv, struct options *options)
{
    memset(options, 0, sizeof *options);
    options->seconds = 0.5;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--seconds") == 0 && i + 1 < argc) {
            char *end = NULL;
            options->seconds = strtod(argv[++i], &end);
            if (end == argv[i] || *end != '\0' || !(options->seconds > 0 && options->seconds <= 3600)) {
                return -1;
            }
        } else if (strcmp(argv[i], "--rounds") == 0 && i + 1 < argc) {
            if (parse_int(argv[++i], 1, MAX_ROUNDS, &options->rounds) != 0) {
                return -1;
            }
        } else if (strcmp(argv[i], "--turn") == 0 && i + 1 < argc) {
            if (parse_turn(argv[++i], options) != 0) {
                return -1;
            }
        } else if (options->size_count == MAX_SIZES ||
                   parse_int(argv[i], 0, INT_MAX, &options->sizes[options->size_count]) != 0) {
            return -1;
        } else {
            options->size_count++;
        }
    }
    if (options->size_count == 0) {
        memcpy(options->sizes, DEFAULT_SIZES, sizeof DEFAULT_SIZES);
        options->size_count = (int)(sizeof DEFAULT_SIZES / sizeof DEFAULT_SIZES[0]);
    }
    return 0;
}

static void ping(unsigned char *buffer, int bytes, int tag)
{
    MPI_Send(buffer, bytes, MPI_BYTE, 1, tag, MPI_COMM_WORLD);
    MPI_Recv(buffer, bytes, MPI_BYTE, 1, TAG_PONG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

/* The tag of the ping that was answered. */
static int pong(unsigned char *buffer, int bytes)
{
    MPI_Status status;
    MPI_Recv(buffer, bytes, MPI_BYTE, 0, MPI_ANY_TAG, MPI_COMM_WORLD, &status);
    MPI_Send(buffer, bytes, MPI_BYTE, 0, TAG_PONG, MPI_COMM_WORLD);
    return status.MPI_TAG;
}

/* One round trip as seen by rank 0, in microseconds. */
static double round_trip(int rank, unsigned char *buffer, int bytes)
{
    double start = now_us();
    if (rank == 0) {
        ping(buffer, bytes, TAG_PING);
    } else {
        pong(buffer, bytes);
    }
    return now_us() - start;
}

/* Sleeps until this job's next turn, and gives the time at which it ends, on the
 * clock of `now_us`. */
static double await_turn(const struct options *options)
{
    struct timespec wall;
    clock_gettime(CLOCK_REALTIME, &wall);
    long long now_ms = (long long)wall.tv_sec * 1000 + wall.tv_nsec / 1000000;
    long long next = now_ms / TURN_MS + 1;
    while (next % options->turns != options->turn) {
        next++;
    }
    double begin_us = now_us() + (double)(next * TURN_MS - now_ms) * 1e3;
    wall.tv_sec = (time_t)(next * TURN_MS / 1000);
    wall.tv_nsec = (long)(next * TURN_MS % 1000) * 1000000;
    while (clock_nanosleep(CLOCK_REALTIME, TIMER_ABSTIME, &wall, NULL) == EINTR) {
    }
    return begin_us + TURN_MS * 1e3;
}

/* Measures in this job's turns; gives the number of round trips. */
static int measure_in_turns(int rank, const struct options *options, unsigned char *buffer, int bytes,
                            double *times)
{
    int count = 0;
    for (int turn = 0; turn < options->seconds * 1000 / TURN_MS; turn++) {
        double end_us = await_turn(options);
        if (rank == 1) {
            while (pong(buffer, bytes) != TAG_LAST_PING) {
            }
            continue;
        }
        /* After the pause the connection starts slowly. */
        double took_us = round_trip(rank, buffer, bytes);
        int last = 0;
        while (!last) {
            double start_us = now_us();
            last = count == MAX_ROUNDS || start_us + 2.5 * took_us > end_us;
            ping(buffer, bytes, last ? TAG_LAST_PING : TAG_PING);
            took_us = now_us() - start_us;
            if (count < MAX_ROUNDS) {
                times[count++] = took_us / 2;
            }
        }
    }
    return count;
}

static int compare(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

static double median(const double *sorted, int count)
{
    return count % 2 ? sorted[count / 2] : (sorted[count / 2 - 1] + sorted[count / 2]) / 2;
}

static unsigned char pattern(int index, int bytes)
{
    return (unsigned char)((unsigned)index * 31u + (unsigned)bytes);
}

/* Sends a fresh pattern there and back. */
static void check(int rank, unsigned char *buffer, int bytes)
{
    for (int i = 0; i < bytes; i++) {
        buffer[i] = rank == 0 ? pattern(i, bytes) : 0;
    }
    round_trip(rank, buffer, bytes);
    for (int i = 0; i < bytes; i++) {
        if (buffer[i] != pattern(i, bytes)) {
            fprintf(stderr, "pingpong: rank %d: byte %d of %d is wrong\n", rank, i, bytes);
            MPI_Abort(MPI_COMM_WORLD, 1);
        }
    }
}

static int choose_rounds(const struct options *options, double warm_up_us)
{
    if (options->rounds > 0) {
        return options->rounds;
    }
    double fitting = options->seconds * 1e6 * WARM_UP_ROUNDS / (warm_up_us + 1e-3);
    return fitting < MIN_ROUNDS ? MIN_ROUNDS : fitting > MAX_ROUNDS ? MAX_ROUNDS : (int)fitting;
}

/* Gives the number of round trips. */
static int measure_at_once(int rank, const struct options *options, unsigned char *buffer, int bytes,
                           double *times)
{
    /* The first exchange pays for the connection. */
    round_trip(rank, buffer, bytes);
    double warm_up_us = 0;
    for (int i = 0; i < WARM_UP_ROUNDS; i++) {
        warm_up_us += round_trip(rank, buffer, bytes);
    }
    int rounds = choose_rounds(options, warm_up_us);
    if (rank == 0) {
        MPI_Send(&rounds, 1, MPI_INT, 1, TAG_PING, MPI_COMM_WORLD);
    } else {
        MPI_Recv(&rounds, 1, MPI_INT, 0, TAG_PING, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    for (int i = 0; i < rounds; i++) {
        times[i] = round_trip(rank, buffer, bytes) / 2;
    }
    return rounds;
}

static void measure(int rank, const struct options *options, int bytes)
{
    unsigned char *buffer = calloc(bytes > 0 ? (size_t)bytes : 1, 1);
    double *times = malloc(MAX_ROUNDS * sizeof *times);
    if (buffer == NULL || times == NULL) {
        fprintf(stderr, "pingpong: rank %d: no memory for %d bytes\n", rank, bytes);
        MPI_Abort(MPI_COMM_WORLD, 1);
        return;
    }

    int rounds = options->turns > 0 ? measure_in_turns(rank, options, buffer, bytes, times)
                                    : measure_at_once(rank, options, buffer, bytes, times);
    check(rank, buffer, bytes);

    if (rank == 0) {
        qsort(times, (size_t)rounds, sizeof *times, compare);
        double middle = median(times, rounds);
        printf("{\"bytes\":%d,\"rounds\":%d,\"median_half_rtt_us\":%.3f,\"min_half_rtt_us\":%.3f,"
               "\"mb_per_s\":%.3f}\n",
               bytes, rounds, middle, times[0], middle > 0 ? bytes / middle : 0.0);
        fflush(stdout);
    }
    free(times);
    free(buffer);
}

static void finish_asleep(void)
{
    MPI_Request request;
    int done = 0;
    MPI_Ibarrier(MPI_COMM_WORLD, &request);
    while (MPI_Test(&request, &done, MPI_STATUS_IGNORE), !done) {
        nanosleep(&(struct timespec){.tv_nsec = 10 * 1000 * 1000}, NULL);
    }
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);

    int rank = 0, size = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);

    struct options options;
    if (parse_arguments(argc, argv, &options) != 0 || size < 2) {
        if (rank == 0) {
            fprintf(stderr, "usage: pingpong [--seconds S] [--rounds N] [--turn I/N] [BYTES ...], on at least 2 ranks\n");
        }
        MPI_Finalize();
        return 2;
    }
    for (int i = 0; rank < 2 && i < options.size_count; i++) {
        measure(rank, &options, options.sizes[i]);
    }
    finish_asleep();
    MPI_Finalize();
    return 0;
}
