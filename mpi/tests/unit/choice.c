/* The choice of algorithms: crossings by order of ranks, and what is taken, by tables. */
#include "../../back/choice.h"
#include "../../back/least.h"
#include "../../back/window.h"

#include "unit.h"

enum { RANKS_MAX = 128, SITES = 8 };

/* A topology whose sites have a letter each: the one at the same index in
 * `continents` is the place of a site. Sites of one continent are `near_rtt` apart, others `rtt`. */
struct grid {
    int size, sites, site_of[RANKS_MAX], site[SITES], place[SITES * 2];
    struct path path[SITES * SITES];
    struct topology topology;
    struct places places;
};

static void grid_make(struct grid *grid, const char *sites, const char *continents, double rtt, double near_rtt, double rate)
{
    *grid = (struct grid){ .size = (int)strlen(sites) };
    for (int r = 0; r < grid->size; r++) {
        grid->site_of[r] = sites[r] - 'a';
        grid->sites = grid->site_of[r] >= grid->sites ? grid->site_of[r] + 1 : grid->sites;
    }
    for (int a = 0; a < grid->sites; a++) {
        grid->site[a] = grid->place[2 * a + 1] = a;
        grid->place[2 * a] = continents[a];
        for (int b = 0; b < grid->sites; b++) {
            double apart = a == b ? 60e-6 : continents[a] == continents[b] ? near_rtt : rtt;
            grid->path[a * grid->sites + b] = (struct path){ apart, a == b ? 1e9 : rate };
        }
    }
    grid->topology = (struct topology){
        .levels = 2, .sites = grid->sites, .places = grid->place, .path = grid->path,
    };
    grid->places = (struct places){ grid->size, grid->site_of, grid->sites, grid->site, &grid->topology };
}

/* The shape of ranks at sites that are one letter each, all equally far apart. */
static struct shape shape_of(const char *sites, double rtt, double rate)
{
    struct grid grid;
    struct shape shape = { 0 };
    grid_make(&grid, sites, "EEEEEEEE", rtt, rtt, rate);
    CHECK(shape_make(&shape, &grid.places) == 0, "memory");
    return shape;
}

/* Of both binomial trees. */
static double fewest(const struct shape *shape)
{
    double in_order = shape->tree[IN_ORDER].latency, doubled = shape->tree[DOUBLED].latency;
    return in_order < doubled ? in_order : doubled;
}

static void check_crossings(void)
{
    static const struct {
        const char *sites;
        int count, smallest, largest, contiguous, tree, doubling, dissemination, ring;
    } cases[] = {
        { "a", 1, 1, 1, 1, 0, 0, 0, 0 },
        { "aaaa", 1, 4, 4, 1, 0, 0, 0, 0 },
        { "ab", 2, 1, 1, 1, 1, 1, 1, 1 },
        { "aabb", 2, 2, 2, 1, 1, 1, 2, 2 },
        { "abab", 2, 2, 2, 0, 1, 1, 1, 3 },
        { "abc", 3, 1, 1, 1, 1, 2, 2, 2 },
        { "aaaabbbb", 2, 4, 4, 1, 1, 1, 2, 2 },
        { "aaaabbbbcccc", 3, 4, 4, 1, 1, 2, 3, 3 },
        { "abcabcabc", 3, 3, 3, 0, 3, 4, 4, 8 },
        { "aaab", 2, 1, 3, 1, 1, 2, 2, 2 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct shape s = shape_of(cases[i].sites, 0.01, 1e8);
        const char *name = cases[i].sites;
        CHECK(s.sites == cases[i].count, "%s: %d", name, s.sites);
        CHECK(s.smallest == cases[i].smallest && s.largest == cases[i].largest, "%s: %d %d", name, s.smallest, s.largest);
        CHECK(s.contiguous == cases[i].contiguous, "%s", name);
        CHECK(fewest(&s) == cases[i].tree, "%s: %g", name, fewest(&s));
        CHECK(s.doubling.latency == cases[i].doubling && s.doubling.number == cases[i].doubling, "%s: %g", name, s.doubling.latency);
        CHECK(s.dissemination.latency == cases[i].dissemination && s.dissemination.number == cases[i].dissemination, "%s: %g", name, s.dissemination.latency);
        CHECK(s.ring.latency == cases[i].ring && s.ring.number == cases[i].ring, "%s: %g", name, s.ring.latency);
    }
}

/* Open MPI's binary tree has levels of 1, 2 and 4 ranks: 0; 1, 2; 3, 4, 5, 6. Ranks 3 and 5 hear of 1, 4 and 6 of 2. */
static void check_binary_and_star(void)
{
    static const struct {
        const char *sites;
        int root, binary, star;
    } cases[] = {
        { "ab", 0, 1, 1 },     { "aabb", 0, 1, 2 },    { "aabb", 1, 2, 2 },   { "aabbcc", 0, 2, 4 },
        { "aabaab", 0, 2, 2 }, { "abcabc", 0, 2, 4 },  { "aaab", 3, 1, 3 },   { "aaaabbbb", 0, 1, 4 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct grid grid;
        struct shape shape = { 0 };
        grid_make(&grid, cases[i].sites, "EEE", 0.01, 0.01, 1e8);
        CHECK(shape_make(&shape, &grid.places) == 0, "memory");
        CHECK(shape_root(&shape, &grid.places, cases[i].root) == 0, "memory");
        CHECK(shape.tree[OF_TWO].number == cases[i].binary, "%s from %d: %d", cases[i].sites, cases[i].root,
              shape.tree[OF_TWO].number);
        CHECK(shape.star.number == cases[i].star, "%s from %d: %d", cases[i].sites, cases[i].root, shape.star.number);
    }
}

static void check_roots(void)
{
    struct grid grid;
    struct shape shape = { 0 };
    grid_make(&grid, "aaaabbbb", "EE", 0.01, 0.01, 1e8);
    CHECK(shape_make(&shape, &grid.places) == 0, "memory");
    static const int want[] = { 1, 2, 2, 2, 1, 2, 2, 2 };
    for (int root = 0; root < 8; root++) {
        CHECK(shape_root(&shape, &grid.places, root) == 0, "memory");
        CHECK(fewest(&shape) == want[root], "root %d: %g", root, fewest(&shape));
    }
}

/* Four sites on two continents, 100 ms apart; those of a continent are 10 ms apart. */
static void check_levels(void)
{
    struct grid grid;
    struct shape shape = { 0 }, flat = shape_of("aabbccdd", 0.1, 1e8);
    grid_make(&grid, "aabbccdd", "EEAA", 0.1, 0.01, 1e8);
    CHECK(shape_make(&shape, &grid.places) == 0, "memory");
    CHECK(shape.levels == 2 && flat.levels == 1, "%d, %d", shape.levels, flat.levels);
    CHECK(shape.level[0].subsets == 2 && shape.level[1].subsets == 2, "%d, %d", shape.level[0].subsets, shape.level[1].subsets);
    CHECK(shape.level[0].ranks == 4 && shape.level[1].ranks == 2, "%d, %d", shape.level[0].ranks, shape.level[1].ranks);
    CHECK(shape.level[0].rtt_seconds == 0.1 && shape.level[1].rtt_seconds == 0.01, "levels' round trips");
    CHECK(flat.level[0].subsets == 4 && flat.level[0].ranks == 2, "%d, %d", flat.level[0].subsets, flat.level[0].ranks);
    /* A near crossing counts a tenth. The ring leaves out an edge within a site, the chain a far one. */
    CHECK(shape.doubling.latency > 1.09 && shape.doubling.latency < 1.11, "%g", shape.doubling.latency);
    CHECK(shape.ring.latency > 2.19 && shape.ring.latency < 2.21, "%g", shape.ring.latency);
    CHECK(shape.chain.latency > 1.19 && shape.chain.latency < 1.21, "%g", shape.chain.latency);
    /* Half a round trip at each level; those who all get a sum go up and down the inner one. */
    double far = 0.05, near = 0.005;
    double tree = predicted_seconds(OP_BCAST, LEADERS, &shape, 8), both = predicted_seconds(OP_ALLREDUCE, LEADERS, &shape, 8);
    CHECK(tree > far + near && tree < 1.1 * (far + near), "%g", tree);
    CHECK(both > far + 2 * near && both < 1.1 * (far + 2 * near), "%g", both);
    /* The MPI's own crosses the ocean once already, in this order of ranks, and not in another. */
    CHECK(choose(OP_ALLREDUCE, &shape, 8, 1) == NATIVE, "in order of sites");
    grid_make(&grid, "abdcabdc", "EAEA", 0.1, 0.01, 1e8);
    CHECK(shape_make(&shape, &grid.places) == 0, "memory");
    CHECK(choose(OP_ALLREDUCE, &shape, 8, 1) == LEADERS, "continents in turns");
    CHECK(choose_asked(OP_ALLREDUCE, &shape, 8, 1, SCATTERED) == LEADERS, "scattered, nested");
}

#define THREE "aaaaabbbbbccccc"
#define TWO "aaaaabbbbb"
#define TURNS "abcabcabcabcabc"

/* Round trips of 20 ms, 50 MB/s for a connection. */
static void check_choice(void)
{
    static const struct {
        enum operation operation;
        const char *sites;
        size_t bytes;
        int commutative;
        enum algorithm want;
    } cases[] = {
        /* One site, or nothing to win. */
        { OP_BARRIER, "aaaa", 0, 1, NATIVE },
        { OP_BCAST, "aaaa", 1 << 20, 1, NATIVE },
        { OP_BCAST, "aaaabbbb", 8, 1, NATIVE },
        { OP_ALLREDUCE, "ab", 8, 1, NATIVE },
        { OP_GATHER, TURNS, 1 << 20, 1, NATIVE },
        /* Latency. */
        { OP_BARRIER, THREE, 0, 1, LEADERS },
        { OP_BCAST, TURNS, 8, 1, LEADERS },
        { OP_REDUCE, TURNS, 8, 1, LEADERS },
        { OP_ALLREDUCE, THREE, 8, 1, LEADERS },
        { OP_ALLGATHER, THREE, 8, 1, LEADERS },
        { OP_REDUCE_SCATTER, THREE, 64, 1, LEADERS },
        /* Bytes. */
        { OP_BCAST, THREE, 32 << 20, 1, RELAYED },
        { OP_BCAST, TWO, 32 << 20, 1, NATIVE },
        { OP_ALLREDUCE, THREE, 32 << 20, 1, SCATTERED },
        { OP_ALLGATHER, THREE, 1 << 20, 1, LANES },
        { OP_REDUCE_SCATTER, THREE, 32 << 20, 1, LANES },
        { OP_ALLTOALL, THREE, 32 << 20, 1, NATIVE },
        /* Rank order: only where a site's ranks follow one another. */
        { OP_ALLREDUCE, THREE, 8, 0, LEADERS },
        { OP_ALLREDUCE, TURNS, 8, 0, NATIVE },
        { OP_REDUCE, TURNS, 32 << 20, 0, NATIVE },
        { OP_BCAST, TURNS, 8, 0, LEADERS },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct shape shape = shape_of(cases[i].sites, 0.02, 5e7);
        enum algorithm got = choose(cases[i].operation, &shape, cases[i].bytes, cases[i].commutative);
        CHECK(got == cases[i].want, "%s of %zu bytes at %s: %s, not %s", operation_name(cases[i].operation),
              cases[i].bytes, cases[i].sites, algorithm_name(got), algorithm_name(cases[i].want));
    }
}

/* Four sites in order: Open MPI's binomial tree crosses twice, and its own broadcast of large
 * messages to few ranks sends one to each. Whatever MPI it may be, one crossing may do. */
static void check_open_mpi(void)
{
    static const struct {
        enum operation operation;
        size_t bytes;
        enum algorithm of_open_mpi, of_any;
    } cases[] = {
        { OP_REDUCE, 8, LEADERS, LEADERS },
        { OP_GATHER, 8, LEADERS, NATIVE },
        { OP_GATHER, 4 << 20, NATIVE, NATIVE },
        { OP_SCATTER, 8, LEADERS, NATIVE },
        { OP_SCATTER, 16384, NATIVE, NATIVE },
        { OP_BCAST, 16 << 20, RELAYED, RELAYED },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct shape shape = shape_of("aabbccdd", 0.0106, 25e6);
        for (int known = 0; known < 2; known++) {
            shape.family = known ? FAMILY_OPENMPI : FAMILY_ANY;
            enum algorithm got = choose(cases[i].operation, &shape, cases[i].bytes, 1);
            enum algorithm want = known ? cases[i].of_open_mpi : cases[i].of_any;
            CHECK(got == want, "%s of %zu bytes: %s, not %s", operation_name(cases[i].operation), cases[i].bytes,
                  algorithm_name(got), algorithm_name(want));
        }
    }
}

/* What MPIs took, in milliseconds, of ranks that fill sites of two: isthmus-bench coll --slow 10 or 20, 10.6 ms and
 * 200 Mb/s. Open MPI 4's Reduce of 1 MiB and more, and of 256 KiB, receives from one rank after the other; a Bcast of
 * 4 MiB goes along the ranks. MPICH 5's Reduce and Allreduce of more than 2 KiB begin with a reduce-scatter, and its Bcast
 * asks one child after the other. */
static void check_few_ranks(void)
{
    static const struct {
        enum family family;
        enum operation operation;
        const char *sites;
        size_t bytes;
        double measured_ms;
        enum algorithm want;
    } cases[] = {
        { FAMILY_OPENMPI, OP_REDUCE, "aabb", 256 << 10, 49.5, LEADERS },
        { FAMILY_OPENMPI, OP_REDUCE, "aabb", 1 << 20, 115.0, LANES },
        { FAMILY_OPENMPI, OP_REDUCE, "aabb", 4 << 20, 378.1, LANES },
        { FAMILY_OPENMPI, OP_REDUCE, "aabbcc", 8, 10.9, LEADERS },
        { FAMILY_OPENMPI, OP_REDUCE, "aabbcc", 4 << 10, 11.8, LEADERS },
        { FAMILY_OPENMPI, OP_REDUCE, "aabbcc", 256 << 10, 92.7, RELAYED },
        { FAMILY_OPENMPI, OP_REDUCE, "aabbcc", 1 << 20, 224.8, RELAYED },
        { FAMILY_OPENMPI, OP_REDUCE, "aabbcc", 4 << 20, 748.6, RELAYED },
        { FAMILY_OPENMPI, OP_BCAST, "aabb", 4 << 20, 192.5, LANES },
        { FAMILY_OPENMPI, OP_BCAST, "aabbcc", 8, 11.1, LEADERS },
        { FAMILY_OPENMPI, OP_BCAST, "aabbcc", 256 << 10, 60.8, RELAYED },
        { FAMILY_OPENMPI, OP_BCAST, "aabbcc", 1 << 20, 121.0, RELAYED },
        { FAMILY_OPENMPI, OP_BCAST, "aabbcc", 4 << 20, 415.9, RELAYED },
        { FAMILY_MPICH, OP_BCAST, "aabbcc", 256 << 10, 47.0, RELAYED },
        { FAMILY_MPICH, OP_REDUCE, "aabb", 8, 5.4, NATIVE },
        { FAMILY_MPICH, OP_REDUCE, "aabb", 4 << 10, 11.4, LEADERS },
        { FAMILY_MPICH, OP_REDUCE, "aabb", 32 << 10, 12.3, LEADERS },
        { FAMILY_MPICH, OP_REDUCE, "aabbcc", 4 << 10, 17.5, LEADERS },
        { FAMILY_MPICH, OP_ALLREDUCE, "aabb", 8, 5.3, NATIVE },
        { FAMILY_MPICH, OP_ALLREDUCE, "aabb", 4 << 10, 11.1, LEADERS },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct shape shape = shape_of(cases[i].sites, 0.0106, 25e6);
        shape.family = cases[i].family;
        shape.shared_links = 1;
        const char *name = operation_name(cases[i].operation);
        double ms = 1e3 * predicted_seconds(cases[i].operation, NATIVE, &shape, cases[i].bytes);
        double share = ms / cases[i].measured_ms;
        CHECK(share > 0.85 && share < 1.05, "%s, %zu bytes, %s: %g ms", name, cases[i].bytes, cases[i].sites, ms);
        enum algorithm got = choose(cases[i].operation, &shape, cases[i].bytes, 1);
        CHECK(got == cases[i].want, "%s, %zu bytes, %s: %s", name, cases[i].bytes, cases[i].sites, algorithm_name(got));
    }
}

/* An Allreduce of 256 KiB over three sites took 62 ms by leaders, of whom each sends more at once than its link and the
 * queue before it hold, and 27 ms scattered: both MPIs, 10.6 ms and 200 Mb/s, isthmus-bench coll --slow 9. */
static void check_overrun(void)
{
    struct shape shape = shape_of("aabbcc", 0.0106, 25e6);
    for (int family = FAMILY_OPENMPI; family <= FAMILY_MPICH; family++) {
        shape.family = (enum family)family;
        CHECK(choose(OP_ALLREDUCE, &shape, 256 << 10, 1) == SCATTERED, "family %d, 256 KiB", family);
        CHECK(choose(OP_ALLREDUCE, &shape, 64 << 10, 1) == LEADERS, "family %d, 64 KiB", family);
        CHECK(choose(OP_ALLREDUCE, &shape, 4 << 20, 1) == SCATTERED, "family %d, 4 MiB", family);
    }
}

/* In order, rank 0 sends to ranks 2 and 4 of other sites; in turns, each of three ranks sends to one. */
static void check_far_children(void)
{
    struct shape in_order = shape_of("aabbcc", 0.0106, 25e6), turns = shape_of("ababab", 0.0106, 25e6);
    CHECK(in_order.far_children[IN_ORDER] == 2, "%d", in_order.far_children[IN_ORDER]);
    CHECK(turns.far_children[IN_ORDER] == 1, "%d", turns.far_children[IN_ORDER]);
}

/* Two clusters of 16 ranks, 15.6 ms and 136 Mb/s apart: Open MPI's own allgather of 1 to 64 KiB swaps with neighbours,
 * who cross in every other step, or in each where sites are in turns. From 64 KiB on it goes round the ring, where each
 * step waits for an answer from the other cluster: Open MPI 4 took 1.07 to 1.23 s for 256 KiB, and 8.8 s in turns
 * (isthmus-bench coll --slow 4). */
static void check_allgather(void)
{
    static const char blocks[] = "aaaaaaaaaaaaaaaabbbbbbbbbbbbbbbb", turns[] = "abababababababababababababababab";
    static const struct {
        const char *sites;
        size_t bytes;
        double least_ms, most_ms;
        enum algorithm want;
    } cases[] = {
        { blocks, 64, 8, 9, NATIVE },              { blocks, 512, 15, 16, LEADERS },
        { blocks, 4 << 10, 66, 75, LANES },
        { blocks, 256 << 10, 960, 1000, LANES },   { turns, 4 << 10, 240, 260, LANES },
        { turns, 256 << 10, 7000, 8200, LANES },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct shape shape = shape_of(cases[i].sites, 0.0156, 17e6);
        shape.family = FAMILY_OPENMPI;
        shape.shared_links = 1;
        double ms = 1e3 * predicted_seconds(OP_ALLGATHER, NATIVE, &shape, cases[i].bytes);
        CHECK(ms > cases[i].least_ms && ms < cases[i].most_ms, "%s, %zu bytes: %g ms", cases[i].sites, cases[i].bytes, ms);
        enum algorithm got = choose(OP_ALLGATHER, &shape, cases[i].bytes, 1);
        CHECK(got == cases[i].want, "%s, %zu bytes: %s", cases[i].sites, cases[i].bytes, algorithm_name(got));
    }
    /* Each rank sends half of all in the last step of recursive doubling. Measured with Open MPI 4: of 4 KiB 6.3 ms, and
     * 6.0 by leaders; of 16 KiB 8.4 and 7.0; of 32 KiB, where it asks first, 22 and 8. */
    struct shape few = shape_of("aabb", 0.0106, 25e6);
    few.family = FAMILY_OPENMPI;
    CHECK(choose(OP_ALLGATHER, &few, 4 << 10, 1) == NATIVE, "4 KiB");
    CHECK(choose(OP_ALLGATHER, &few, 16 << 10, 1) == LEADERS, "16 KiB");
    CHECK(choose(OP_ALLGATHER, &few, 32 << 10, 1) == LEADERS, "32 KiB");
}

/* Two clusters of 16 ranks, 15.6 ms and 136 Mb/s apart, whose ranks are in turns. All of Open MPI's messages to the last
 * ranks of its k-nomial tree cross at once, 16 of them: isthmus-bench coll --slow 20. Its binomial tree of short messages
 * crosses once, and so do trees of blocks of ranks. */
static void check_link(void)
{
    /* 64 and 64 ranks in blocks: each rank of one half of a binary tree has its message from the other cluster. */
    char halves[RANKS_MAX + 1] = { 0 };
    for (int r = 0; r < RANKS_MAX; r++)
        halves[r] = r < RANKS_MAX / 2 ? 'a' : 'b';
    struct shape many = shape_of(halves, 0.0156, 17e6);
    many.family = FAMILY_OPENMPI;
    CHECK(many.tree[OF_TWO].link == 64 && many.tree[OF_FOUR].link == 1, "%g, %g", many.tree[OF_TWO].link, many.tree[OF_FOUR].link);
    CHECK(choose(OP_BCAST, &many, 8 << 10, 1) == LEADERS && choose(OP_BCAST, &many, 8, 1) == NATIVE, "128 ranks");
    static const char blocks[] = "aaaaaaaaaaaaaaaabbbbbbbbbbbbbbbb", turns[] = "abababababababababababababababab";
    static const struct {
        const char *sites;
        size_t bytes;
        double measured_ms;
        enum algorithm want;
    } cases[] = {
        { turns, 8, 8.1, NATIVE },           { turns, 4 << 10, 12.2, LEADERS }, { turns, 32 << 10, 40.3, LEADERS },
        { blocks, 8, 8.3, NATIVE },          { blocks, 4 << 10, 8.5, NATIVE },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct shape shape = shape_of(cases[i].sites, 0.0156, 17e6);
        shape.family = FAMILY_OPENMPI;
        shape.shared_links = 1;
        double ms = 1e3 * predicted_seconds(OP_BCAST, NATIVE, &shape, cases[i].bytes), share = ms / cases[i].measured_ms;
        CHECK(share > 0.9 && share < 1.05, "%s, %zu bytes: %g ms", cases[i].sites, cases[i].bytes, ms);
        enum algorithm got = choose(OP_BCAST, &shape, cases[i].bytes, 1);
        CHECK(got == cases[i].want, "%s, %zu bytes: %s", cases[i].sites, cases[i].bytes, algorithm_name(got));
    }
}

/* Whom eight ranks have a message from that rank 0 sends. In order: 1, 2 and 4 from 0, 3 from 2, 5 and 6 from 4, 7 from
 * 6. Doubled: 1, 2, 4 from 0, 3 and 5 from 1, 6 from 2, 7 from 3. Of four: 1 to 4 from 0, 5 to 7 from 4. Of two: 1 and 2
 * from 0, 3 and 5 from 1, 4 and 6 from 2, 7 from 3. From another root, ranks are counted from there. */
static void check_trees(void)
{
    static const struct {
        const char *sites;
        int root, latency[TREES], link[TREES];
    } cases[] = {
        { "aaaabbbb", 0, { 1, 1, 1, 1 }, { 1, 4, 1, 4 } },
        { "abababab", 0, { 1, 1, 1, 1 }, { 4, 1, 4, 1 } },
        { "aabbccdd", 0, { 2, 2, 2, 2 }, { 2, 4, 3, 3 } },
        { "aaaabbbb", 2, { 2, 2, 2, 2 }, { 2, 4, 3, 3 } },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct grid grid;
        struct shape shape = { 0 };
        grid_make(&grid, cases[i].sites, "EEEE", 0.01, 0.01, 1e8);
        CHECK(shape_make(&shape, &grid.places) == 0, "memory");
        CHECK(shape_root(&shape, &grid.places, cases[i].root) == 0, "memory");
        for (int t = 0; t < TREES; t++) {
            struct crossings got = shape.tree[t];
            CHECK(got.latency == cases[i].latency[t] && got.number == cases[i].latency[t] && got.link == cases[i].link[t],
                  "%s from %d, tree %d: %g, %g", cases[i].sites, cases[i].root, t, got.latency, got.link);
        }
    }
}

/* What the busiest link carries. Of three ranks, 0 hands its block to 1, which swaps half of all with 2. */
static void check_loads(void)
{
    static const struct {
        const char *sites;
        double ring, doubling, dissemination;
    } cases[] = {
        { "aaaa", 0, 0, 0 },
        { "aaaabbbb", 1, 16, 21 },
        { "abababab", 4, 4, 4 },
        { "abc", 1, 4.5, 2 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct shape s = shape_of(cases[i].sites, 0.01, 1e8);
        CHECK(s.ring.link == cases[i].ring && s.chain.link == cases[i].ring, "%s: %g", cases[i].sites, s.ring.link);
        CHECK(s.doubling_blocks == cases[i].doubling, "%s: %g", cases[i].sites, s.doubling_blocks);
        CHECK(s.dissemination_blocks == cases[i].dissemination, "%s: %g", cases[i].sites, s.dissemination_blocks);
    }
}

/* Ranks with too few processors: what each site hands on waits where ranks poll. All else is the same. */
static void check_oversubscribed(void)
{
    static const struct {
        enum operation operation;
        size_t bytes;
        int commutative;
        enum algorithm of_open_mpi[2], of_mpich[2], of_any[2];   /* with enough processors, and without */
    } cases[] = {
        { OP_BCAST, 8, 1, { LEADERS, LEADERS }, { LEADERS, LEADERS }, { LEADERS, LEADERS } },
        { OP_BCAST, 1 << 20, 1, { RELAYED, RELAYED }, { RELAYED, RELAYED }, { RELAYED, RELAYED } },
        { OP_REDUCE, 8, 1, { LEADERS, LEADERS }, { LEADERS, LEADERS }, { LEADERS, LEADERS } },
        { OP_REDUCE, 1 << 20, 1, { RELAYED, RELAYED }, { RELAYED, RELAYED }, { RELAYED, RELAYED } },
        { OP_REDUCE, 1 << 20, 0, { SCATTERED, SCATTERED }, { NATIVE, NATIVE }, { NATIVE, NATIVE } },
        { OP_ALLREDUCE, 8, 1, { LEADERS, LEADERS }, { LEADERS, LEADERS }, { LEADERS, LEADERS } },
    };
    struct shape shape = shape_of("aabbccdd", 0.0106, 25e6);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (int few = 0; few < 2; few++) {
            const enum algorithm want[] = {
                [FAMILY_ANY] = cases[i].of_any[few],
                [FAMILY_OPENMPI] = cases[i].of_open_mpi[few],
                [FAMILY_MPICH] = cases[i].of_mpich[few],
            };
            shape.is_oversubscribed = few;
            for (int family = FAMILY_ANY; family <= FAMILY_MPICH; family++) {
                shape.family = (enum family)family;
                enum algorithm got = choose(cases[i].operation, &shape, cases[i].bytes, cases[i].commutative);
                CHECK(got == want[family], "%s of %zu bytes, family %d, oversubscribed %d: %s, not %s",
                      operation_name(cases[i].operation), cases[i].bytes, family, few, algorithm_name(got),
                      algorithm_name(want[family]));
            }
        }
    }
    CHECK(choose_asked(OP_BCAST, &shape, 1 << 20, 1, RELAYED) == RELAYED, "who asks gets it");
}

/* What is taken is predicted not to be slower than the native one, whether links are shared or not,
 * and to be faster one way. */
static void check_never_slower(void)
{
    static const char *const sites[] = { "ab", "aaab", "abab", THREE, TURNS, "abbbbbbbc", "aabbccdd", "acbdacbd" };
    static const double rtts[] = { 1e-4, 1e-3, 1e-2, 0.2 }, rates[] = { 1e6, 1e8, 1e10 };
    for (size_t i = 0; i < sizeof sites / sizeof *sites * 24; i++) {
        struct grid grid;
        struct shape shape = { 0 };
        double rtt = rtts[i % 12 / 3], near_rtt = i / 12 % 2 ? rtt / 20 : rtt;
        grid_make(&grid, sites[i / 24], "EEAA", rtt, near_rtt, rates[i % 3]);
        CHECK(shape_make(&shape, &grid.places) == 0, "memory");
        for (int o = 0; o < OPERATIONS; o++) {
            for (size_t bytes = 1; bytes < (size_t)1 << 31; bytes *= 8) {
                enum algorithm got = choose((enum operation)o, &shape, bytes, 1);
                double gain = 1;   /* in all, shared links three times */
                CHECK(has_algorithm((enum operation)o, got), "%s", operation_name((enum operation)o));
                for (shape.shared_links = 0; shape.shared_links < 2; shape.shared_links++) {
                    double native = predicted_seconds((enum operation)o, NATIVE, &shape, bytes);
                    double time = predicted_seconds((enum operation)o, got, &shape, bytes);
                    CHECK(time <= 1.05 * native, "%s: %g, native %g", operation_name((enum operation)o), time, native);
                    CHECK(time > 0 && time < 1e6, "%s: %g", operation_name((enum operation)o), time);
                    for (int times = shape.shared_links ? 3 : 1; times > 0; times--)
                        gain *= time / native;
                }
                CHECK(got == NATIVE || gain <= 0.6561 + 1e-9, "%s: %g", operation_name((enum operation)o), gain);
            }
        }
    }
}

static void check_asked(void)
{
    struct shape shape = shape_of(TURNS, 0.02, 5e7), one = shape_of("aaaa", 0.02, 5e7);
    CHECK(asked_algorithm(NULL) == CHOICE_AUTO && asked_algorithm("auto") == CHOICE_AUTO, "auto");
    CHECK(asked_algorithm("lanes") == LANES && asked_algorithm("native") == NATIVE, "names");
    CHECK(choose_asked(OP_ALLREDUCE, &shape, 8, 1, SCATTERED) == SCATTERED, "scattered");
    CHECK(asked_algorithm("fast") == -2 && asked_algorithm("LANES") == -2, "unknown names");
    CHECK(choose_asked(OP_BCAST, &shape, 8, 1, LANES) == LANES, "lanes");
    CHECK(choose_asked(OP_BARRIER, &shape, 0, 1, LANES) == LEADERS, "barrier has no lanes");
    CHECK(choose_asked(OP_ALLREDUCE, &shape, 8, 1, SEGMENTS) == LEADERS, "allreduce has no segments");
    CHECK(choose_asked(OP_BCAST, &shape, 1 << 30, 1, NATIVE) == NATIVE, "native");
    CHECK(choose_asked(OP_BCAST, &one, 8, 1, LANES) == NATIVE, "one site");
    CHECK(choose_asked(OP_REDUCE, &shape, 8, 0, LEADERS) == NATIVE, "rank order");
    CHECK(choose_asked(OP_BCAST, &shape, 8, 1, CHOICE_AUTO) == choose(OP_BCAST, &shape, 8, 1), "auto");
    CHECK(choose_uneven(OP_GATHER, &shape, CHOICE_AUTO) == NATIVE, "uneven, auto");
    CHECK(choose_uneven(OP_GATHER, &shape, LANES) == LEADERS, "uneven, lanes");
    CHECK(choose_uneven(OP_GATHER, &one, LEADERS) == NATIVE, "uneven, one site");
    CHECK(choose_uneven(OP_GATHER, &shape, DIRECT) == DIRECT && choose_uneven(OP_SCATTER, &shape, DIRECT) == LEADERS, "uneven, direct");
    shape.family = one.family = FAMILY_OPENMPI;
    CHECK(choose_uneven(OP_GATHER, &shape, CHOICE_AUTO) == DIRECT, "uneven, auto, Open MPI");
    CHECK(choose_uneven(OP_SCATTER, &shape, CHOICE_AUTO) == NATIVE, "uneven, auto, Open MPI");
    CHECK(choose_uneven(OP_ALLTOALL, &shape, CHOICE_AUTO) == NATIVE, "uneven, auto, Open MPI");
    CHECK(choose_uneven(OP_GATHER, &shape, NATIVE) == NATIVE, "uneven, native");
    CHECK(choose_uneven(OP_GATHER, &one, CHOICE_AUTO) == NATIVE, "uneven, auto, one site");
    CHECK(choose_asked(OP_GATHER, &shape, 8, 1, DIRECT) == LEADERS, "equal counts, direct");
}

/* Each algorithm has its name, and is taken where it is asked for by the operations that have it. */
static void check_table(void)
{
    struct shape shape = shape_of(THREE, 0.02, 5e7);
    for (int a = 0; a < ALGORITHMS; a++) {
        const char *name = algorithm_name((enum algorithm)a);
        CHECK(asked_algorithm(name) == a, "%s", name);
        CHECK(strlen(algorithm_reason((enum algorithm)a)) > 0, "%s", name);
        for (int o = 0; o < OPERATIONS; o++) {
            enum algorithm want = a == NATIVE || offers((enum operation)o, (enum algorithm)a, &shape) ? (enum algorithm)a : LEADERS;
            enum algorithm got = choose_asked((enum operation)o, &shape, 1 << 20, 1, a);
            CHECK(got == want, "%s by %s: %s", operation_name((enum operation)o), name, algorithm_name(got));
            CHECK(predicted_seconds((enum operation)o, want, &shape, 1 << 20) > 0, "%s: %s", name, algorithm_name(want));
        }
    }
    CHECK(has_algorithm(OP_ALLTOALL, LEADERS) && !has_algorithm(OP_ALLTOALL, LANES), "alltoall");
    CHECK(has_algorithm(OP_BCAST, RELAYED) && !has_algorithm(OP_ALLREDUCE, RELAYED), "relayed");
}

/* Three sites of 4, 2 and 3 ranks. */
static void check_least(void)
{
    struct shape shape = shape_of("aaaabbccc", 0.01, 1e8);
    static const struct {
        enum operation operation;
        size_t bytes;
        unsigned long long messages, least;
    } cases[] = {
        { OP_BARRIER, 0, 4, 0 },           { OP_BCAST, 100, 2, 200 },      { OP_REDUCE, 100, 2, 200 },
        { OP_ALLREDUCE, 100, 4, 400 },     { OP_GATHER, 100, 2, 500 },     { OP_SCATTER, 100, 2, 500 },
        { OP_ALLGATHER, 100, 4, 1800 },    { OP_ALLTOALL, 900, 4, 4500 },  { OP_REDUCE_SCATTER, 900, 4, 1800 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct least least = least_crossing(cases[i].operation, &shape, cases[i].bytes);
        CHECK(least.messages == cases[i].messages && least.bytes == cases[i].least, "%s: %llu, %llu",
              operation_name(cases[i].operation), least.messages, least.bytes);
    }
}

static void check_segments(void)
{
    static const size_t sizes[] = { 0, 1, 65536, 1 << 20, 1 << 30, ((size_t)1 << 31) - 1 };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        size_t segment = segment_bytes(sizes[i]);
        CHECK(segment >= 60 * 1024 && sizes[i] / segment <= 64, "%zu: %zu", sizes[i], segment);
    }
}

/* Pieces of a few KiB at least and of what MPIs send at once at most, and few blocks. */
static void check_blocks(void)
{
    static const size_t sizes[] = { 1, 4096, 65536, 1 << 20, 1 << 30, ((size_t)1 << 31) - 1 };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        for (int sites = 2; sites <= 1000; sites += sites < 5 ? 1 : 199) {
            size_t blocks = (size_t)relayed_blocks(sizes[i], sites), share = sizes[i] / (size_t)(sites - 1);
            size_t most = sites - 1 > 64 ? 4096 / (size_t)(sites - 1) : 64;
            CHECK(blocks >= 1 && blocks <= most, "%zu: %zu", sizes[i], blocks);
            CHECK(blocks == 1 || share / (blocks - 1) >= 4096, "%zu: %zu", sizes[i], blocks);
            CHECK(blocks == most || share / blocks <= 60 * 1024, "%zu: %zu", sizes[i], blocks);
        }
    }
}

/* Messages of all ranks at the same time: one piece each where the path holds all of them, else pieces of a few KiB at
 * least. */
static void check_swapped_blocks(void)
{
    static const char *const sites[] = { "ab", "aabbccdd", "aaaaaaaab", "abcdefgh" };
    for (size_t i = 0; i < sizeof sites / sizeof *sites; i++) {
        struct shape shape = shape_of(sites[i], 0.0106, 25e6);
        double connections = shape.largest * (shape.sites - 1.0);
        for (size_t bytes = 1; bytes < (size_t)1 << 31; bytes *= 2) {
            int blocks = swapped_blocks(&shape, bytes);
            CHECK(blocks >= 1 && blocks <= 4096, "%s, %zu: %d", sites[i], bytes, blocks);
            CHECK((blocks == 1) == ((double)bytes * connections <= 265000), "%s, %zu: %d", sites[i], bytes, blocks);
            CHECK(blocks == 1 || bytes / (size_t)blocks >= 2048, "%s, %zu: %d", sites[i], bytes, blocks);
        }
    }
    /* A fourth of 132,500 bytes over six connections. */
    struct shape shape = shape_of("aabbccdd", 0.0106, 25e6);
    CHECK(swapped_blocks(&shape, 1 << 20) == 190, "%d", swapped_blocks(&shape, 1 << 20));
}

/* Over a path that holds 265,000 bytes in a round trip. */
static void check_window(void)
{
    struct shape shape = shape_of("aabbccdd", 0.0106, 25e6);
    static const struct {
        int blocks;
        double bytes, trips;
        int want;
    } cases[] = {
        { 64, 65536, 1, 6 }, { 64, 65536, 0.5, 4 }, { 64, 1e9, 1, 2 }, { 1, 1e9, 1, 1 }, { 16, 4096, 1, 16 }, { 64, 0, 1, 64 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct window window = window_make(&shape, cases[i].blocks, cases[i].bytes, cases[i].trips);
        CHECK(window.ahead == cases[i].want, "%zu: %d", i, window.ahead);
    }
}

/* Sends a message over a link that takes so many seconds for a block, and half a round trip each way. Returns the most
 * blocks that were under way. */
static int simulate_window(struct window *window, double rtt, double block_seconds)
{
    double sent[1024], left[1024], free_at = 0, now = 0;
    int most = 0, heard_then[1024];
    for (int b = 0, heard = 0; heard < window->blocks; heard++) {
        for (; b < window->blocks && b - heard < window->ahead; b++) {
            sent[b] = now;
            heard_then[b] = heard;
            left[b] = free_at = (free_at > now ? free_at : now) + block_seconds;
            most = b - heard + 1 > most ? b - heard + 1 : most;
        }
        /* Blocks are heard of in turn, each once it has crossed. */
        now = left[heard] + rtt > now ? left[heard] + rtt : now;
        window_heard(window, heard + 1 - heard_then[heard], now - sent[heard]);
    }
    return most;
}

/* A link as fast as it was measured, or slower, has hardly more than what fills it. One that is a hundred times as fast
 * is soon full. */
static void check_window_grows(void)
{
    struct shape shape = shape_of("aabbccdd", 0.0106, 25e6);
    for (int blocks = 64; blocks <= 1024; blocks *= 2) {
        for (double slower = 1; slower < 100; slower *= 3) {
            struct window window = window_make(&shape, blocks, 8192, 1);
            int most = simulate_window(&window, 0.0106 * (slower > 50 ? slower : 1), 8192 / 25e6 * slower);
            CHECK(most >= 33 && most <= 42, "%d, %g: %d", blocks, slower, most);
        }
    }
    struct window window = window_make(&shape, 1024, 65536, 1);
    CHECK(simulate_window(&window, 0.0106, 65536 / 2.5e9) > 128, "%d", window.ahead);
}

/* Ranks of two sites: Open MPI's first collects those of few ranks, and tells them. */
static void check_barrier(void)
{
    static const struct {
        const char *sites;
        enum algorithm of_open_mpi, of_mpich;
    } cases[] = { { "ab", NATIVE, NATIVE }, { "aabb", LEADERS, NATIVE }, { "abab", LEADERS, NATIVE },
                  { "aaaabbbb", NATIVE, NATIVE }, { "aabbcc", LEADERS, LEADERS } };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct shape shape = shape_of(cases[i].sites, 0.0106, 25e6);
        shape.family = FAMILY_OPENMPI;
        CHECK(choose(OP_BARRIER, &shape, 0, 1) == cases[i].of_open_mpi, "%s, Open MPI", cases[i].sites);
        shape.family = FAMILY_MPICH;
        CHECK(choose(OP_BARRIER, &shape, 0, 1) == cases[i].of_mpich, "%s, MPICH", cases[i].sites);
    }
}

int main(void)
{
    check_crossings();
    check_blocks();
    check_swapped_blocks();
    check_window();
    check_window_grows();
    check_barrier();
    check_binary_and_star();
    check_roots();
    check_levels();
    check_choice();
    check_open_mpi();
    check_few_ranks();
    check_overrun();
    check_far_children();
    check_allgather();
    check_link();
    check_trees();
    check_loads();
    check_oversubscribed();
    check_never_slower();
    check_asked();
    check_table();
    check_segments();
    check_least();
    return finish("choice");
}
