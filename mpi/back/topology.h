/* Where the job runs: its nodes, sites and the levels between, and what the user asked for.
 * Read from a file; no MPI. */
#ifndef ISTHMUS_TOPOLOGY_H
#define ISTHMUS_TOPOLOGY_H

#include <stddef.h>

struct node {
    char *name;     /* grid name, "n1.alpha" */
    int *place;     /* [levels] its place at each level, the widest first; the last is its site */
};

/* The path between two sites, as measured; 0 where it isn't known. */
struct path {
    double rtt_seconds;
    double bytes_per_second;
};

struct topology {
    int levels;             /* named levels and sites: at least 1 */
    char **level_names;     /* [levels] the widest first; the last is "site" */
    int sites;
    char **site_names;      /* [sites] */
    int nodes;
    struct node *node;      /* [nodes] */
    int self;               /* the node of this process, or -1: `world` says it */
    int world_size;         /* entries of `world`; 0 in a job's own file */
    int *world;             /* [world_size] node of each rank of MPI_COMM_WORLD, for tests */
    int groups;
    char **group_names;     /* [groups] what the job's profile asked for, in the order of ranks */
    int *group_ends;        /* [groups] the first rank of MPI_COMM_WORLD after each */
    int reorder;            /* topologies of the program may have their ranks in another order */
    int values;
    char **value_names;     /* [values] by a node's place at a named level */
    struct path *path;      /* [sites * sites] */
    char *text;             /* the file, which the names point into */
    int *places;            /* [sites * levels] which the nodes' places point into */
};

/* The bounds of a file. */
#define TOPOLOGY_BYTES_MAX (64L << 20)
#define NODES_MAX 100000
#define SITES_MAX 1000
#define NAMED_LEVELS_MAX 7
#define GROUPS_MAX 1000
#define WORLD_MAX 1000000

/* The group of a rank of MPI_COMM_WORLD, or -1. */
int topology_group(const struct topology *topology, int rank);

/* Reads a file in the format that docs/collectives.md describes. On failure returns NULL and
 * writes why, with the line's number. Counts and lengths are bounded. */
struct topology *topology_read(const char *file, char *why, size_t why_len);
void topology_free(struct topology *topology);

/* A number that is equal for equal files, apart from `self`, in the same build; never 0. */
unsigned long long topology_hash(const struct topology *topology);

#endif
