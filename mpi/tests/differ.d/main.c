/* differ SEED ROUNDS [OPERATION]: see differ.h. */
#include "differ.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    void (*run)(struct round *round);
} operations[] = {
#define X(name) { #name, round_##name },
    ROUNDS_OF(X)
#undef X
};
#define OPERATIONS_HERE (sizeof operations / sizeof *operations)

#define COMMS 7

void check(struct round *round, int code, int native_code, const struct area *constant, const struct area *result)
{
    if (code != native_code)
        round->failed = 1;
    if (constant != NULL && !area_same(constant, 1))
        round->failed = 1;
    if (result != NULL && !area_same(result, 0))
        round->failed = 1;
    if (constant != NULL)
        area_free((struct area *)constant);
    if (result != NULL)
        area_free((struct area *)result);
}

/* All of them in shapes that programs make. */
static void make_comms(MPI_Comm *comm, uint64_t seed)
{
    int rank, size;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    comm[0] = MPI_COMM_WORLD;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm[1]);
    MPI_Comm_split(MPI_COMM_WORLD, 0, -rank, &comm[2]);
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &comm[3]);
    MPI_Comm_split(MPI_COMM_WORLD, rank < (size + 1) / 2, rank, &comm[4]);
    MPI_Comm_split(MPI_COMM_WORLD, 0, (int)(mix(seed, (uint64_t)rank) & 0xffff), &comm[5]);
    MPI_Comm_split(MPI_COMM_WORLD, (int)(mix(seed, (uint64_t)rank + 77) % 3), (int)(mix(seed, (uint64_t)rank + 99) & 0xffff),
                   &comm[6]);
}

/* By itself the library leaves the first calls of a communicator to the MPI. */
static void settle(MPI_Comm comm)
{
    for (int i = 0; i < 8; i++)
        MPI_Barrier(comm);
}

/* Ends the program at the first difference: what ranks do after it means nothing. */
static void run(MPI_Comm comm, int number, uint64_t seed, size_t operation)
{
    struct round round = { .comm = comm, .seed = mix(seed, operation), .what = operations[operation].name };
    MPI_Comm_rank(comm, &round.rank);
    MPI_Comm_size(comm, &round.size);
    round.dice.state = round.seed;
    round.own.state = mix(round.seed, (uint64_t)round.rank + 1000);
    operations[operation].run(&round);
    if (!round.failed)
        return;
    fprintf(stderr, "differ: %s of %s differs on communicator %d, rank %d of %d, round's seed %llu\n", round.what,
            round.with ? round.with : "data", number, round.rank, round.size, (unsigned long long)seed);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

int main(int argc, char **argv)
{
    MPI_Comm comm[COMMS];
    int rank, failures = 0, all = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
    int rounds = argc > 2 ? atoi(argv[2]) : 10;
    if (native_find() != 0) {
        fprintf(stderr, "differ: the library isn't in\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    types_make();
    ops_make();
    make_comms(comm, seed);
    for (int i = 0; i < COMMS; i++)
        settle(comm[i]);
    failures += errors_differ(MPI_COMM_WORLD);
    for (int i = 0; i < rounds; i++)
        for (size_t operation = 0; operation < OPERATIONS_HERE; operation++) {
            if (argc > 3 && strcmp(argv[3], operations[operation].name) != 0)
                continue;
            int number = (int)(mix(seed, (uint64_t)i * 64 + operation) % COMMS);
            run(comm[number], number, mix(seed, (uint64_t)i), operation);
        }
    native.Allreduce(&failures, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0)
        printf("differ: %d rounds, %d differences\n", rounds, all);
    ops_free();
    types_free();
    for (int i = 1; i < COMMS; i++)
        MPI_Comm_free(&comm[i]);
    MPI_Finalize();
    return all != 0;
}
