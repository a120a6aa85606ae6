/* What a program is told of where its ranks are, on communicators of any shape. Six ranks,
 * with topologies/levels; `places none`: without a topology; `places away`: without the
 * library. */
#include "../../include/isthmus_mpi.h"
#include "check.h"

#include <dlfcn.h>

enum { RANKS = 6, LEVELS = 5 };
/* By rank of MPI_COMM_WORLD: the job, the continent, the region, the site, the
 * node. */
static const char *const places[RANKS][LEVELS] = {
    {"", "europe", "west", "alpha", "n1.alpha"}, {"", "europe", "east", "beta", "n1.beta"},
    {"", "america", "west", "gamma", "n1.gamma"}, {"", "europe", "west", "alpha", "n2.alpha"},
    {"", "europe", "east", "beta", "n1.beta"}, {"", "europe", "west", "alpha", "n1.alpha"},
};
static const char *const level_names[LEVELS] = {"grid", "continent", "region", "site", "node"};
static const char *const groups[RANKS] = {"red", "red", "blue", "blue", "blue", ""};

static int known;

/* The ranks in MPI_COMM_WORLD of a communicator's ranks. */
static int world_ranks(MPI_Comm comm, int *ranks)
{
    MPI_Group group, world;
    int size, own[RANKS] = {0, 1, 2, 3, 4, 5};
    MPI_Comm_size(comm, &size);
    MPI_Comm_group(comm, &group);
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    MPI_Group_translate_ranks(group, size, own, world, ranks);
    MPI_Group_free(&group);
    MPI_Group_free(&world);
    return size;
}

/* Whether two ranks of the world are at one place: at the enclosing levels, too. */
static int together(int a, int b, int level)
{
    for (int i = 0; i <= level; i++)
        if (strcmp(places[a][i], places[b][i]) != 0)
            return 0;
    return 1;
}

/* Equal colours, equal places; numbered from 0 by the lowest rank. */
static void check_colors(int **colors, const int *ranks, int size)
{
    for (int level = 0; level < LEVELS; level++) {
        int next = 0;
        for (int i = 0; i < size; i++) {
            int first = 1;
            for (int j = 0; j < i; j++) {
                int same = together(ranks[i], ranks[j], level);
                CHECK((colors[i][level] == colors[j][level]) == same);
                first &= !same;
            }
            CHECK(!first || colors[i][level] == next);
            next += first;
        }
    }
}

static void check_attributes(MPI_Comm comm)
{
    int *depths, **colors, found, ranks[RANKS], size = world_ranks(comm, ranks);
    CHECK(MPI_Comm_get_attr(comm, MPICHX_TOPOLOGY_DEPTHS, &depths, &found) == MPI_SUCCESS);
    CHECK(found == known);
    CHECK(MPI_Comm_get_attr(comm, MPICHX_TOPOLOGY_COLORS, &colors, &found) == MPI_SUCCESS);
    CHECK(found == known);
    if (!known)
        return;
    /* MPI_Attr_get, which some headers no longer have, is the same. */
    int **same, (*attr_get)(MPI_Comm, int, void *, int *);
    *(void **)&attr_get = dlsym(NULL, "MPI_Attr_get");
    CHECK(attr_get(comm, MPICHX_TOPOLOGY_COLORS, &same, &found) == MPI_SUCCESS && found && same == colors);
    for (int i = 0; i < size; i++)
        CHECK(depths[i] == LEVELS);
    check_colors(colors, ranks, size);
    for (int i = 0; i < size; i++)
        for (int level = 0; level < LEVELS; level++) {
            int color;
            CHECK(isthmus_color(comm, i, level, &color) == MPI_SUCCESS && color == colors[i][level]);
        }
}

static void check_names(MPI_Comm comm)
{
    int ranks[RANKS], size = world_ranks(comm, ranks), levels, group;
    char name[64];
    CHECK(isthmus_levels(comm, &levels) == MPI_SUCCESS && levels == (known ? LEVELS : 2));
    for (int level = 0; level < levels; level++) {
        CHECK(isthmus_level_name(comm, level, name, sizeof name) == MPI_SUCCESS);
        CHECK(!strcmp(name, known ? level_names[level] : level == 0 ? "grid" : "site"));
        for (int i = 0; i < size; i++) {
            CHECK(isthmus_place_name(comm, i, level, name, sizeof name) == MPI_SUCCESS);
            CHECK(!strcmp(name, known ? places[ranks[i]][level] : ""));
        }
    }
    for (int i = 0; i < size; i++) {
        CHECK(isthmus_group(comm, i, &group, name, sizeof name) == MPI_SUCCESS);
        CHECK(!strcmp(name, known ? groups[ranks[i]] : "") && (group >= 0) == (*name != '\0'));
        CHECK(isthmus_group(comm, i, NULL, NULL, 0) == MPI_SUCCESS);
    }
    CHECK(isthmus_level_name(comm, 0, name, 3) == MPI_SUCCESS && !strcmp(name, "gr"));
}

/* The communicator that a split made has the ranks of the caller's place, in order. */
static void check_part(MPI_Comm comm, MPI_Comm part, int level, const char *const *names, int own)
{
    int ranks[RANKS], in_part[RANKS], size = world_ranks(comm, ranks), members = 0, part_size;
    part_size = world_ranks(part, in_part);
    for (int i = 0; i < size; i++) {
        int same = names ? !strcmp(names[ranks[i]], names[own]) : together(ranks[i], own, level);
        if (!known || same)
            CHECK(members < part_size && in_part[members++] == ranks[i]);
    }
    CHECK(members == part_size);
}

static int split_guided(MPI_Comm comm, const char *type, int how, MPI_Comm *part)
{
#if defined(MPI_COMM_TYPE_HW_GUIDED) || defined(GUIDED_BY_ENUM)
    MPI_Info info;
    int rank;
    MPI_Comm_rank(comm, &rank);
    MPI_Info_create(&info);
    MPI_Info_set(info, "mpi_hw_resource_type", type);
    int rc = MPI_Comm_split_type(comm, how, rank, info, part);
    MPI_Info_free(&info);
    return rc;
#else
    (void)how;
    return isthmus_comm_split(comm, type, 0, part);
#endif
}

#if defined(MPI_COMM_TYPE_HW_GUIDED) || defined(GUIDED_BY_ENUM)
#define GUIDED MPI_COMM_TYPE_HW_GUIDED
#else
#define GUIDED 0
#endif

static void check_splits(MPI_Comm comm)
{
    static const char *const types[LEVELS] = {
        "isthmus://level/grid", "isthmus://level/continent", "isthmus://level/region", "isthmus://site", "isthmus://node",
    };
    int rank, ranks[RANKS];
    MPI_Comm part;
    world_ranks(comm, ranks);
    MPI_Comm_rank(comm, &rank);
    for (int guided = 0; guided < (known ? 2 : 1); guided++) {
        for (int level = 0; level < LEVELS; level++) {
            /* Without the library, nodes are the MPI's: all ranks are on one. */
            int rc = guided ? split_guided(comm, types[level], GUIDED, &part)
                            : isthmus_comm_split(comm, types[level], 0, &part);
            CHECK(rc == MPI_SUCCESS);
            check_part(comm, part, level, NULL, ranks[rank]);
            check_attributes(part);
            MPI_Comm_free(&part);
        }
        CHECK((guided ? split_guided(comm, "isthmus://group", GUIDED, &part)
                      : isthmus_comm_split(comm, "isthmus://group", 0, &part)) == MPI_SUCCESS);
        int none = known && !*groups[ranks[rank]];
        CHECK((part == MPI_COMM_NULL) == none);
        if (!none) {
            check_part(comm, part, 0, groups, ranks[rank]);
            MPI_Comm_free(&part);
        }
    }
}

#if defined(MPI_COMM_TYPE_HW_GUIDED) || defined(GUIDED_BY_ENUM)
/* Ranks that take no part, types that aren't known, and those that are the MPI's. */
static void check_guided(MPI_Comm comm)
{
    MPI_Comm part;
    int rank;
    MPI_Comm_rank(comm, &rank);
    CHECK(split_guided(comm, "isthmus://site", rank == 0 ? MPI_UNDEFINED : GUIDED, &part) == MPI_SUCCESS);
    CHECK((part == MPI_COMM_NULL) == (rank == 0));
    if (part != MPI_COMM_NULL)
        MPI_Comm_free(&part);
    CHECK(split_guided(comm, "isthmus://city", GUIDED, &part) == MPI_SUCCESS && part == MPI_COMM_NULL);
    CHECK(MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &part) == MPI_SUCCESS);
    MPI_Comm_free(&part);
}
#endif

static void check_errors(MPI_Comm comm)
{
    MPI_Comm quiet, part;
    char name[8];
    int color;
    MPI_Comm_dup(comm, &quiet);
    MPI_Comm_set_errhandler(quiet, MPI_ERRORS_RETURN);
    CHECK(isthmus_comm_split(quiet, "site", 0, &part) == MPI_ERR_ARG);
    CHECK(!known || isthmus_comm_split(quiet, "isthmus://city", 0, &part) == MPI_ERR_ARG);
    CHECK(!known || isthmus_comm_split(quiet, "isthmus://level/city", 0, &part) == MPI_ERR_ARG);
    CHECK(isthmus_level_name(quiet, 9, name, 8) == MPI_ERR_ARG);
    CHECK(isthmus_level_name(quiet, -1, name, 8) == MPI_ERR_ARG);
    CHECK(isthmus_place_name(quiet, 99, 0, name, 8) == MPI_ERR_RANK);
    CHECK(isthmus_color(quiet, -1, 0, &color) == MPI_ERR_RANK);
    CHECK(isthmus_group(quiet, 6, &color, name, 8) == MPI_ERR_RANK);
    MPI_Comm_free(&quiet);
}

static void check_all(MPI_Comm comm)
{
    check_attributes(comm);
    check_names(comm);
    check_splits(comm);
#if defined(MPI_COMM_TYPE_HW_GUIDED) || defined(GUIDED_BY_ENUM)
    if (known)
        check_guided(comm);
#endif
}

/* An inter-communicator has no attributes. */
static void check_inter(void)
{
    MPI_Comm half, inter, merged;
    int rank, found, *depths, sum = 0, one = 1;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &half);
    MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, 1 - rank % 2, 7, &inter);
    CHECK(MPI_Comm_get_attr(inter, MPICHX_TOPOLOGY_DEPTHS, &depths, &found) == MPI_SUCCESS && !found);
    MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, inter);
    CHECK(sum == RANKS / 2);
    MPI_Intercomm_merge(inter, rank % 2, &merged);
    check_attributes(merged);
    MPI_Comm_free(&merged);
    MPI_Comm_free(&inter);
    MPI_Comm_free(&half);
}

int main(int argc, char **argv)
{
    int rank, size;
    MPI_Comm comm, again;
    MPI_Init(&argc, &argv);
    known = argc == 1;
    CHECK(isthmus_active() == !(argc > 1 && !strcmp(argv[1], "away")));
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    CHECK(size == RANKS);
    check_all(MPI_COMM_WORLD);
    check_attributes(MPI_COMM_SELF);
    check_errors(MPI_COMM_WORLD);
    /* The copy of one that has been asked, and of one that hasn't; both outlive it. */
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_dup(comm, &again);
    check_attributes(comm);
    MPI_Comm_free(&comm);
    check_names(again);
    check_attributes(again);
    MPI_Comm_free(&again);
    MPI_Comm_split(MPI_COMM_WORLD, rank / 4, -rank, &comm);
    check_all(comm);
    MPI_Comm_free(&comm);
    check_inter();
    MPI_Finalize();
    return 0;
}
