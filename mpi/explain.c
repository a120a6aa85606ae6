/* isthmus-coll-explain: which algorithm each collective takes for a topology, and why.
 *
 *   isthmus-coll-explain --topology FILE [--ranks N] [--mpi openmpi|mpich] [--oversubscribed] [--cart DIMS] [--json]
 *
 * Ranks are where the file's `rank` lines say; without these, N ranks (one for each node
 * if N isn't given) fill the nodes in order, as launchers do by slot. The MPI library chooses with
 * the same functions. --oversubscribed says what the library finds out in MPI_Init: ranks share
 * processors. --cart tells what isthmus run --reorder would gain in MPI_Cart_create: "4x6", with a
 * `p` behind each dimension that is periodic. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "back/choice.h"
#include "back/numbering.h"
#include "back/topology.h"
#include "explain_cart.h"

#define RANKS_MAX 1000000

struct options {
    const char *file;
    int ranks;          /* 0: as many as there are */
    enum family family;
    int is_oversubscribed;
    struct cart cart;   /* 0 dimensions: not asked for */
    int json;
};

static int usage(void)
{
    fprintf(stderr, "usage: isthmus-coll-explain --topology FILE [--ranks N] [--mpi openmpi|mpich] [--oversubscribed] "
                    "[--cart DIMS] [--json]\n");
    return 2;
}

static int parse_ranks(const char *text, int *ranks)
{
    char *end;
    long number = strtol(text, &end, 10);
    if (*text == '\0' || *end != '\0' || number < 1 || number > RANKS_MAX)
        return -1;
    *ranks = (int)number;
    return 0;
}

static int parse(struct options *options, int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        if (strcmp(argv[i], "--json") == 0) {
            options->json = 1;
            continue;
        }
        if (strcmp(argv[i], "--oversubscribed") == 0) {
            options->is_oversubscribed = 1;
            continue;
        }
        if (strcmp(argv[i], "--topology") == 0)
            options->file = value;
        else if (strcmp(argv[i], "--ranks") == 0 && parse_ranks(value, &options->ranks) != 0)
            return -1;
        else if (strcmp(argv[i], "--mpi") == 0 && strcmp(value, "openmpi") == 0)
            options->family = FAMILY_OPENMPI;
        else if (strcmp(argv[i], "--mpi") == 0 && strcmp(value, "mpich") == 0)
            options->family = FAMILY_MPICH;
        else if (strcmp(argv[i], "--cart") == 0 && cart_read(&options->cart, value) != 0)
            return -1;
        else if (strcmp(argv[i], "--ranks") != 0 && strcmp(argv[i], "--cart") != 0)
            return -1;
        i++;
    }
    return options->file != NULL && *options->file != '\0' ? 0 : -1;
}

static int node_of_rank(const struct topology *topology, int rank, int ranks)
{
    if (topology->world_size > 0)
        return topology->world[rank];
    return (int)((long long)rank * topology->nodes / ranks);
}

/* Where ranks are, as the library would see it. The caller frees *sites, the site of each rank.
 * Returns 0, or -1 with a message. */
static int make_shape(struct shape *shape, const struct topology *topology, const struct options *options, int **sites)
{
    int ranks = options->ranks > 0 ? options->ranks : topology->world_size > 0 ? topology->world_size : topology->nodes;
    if (ranks < 1 || (topology->world_size > 0 && ranks > topology->world_size)) {
        fprintf(stderr, "isthmus-coll-explain: %s: it places %d ranks\n", options->file, topology->world_size);
        return -1;
    }
    struct numbering numbering;
    int *site_of = malloc((size_t)ranks * sizeof *site_of), *site = malloc((size_t)topology->sites * sizeof *site);
    int code = site_of && site ? numbering_start(&numbering, ranks) : -1;
    for (int r = 0; r < ranks && code == 0; r++) {
        int node = node_of_rank(topology, r, ranks);
        if (node < 0 || node >= topology->nodes) {
            fprintf(stderr, "isthmus-coll-explain: %s: it doesn't place rank %d\n", options->file, r);
            free(site_of);
            free(site);
            numbering_free(&numbering);
            return -1;
        }
        int place = topology->node[node].place[topology->levels - 1];
        site_of[r] = numbering_of(&numbering, place, 0);
        site[site_of[r]] = place;
    }
    if (code == 0) {
        struct places places = { ranks, site_of, numbering.count, site, topology };
        shape->family = options->family;
        shape->is_oversubscribed = options->is_oversubscribed;
        code = shape_make(shape, &places);
        numbering_free(&numbering);
    }
    if (code != 0)
        fprintf(stderr, "isthmus-coll-explain: no memory for %d ranks\n", ranks);
    *sites = site_of;
    free(site);
    return code;
}

static const char *reason(enum algorithm algorithm, const struct shape *shape)
{
    return shape->sites < 2 ? "all ranks are at one site" : algorithm_reason(algorithm);
}

static void print_cell(enum operation operation, enum algorithm algorithm, const struct shape *shape, size_t bytes)
{
    if (shape->sites < 2 || !offers(operation, algorithm, shape))
        printf(" %10s", "-");
    else
        printf(" %10.3f", 1e3 * predicted_seconds(operation, algorithm, shape, bytes));
}

static void print_row(enum operation operation, size_t bytes, const struct shape *shape)
{
    enum algorithm chosen = choose(operation, shape, bytes, 1);
    printf("%-15s %10zu  %-9s", operation_name(operation), bytes, algorithm_name(chosen));
    for (int a = 0; a < ALGORITHMS; a++)
        print_cell(operation, (enum algorithm)a, shape, bytes);
    printf("  %s\n", reason(chosen, shape));
}

static void print_json_row(enum operation operation, size_t bytes, const struct shape *shape, int first)
{
    enum algorithm chosen = choose(operation, shape, bytes, 1);
    printf("%s\n    {\"operation\": \"%s\", \"bytes\": %zu, \"algorithm\": \"%s\", \"seconds\": {", first ? "" : ",",
           operation_name(operation), bytes, algorithm_name(chosen));
    for (int a = 0, listed = 0; a < ALGORITHMS && shape->sites > 1; a++)
        if (offers(operation, (enum algorithm)a, shape))
            printf("%s\"%s\": %.9f", listed++ ? ", " : "", algorithm_name((enum algorithm)a),
                   predicted_seconds(operation, (enum algorithm)a, shape, bytes));
    printf("}, \"reason\": \"%s\"}", reason(chosen, shape));
}

static void print_levels(const struct shape *shape, const struct topology *topology, int json)
{
    const char *format = json ? "%s{\"level\": \"%s\", \"rtt_seconds\": %.9f, \"bytes_per_second\": %.0f, "
                                "\"places\": %d, \"ranks\": %d}"
                              : "%sbetween places of level %s: %.6f s round trip, %.0f bytes/s; up to %d places, of up to %d ranks\n";
    for (int l = 0; l < shape->levels; l++) {
        const struct level *level = &shape->level[l];
        printf(format, json && l > 0 ? ", " : "", topology->level_names[level->number], level->rtt_seconds,
               level->bytes_per_second, level->subsets, level->ranks);
    }
}

/* Whose own algorithms are estimated. */
static void print_family(enum family family, int json)
{
    const char *name = family == FAMILY_OPENMPI ? "openmpi" : family == FAMILY_MPICH ? "mpich" : "any";
    if (json)
        printf("  \"mpi\": \"%s\",\n", name);
    else if (family == FAMILY_OPENMPI)
        printf("native: as Open MPI 4.1 and later choose by themselves\n");
    else
        printf("native: the fastest algorithm that %s for the size\n", family == FAMILY_MPICH ? "MPICH has" : "an MPI may have");
}

static void print_head(void)
{
    printf("\n%-15s %10s  %-9s", "operation", "bytes", "takes");
    for (int a = 0; a < ALGORITHMS; a++)
        printf(" %10s", algorithm_name((enum algorithm)a));
    printf("  why (of all, estimates in ms)\n");
}

static void print_shape(const struct shape *shape, const struct topology *topology, int json)
{
    const char *format = json
        ? "{\n  \"ranks\": %d, \"sites\": %d, \"smallest_site\": %d, \"largest_site\": %d,\n"
          "  \"wan_rtt_seconds\": %.9f, \"wan_bytes_per_second\": %.0f,\n"
          "  \"lan_rtt_seconds\": %.9f, \"lan_bytes_per_second\": %.0f,\n"
        : "%d ranks at %d sites, of %d to %d ranks\n"
          "between sites: %.6f s round trip, %.0f bytes/s; within: %.6f s, %.0f bytes/s\n";
    printf(format, shape->size, shape->sites, shape->smallest, shape->largest, shape->wan_rtt_seconds,
           shape->wan_bytes_per_second, shape->lan_rtt_seconds, shape->lan_bytes_per_second);
    print_family(shape->family, json);
    if (json)
        printf("  \"oversubscribed\": %s,\n", shape->is_oversubscribed ? "true" : "false");
    else if (shape->is_oversubscribed)
        printf("ranks share processors\n");
    if (json)
        printf("  \"levels\": [");
    if (json || shape->levels > 1)
        print_levels(shape, topology, json);
    if (json)
        printf("],\n  \"choices\": [");
    else
        print_head();
}

static void print_all(const struct shape *shape, const struct topology *topology, int json)
{
    static const size_t sizes[] = { 8, 1 << 10, 8 << 10, 64 << 10, 512 << 10, 4 << 20, 32 << 20 };
    int first = 1;
    print_shape(shape, topology, json);
    for (int o = 0; o < OPERATIONS; o++) {
        for (size_t s = 0; s < (o == OP_BARRIER ? 1 : sizeof sizes / sizeof *sizes); s++) {
            size_t bytes = o == OP_BARRIER ? 0 : sizes[s];
            if (json)
                print_json_row((enum operation)o, bytes, shape, first);
            else
                print_row((enum operation)o, bytes, shape);
            first = 0;
        }
    }
    if (json)
        printf("\n  ]");
}

int main(int argc, char **argv)
{
    struct options options = { .family = FAMILY_ANY };
    struct shape shape = { .shared_links = 1 };
    char why[256] = "";
    if (parse(&options, argc, argv) != 0)
        return usage();
    struct topology *topology = topology_read(options.file, why, sizeof why);
    if (topology == NULL) {
        fprintf(stderr, "isthmus-coll-explain: %s: %s\n", options.file, why);
        return 1;
    }
    int *site_of = NULL, code = make_shape(&shape, topology, &options, &site_of);
    if (code == 0 && !cart_fits(&options.cart, shape.size))
        code = -1;
    if (code == 0)
        print_all(&shape, topology, options.json);
    if (code == 0 && options.cart.dimensions > 0)
        code = cart_explain(&options.cart, site_of, shape.size, options.json);
    if (code == 0 && options.json)
        printf("\n}\n");
    free(site_of);
    topology_free(topology);
    return code == 0 && fflush(stdout) == 0 ? 0 : 1;
}
