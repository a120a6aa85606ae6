/* Where the ranks of an MPI program run, when it runs as a job of isthmus.
 *
 * There is nothing to link with. Without isthmus, or with
 * `isthmus run --no-coll`, a program does the same as if all ranks were at one site.
 *
 * Levels are numbered from 0, which is the whole job ("grid"), over the levels that the
 * grid's administrator has named, to sites ("site") and nodes ("node"). Without isthmus
 * there are the first and the last but one only: "grid" and "site".
 *
 * Every function but isthmus_comm_split() is local. All of them return MPI_SUCCESS, or an
 * error code after the communicator's error handler was called. Names are cut to `length`
 * bytes with the terminator; they are at most 253 bytes and ASCII.
 *
 * The same as attributes of a communicator, under the names that MPICH-G2 gave them
 * (Karonis, Toonen, Foster: MPICH-G2, 2002), but with any number of levels:
 *
 *     int *depths, **colors, found;
 *     MPI_Comm_get_attr(comm, MPICHX_TOPOLOGY_DEPTHS, &depths, &found);
 *     MPI_Comm_get_attr(comm, MPICHX_TOPOLOGY_COLORS, &colors, &found);
 *
 * depths[rank] is the number of the rank's levels. colors[rank][level] is the number of its
 * place at the level: two ranks are at one place if and only if the numbers are equal.
 * Places are numbered from 0 by their lowest rank. The arrays live as long as the
 * communicator; programs don't change them. They aren't found without isthmus, on
 * inter-communicators, and where places aren't known: with processes of another job.
 *
 * The functions are looked up by name, so that a program that was built with this header
 * runs everywhere: link with -ldl where the C library has dlsym() apart (glibc before 2.34). */
#ifndef ISTHMUS_MPI_H
#define ISTHMUS_MPI_H

#include <dlfcn.h>
#include <stddef.h>

#include <mpi.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A function of isthmus, or NULL. (NULL as a handle is RTLD_DEFAULT, which dlfcn.h may
 * hide.) */
static inline void *isthmus_lookup_(const char *name)
{
    int (*active)(void);
    *(void **)&active = dlsym(NULL, "isthmus_mpi_active");
    return active && active() ? dlsym(NULL, name) : NULL;
}

static inline int isthmus_wrong_(MPI_Comm comm, int error)
{
    MPI_Comm_call_errhandler(comm, error);
    return error;
}

/* MPI_SUCCESS if the arguments are right where everything is one site. */
static inline int isthmus_check_(MPI_Comm comm, int rank, int level)
{
    int size, rc = MPI_Comm_size(comm, &size);
    if (rc != MPI_SUCCESS)
        return rc;
    if (rank < 0 || rank >= size)
        return isthmus_wrong_(comm, MPI_ERR_RANK);
    return level == 0 || level == 1 ? MPI_SUCCESS : isthmus_wrong_(comm, MPI_ERR_ARG);
}

static inline int isthmus_text_(const char *text, char *name, int length)
{
    int i = 0;
    for (; i + 1 < length && text[i]; i++)
        name[i] = text[i];
    if (length > 0)
        name[i] = '\0';
    return MPI_SUCCESS;
}

/* Whether isthmus takes part: 1 or 0. */
static inline int isthmus_active(void)
{
    return isthmus_lookup_("isthmus_mpi_active") != NULL;
}

/* The number of levels of a communicator. */
static inline int isthmus_levels(MPI_Comm comm, int *levels)
{
    int (*call)(MPI_Comm);
    *(void **)&call = isthmus_lookup_("isthmus_mpi_levels");
    *levels = call ? call(comm) : 2;
    return MPI_SUCCESS;
}

/* The name of a level: "grid", an administrator's, "site" or "node". */
static inline int isthmus_level_name(MPI_Comm comm, int level, char *name, int length)
{
    int (*call)(MPI_Comm, int, char *, int);
    *(void **)&call = isthmus_lookup_("isthmus_mpi_level_name");
    if (call)
        return call(comm, level, name, length);
    if (level != 0 && level != 1)
        return isthmus_wrong_(comm, MPI_ERR_ARG);
    return isthmus_text_(level == 0 ? "grid" : "site", name, length);
}

/* The name of the place where a rank is at a level, such as its site's; "" if it has none. */
static inline int isthmus_place_name(MPI_Comm comm, int rank, int level, char *name, int length)
{
    int (*call)(MPI_Comm, int, int, char *, int);
    *(void **)&call = isthmus_lookup_("isthmus_mpi_place_name");
    if (call)
        return call(comm, rank, level, name, length);
    int rc = isthmus_check_(comm, rank, level);
    return rc == MPI_SUCCESS ? isthmus_text_("", name, length) : rc;
}

/* The number of that place: colors[rank][level]. */
static inline int isthmus_color(MPI_Comm comm, int rank, int level, int *color)
{
    int (*call)(MPI_Comm, int, int, int *);
    *(void **)&call = isthmus_lookup_("isthmus_mpi_color");
    if (call)
        return call(comm, rank, level, color);
    *color = 0;
    return isthmus_check_(comm, rank, level);
}

/* The group of the job's profile that a rank belongs to, by number and name; -1 and "" if
 * it has none. `group` and `name` may be NULL. Numbers are equal for equal groups on all
 * ranks of the job. */
static inline int isthmus_group(MPI_Comm comm, int rank, int *group, char *name, int length)
{
    int (*call)(MPI_Comm, int, int *, char *, int);
    *(void **)&call = isthmus_lookup_("isthmus_mpi_group");
    if (call)
        return call(comm, rank, group, name, length);
    if (group)
        *group = -1;
    if (name)
        isthmus_text_("", name, length);
    return isthmus_check_(comm, rank, 0);
}

/* Splits a communicator into one for each place, as MPI_Comm_split does with the number of
 * the place as color. Collective. `type` is one of
 *
 *     isthmus://site          the ranks of a site
 *     isthmus://node          the ranks of a node
 *     isthmus://level/NAME    the ranks of a place at the level of this name
 *     isthmus://group         the ranks of a group; MPI_COMM_NULL for those that have none
 *
 * which MPI_Comm_split_type() takes as well, as the value of mpi_hw_resource_type in its
 * info, in MPIs that have MPI_COMM_TYPE_HW_GUIDED (MPI-4.1, 7.4.2). Where nothing is known,
 * every rank is in one site, level and group, and the MPI itself splits by nodes. */
static inline int isthmus_comm_split(MPI_Comm comm, const char *type, int key, MPI_Comm *newcomm)
{
    int (*call)(MPI_Comm, const char *, int, MPI_Comm *);
    *(void **)&call = isthmus_lookup_("isthmus_mpi_comm_split");
    if (call)
        return call(comm, type, key, newcomm);
    static const char prefix[] = "isthmus://", node[] = "isthmus://node";
    int i = 0, n = 0;
    while (prefix[i] && type[i] == prefix[i])
        i++;
    if (prefix[i])
        return isthmus_wrong_(comm, MPI_ERR_ARG);
    while (node[n] && type[n] == node[n])
        n++;
    if (!node[n] && !type[n])
        return MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, key, MPI_INFO_NULL, newcomm);
    return MPI_Comm_split(comm, 0, key, newcomm);
}

/* An attribute key, by the name of its variable in isthmus; without isthmus, one that no
 * communicator has. */
static inline int isthmus_keyval_(const char *name)
{
    static int missing = MPI_KEYVAL_INVALID;
    const int *key = (const int *)(isthmus_active() ? dlsym(NULL, name) : NULL);
    if (key && *key != MPI_KEYVAL_INVALID)
        return *key;
    if (missing == MPI_KEYVAL_INVALID)
        MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, MPI_COMM_NULL_DELETE_FN, &missing, NULL);
    return missing;
}

/* Keys, from MPI_Init to MPI_Finalize. */
#define MPICHX_TOPOLOGY_DEPTHS isthmus_keyval_("MPICHX_TOPOLOGY_DEPTHS")
#define MPICHX_TOPOLOGY_COLORS isthmus_keyval_("MPICHX_TOPOLOGY_COLORS")

#ifdef __cplusplus
}
#endif

#endif
