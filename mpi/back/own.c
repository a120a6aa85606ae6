#include "own.h"

#include <stdio.h>
#include <string.h>

#include "colors.h"
#include "counters.h"
#include "known.h"
#include "real.h"
#include "state.h"

/* Without knowledge everything is one site, and nothing is said of nodes. */
#define LEVELS_UNKNOWN 2

/* A communicator of known places, with its colours; NULL if they aren't known. */
static const struct known *places(MPI_Comm comm)
{
    const struct topology *topology = state_topology();
    struct known *known = topology ? known_of(comm) : NULL;
    return known && known->node_of && colors_make(known, topology) == 0 ? known : NULL;
}

/* An error for a rank that isn't one of the communicator. */
static int check_rank(MPI_Comm comm, int rank)
{
    int size;
    int rc = real.Comm_size(comm, &size);
    if (rc != MPI_SUCCESS)
        return rc;
    return rank >= 0 && rank < size ? MPI_SUCCESS : refuse_call(comm, MPI_ERR_RANK);
}

static int copy(MPI_Comm comm, const char *text, char *name, int length)
{
    if (!name || length < 1)
        return refuse_call(comm, MPI_ERR_ARG);
    snprintf(name, (size_t)length, "%s", text);
    return MPI_SUCCESS;
}

int own_levels(MPI_Comm comm)
{
    return places(comm) ? colors_depth(state_topology()) : LEVELS_UNKNOWN;
}

int own_level_name(MPI_Comm comm, int level, char *name, int length)
{
    static const char *const unknown[LEVELS_UNKNOWN] = {"grid", "site"};
    if (level < 0 || level >= own_levels(comm))
        return refuse_call(comm, MPI_ERR_ARG);
    return copy(comm, places(comm) ? colors_level_name(state_topology(), level) : unknown[level], name, length);
}

int own_place_name(MPI_Comm comm, int rank, int level, char *name, int length)
{
    const struct known *known = places(comm);
    const struct topology *topology = state_topology();
    int rc = check_rank(comm, rank);
    if (rc != MPI_SUCCESS)
        return rc;
    if (level < 0 || level >= own_levels(comm))
        return refuse_call(comm, MPI_ERR_ARG);
    if (!known || level == 0)
        return copy(comm, "", name, length);
    const struct node *node = &topology->node[known->node_of[rank]];
    if (level > topology->levels)
        return copy(comm, node->name, name, length);
    int place = node->place[level - 1];
    return copy(comm, level == topology->levels ? topology->site_names[place] : topology->value_names[place], name,
                length);
}

int own_color(MPI_Comm comm, int rank, int level, int *color)
{
    const struct known *known = places(comm);
    int rc = check_rank(comm, rank);
    if (rc != MPI_SUCCESS)
        return rc;
    if (level < 0 || level >= own_levels(comm) || !color)
        return refuse_call(comm, MPI_ERR_ARG);
    *color = known ? known->colors[rank][level] : 0;
    return MPI_SUCCESS;
}

int own_group(MPI_Comm comm, int rank, int *group, char *name, int length)
{
    const struct known *known = places(comm);
    const struct topology *topology = state_topology();
    int rc = check_rank(comm, rank);
    if (rc != MPI_SUCCESS)
        return rc;
    int found = known ? known->group_of[rank] : -1;
    if (group)
        *group = found;
    return name ? copy(comm, found >= 0 ? topology->group_names[found] : "", name, length) : MPI_SUCCESS;
}

long own_counter(int with_native)
{
    return counters_calls(with_native);
}

int own_last(char *name, int length)
{
    return copy(MPI_COMM_WORLD, count_last(), name, length);
}

/* The color of the calling rank for a type after its prefix, MPI_UNDEFINED where it has
 * none. Returns -1 if there is no such type. */
static int color_of_type(const struct known *known, const char *type, int *color)
{
    const struct topology *topology = state_topology();
    static const char level[] = "level/";
    if (strcmp(type, "group") == 0) {
        int group = known ? known->group_of[known->rank] : 0;
        *color = group >= 0 ? group : MPI_UNDEFINED;
        return 0;
    }
    int named = strncmp(type, level, strlen(level)) == 0;
    const char *name = named ? type + strlen(level) : type;
    if (!named && strcmp(type, "site") != 0 && strcmp(type, "node") != 0)
        return -1;
    int index = known ? colors_level(topology, name) : 0;
    if (index < 0)
        return -1;
    *color = known ? known->colors[known->rank][index] : 0;
    return 0;
}

int split_by_type(MPI_Comm comm, const char *type, int key, int join, enum unknown_type unknown, MPI_Comm *made)
{
    const struct known *known = places(comm);
    int color;
    *made = MPI_COMM_NULL;
    if (strncmp(type, TYPE_PREFIX, strlen(TYPE_PREFIX)) != 0 || color_of_type(known, type + strlen(TYPE_PREFIX), &color) != 0)
        return unknown == UNKNOWN_IS_ERROR ? refuse_call(comm, MPI_ERR_ARG) : MPI_SUCCESS;
    /* Where nothing is known of nodes, the MPI knows which ranks share one's memory. */
    if (!known && strcmp(type, TYPE_PREFIX "node") == 0)
        return real.Comm_split_type(comm, join ? MPI_COMM_TYPE_SHARED : MPI_UNDEFINED, key, MPI_INFO_NULL, made);
    return real.Comm_split(comm, join ? color : MPI_UNDEFINED, key, made);
}

int own_comm_split(MPI_Comm comm, const char *type, int key, MPI_Comm *made)
{
    return type && made ? split_by_type(comm, type, key, 1, UNKNOWN_IS_ERROR, made) : refuse_call(comm, MPI_ERR_ARG);
}
