/*
 * visit: pairs of ranks keep opening connections, and every byte is checked.
 *
 *   mpirun -n N visit [ROUNDS [SEED [DIRECTORY]]]      (10, 1)
 *
 * In each round the ranks pair up at random. One of a pair listens, the other
 * connects by the host's name, and both send bytes through the new TCP connection
 * and by MPI_Sendrecv. Each byte is a function of (source, seed, round, index).
 * SEED decides who meets whom and how much they send.
 *
 * In DIRECTORY rank 0 writes a line for each round that all ranks have ended to the
 * file `progress`: seconds since the epoch, and the round. If there is a file `end`,
 * no round begins. Rank 0 prints a summary and " No Errors". A wrong byte, or a
 * connection that can't be had, aborts the whole program; a wrong argument ends it
 * with status 2.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
#include <mpi.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
    TAG_MEET = 1,
    MOST_RANKS = 4096,
    LONGEST = 1 << 17, /* bytes of one message */
    PAUSE_US = 20000,  /* between rounds */
    PATIENCE_S = 1200, /* for one step of a round: more than a job waits for a cut */
    POLL_MS = 2,
};

static int rank, size;
static uint64_t seed;
static long long checked, connections;

static void give_up(const char *what, int round)
{
    fprintf(stderr, "visit: rank %d, round %d: %s: %s\n", rank, round, what, strerror(errno));
    MPI_Abort(MPI_COMM_WORLD, 1);
    exit(1);
}

/* splitmix64 (Steele, Lea and Flood, 2014). */
static uint64_t next(uint64_t *state)
{
    uint64_t x = *state += 0x9E3779B97F4A7C15u;
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
    x = (x ^ x >> 27) * 0x94D049BB133111EBu;
    return x ^ x >> 31;
}

/* The bytes that `source` sends in a round. Those for a socket have another `way`
 * than those by MPI. */
static void fill(unsigned char *data, int bytes, int source, int round, int way)
{
    uint64_t state = seed ^ (uint64_t)source << 48 ^ (uint64_t)round << 8 ^ (uint64_t)way;
    for (int i = 0; i < bytes; i++) {
        data[i] = (unsigned char)next(&state);
    }
}

static void check(const unsigned char *got, int bytes, int source, int round, int way)
{
    static unsigned char want[LONGEST];
    fill(want, bytes, source, round, way);
    for (int i = 0; i < bytes; i++) {
        if (got[i] != want[i]) {
            fprintf(stderr,
                    "visit: rank %d, round %d, from rank %d by %s, byte %d: got 0x%02x, expected "
                    "0x%02x\n",
                    rank, round, source, way == 0 ? "socket" : "MPI", i, got[i], want[i]);
            MPI_Abort(MPI_COMM_WORLD, 1);
            exit(1);
        }
    }
    checked += bytes;
}

/* Waits for a socket. MPI must go on meanwhile: what this rank has sent by it may still
 * be under way, and the other one wait for it. Returns what the socket is ready for. */
static short await(int fd, short events, int round)
{
    time_t until = time(NULL) + PATIENCE_S;
    for (;;) {
        struct pollfd entry = {.fd = fd, .events = events};
        int count = poll(&entry, 1, POLL_MS), flag = 0;
        if (count > 0) {
            return entry.revents;
        }
        if (count < 0 && errno != EINTR) {
            give_up("poll", round);
        }
        if (time(NULL) > until) {
            errno = ETIMEDOUT;
            give_up("a connection carries nothing", round);
        }
        MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
    }
}

static int is_momentary(void)
{
    return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
}

/* Both directions at once, and then the end of each. */
static void exchange(int fd, const unsigned char *out, unsigned char *in, int bytes, int round)
{
    int sent = 0, received = 0, ended = 0;
    while (sent < bytes || !ended) {
        int wanted = (ended ? 0 : POLLIN) | (sent < bytes ? POLLOUT : 0);
        short ready = await(fd, (short)wanted, round);
        if (sent < bytes && (ready & (POLLOUT | POLLERR)) != 0) {
            ssize_t count = send(fd, out + sent, (size_t)(bytes - sent), MSG_DONTWAIT | MSG_NOSIGNAL);
            if (count < 0 && !is_momentary()) {
                give_up("send", round);
            }
            sent += count > 0 ? (int)count : 0;
            if (sent == bytes && shutdown(fd, SHUT_WR) != 0) {
                give_up("shutdown", round);
            }
        }
        if ((ready & (POLLIN | POLLHUP | POLLERR)) != 0 && !ended) {
            unsigned char more = 0;
            int full = received == bytes;
            ssize_t count = recv(fd, full ? &more : in + received, full ? 1 : (size_t)(bytes - received),
                                 MSG_DONTWAIT);
            if (count < 0 && !is_momentary()) {
                give_up("recv", round);
            }
            if (count > 0 && full) {
                errno = EPROTO;
                give_up("a connection goes on behind its last byte", round);
            }
            if (count == 0 && !full) {
                errno = EPROTO;
                give_up("a connection ended early", round);
            }
            ended = count == 0;
            received += count > 0 && !full ? (int)count : 0;
        }
    }
}

/* A listener at a port of the kernel's choice, which `port` gets. */
static int listener(int *port, int round)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_ANY)};
    socklen_t length = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, length) != 0 || listen(fd, 4) != 0 ||
        getsockname(fd, (struct sockaddr *)&address, &length) != 0) {
        give_up("listen", round);
    }
    *port = ntohs(address.sin_port);
    return fd;
}

static int connected(const char *host, int port, int round)
{
    struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM}, *found = NULL;
    char service[16];
    snprintf(service, sizeof service, "%d", port);
    int error = getaddrinfo(host, service, &hints, &found);
    if (error != 0) {
        fprintf(stderr, "visit: %s: %s\n", host, gai_strerror(error));
        errno = EHOSTUNREACH;
        give_up("getaddrinfo", round);
    }
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd < 0 || connect(fd, found->ai_addr, found->ai_addrlen) != 0) {
        fprintf(stderr, "visit: to %s, port %d\n", host, port);
        give_up("connect", round);
    }
    freeaddrinfo(found);
    return fd;
}

/* A new connection with the other one of the pair. */
static int met(int other, int listens, int round)
{
    struct {
        char host[256];
        int port;
    } place;
    memset(&place, 0, sizeof place);
    if (!listens) {
        MPI_Recv(&place, (int)sizeof place, MPI_BYTE, other, TAG_MEET, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        place.host[sizeof place.host - 1] = '\0';
        return connected(place.host, place.port, round);
    }
    int door = listener(&place.port, round);
    if (gethostname(place.host, sizeof place.host - 1) != 0) {
        give_up("gethostname", round);
    }
    MPI_Request request;
    MPI_Isend(&place, (int)sizeof place, MPI_BYTE, other, TAG_MEET, MPI_COMM_WORLD, &request);
    await(door, POLLIN, round);
    int fd = accept(door, NULL, NULL);
    if (fd < 0) {
        give_up("accept", round);
    }
    close(door);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    return fd;
}

static void visit(int other, int listens, int bytes, int round)
{
    static unsigned char out[LONGEST], in[LONGEST];
    int fd = met(other, listens, round);
    fill(out, bytes, rank, round, 0);
    exchange(fd, out, in, bytes, round);
    close(fd);
    check(in, bytes, other, round, 0);
    connections += listens;

    MPI_Status status;
    int received = 0;
    fill(out, bytes, rank, round, 1);
    MPI_Sendrecv(out, bytes, MPI_BYTE, other, TAG_MEET, in, bytes, MPI_BYTE, other, TAG_MEET,
                 MPI_COMM_WORLD, &status);
    MPI_Get_count(&status, MPI_BYTE, &received);
    if (received != bytes) {
        errno = EPROTO;
        give_up("a message has another length", round);
    }
    check(in, bytes, other, round, 1);
}

/* All ranks shuffle alike (Fisher and Yates); neighbours are pairs. With an odd number
 * the last one stays alone. */
static void pair_up(int round)
{
    static int order[MOST_RANKS];
    uint64_t state = seed * 0x9E3779B97F4A7C15u + (uint64_t)round;
    for (int i = 0; i < size; i++) {
        order[i] = i;
    }
    for (int i = size - 1; i > 0; i--) {
        int j = (int)(next(&state) % (uint64_t)(i + 1)), kept = order[i];
        order[i] = order[j];
        order[j] = kept;
    }
    for (int i = 0; i + 1 < size; i += 2) {
        /* Short ones are as likely as long ones. */
        int most = 1 << next(&state) % 18, bytes = 1 + (int)(next(&state) % (uint64_t)most);
        if (order[i] == rank) {
            visit(order[i + 1], 1, bytes, round);
        } else if (order[i + 1] == rank) {
            visit(order[i], 0, bytes, round);
        }
    }
}

/* A number from `least` to INT_MAX, -1 if it is none. */
static int number(const char *text, int least)
{
    char *end = NULL;
    errno = 0;
    long value = strtol(text, &end, 10);
    if (errno != 0 || end == text || *end != '\0' || value < least || value > INT_MAX) {
        return -1;
    }
    return (int)value;
}

/* Whether the ranks are to end: one of them says so for all. */
static int is_over(const char *directory)
{
    int over = 0;
    if (rank == 0 && directory != NULL) {
        char path[4096];
        snprintf(path, sizeof path, "%s/end", directory);
        over = access(path, F_OK) == 0;
    }
    MPI_Bcast(&over, 1, MPI_INT, 0, MPI_COMM_WORLD);
    return over;
}

static FILE *progress(const char *directory)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/progress", directory);
    FILE *file = fopen(path, "w");
    if (file == NULL) {
        give_up("cannot write the file progress", 0);
    }
    return file;
}

static void tell(FILE *file, int round)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    fprintf(file, "%lld.%03ld %d\n", (long long)now.tv_sec, now.tv_nsec / 1000000, round);
    fflush(file);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);

    int rounds = argc > 1 ? number(argv[1], 1) : 10;
    int start = argc > 2 ? number(argv[2], 0) : 1;
    const char *directory = argc > 3 ? argv[3] : NULL;
    if (rounds < 0 || start < 0 || argc > 4 || size > MOST_RANKS) {
        if (rank == 0) {
            fprintf(stderr, "usage: visit [ROUNDS [SEED [DIRECTORY]]], with %d ranks at most\n", MOST_RANKS);
        }
        MPI_Finalize();
        return 2;
    }
    seed = (uint64_t)start;

    FILE *file = rank == 0 && directory != NULL ? progress(directory) : NULL;
    int round = 0;
    while (round < rounds && !is_over(directory)) {
        pair_up(round);
        MPI_Barrier(MPI_COMM_WORLD);
        if (file != NULL) {
            tell(file, round);
        }
        round++;
        usleep(PAUSE_US);
    }

    long long mine[2] = {checked, connections}, all[2] = {0, 0};
    MPI_Allreduce(mine, all, 2, MPI_LONG_LONG, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0) {
        printf("visit: %d ranks, %d rounds, %lld connections, %lld bytes checked\n", size, round,
               all[1], all[0]);
        printf(" No Errors\n");
    }
    MPI_Finalize();
    return 0;
}
