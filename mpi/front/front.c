/* The preloaded library. It defines MPI_X and PMPI_X for each call that it takes over,
 * and hands them on as words of the size of a pointer. It knows no MPI: the types of one
 * would be wrong in another.
 *
 * MPI_X goes to the next library's MPI_X if that isn't the MPI itself: a tool that was
 * preloaded after this library sees the program's calls, too. Everything else goes to the
 * back end. PMPI_X is there because Open MPI's Fortran interface calls nothing else, and
 * because a tool's wrapper ends in it. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "../back/say.h"
#include "find.h"
#include "narrow.h"
#include "own.h"
#include "words.h"

#define PUBLIC __attribute__((visibility("default")))

/* Attribute keys, under MPICH-G2's names; it, too, has -1 or the like until MPI_Init. The
 * back end sets them to the MPI's MPI_KEYVAL_INVALID first. */
PUBLIC int MPICHX_TOPOLOGY_DEPTHS = -1;
PUBLIC int MPICHX_TOPOLOGY_COLORS = -1;

static const char *const names[CALLS] = {
#define X(name, arguments) "PMPI_" #name,
    MPI_CALLS(X)
#undef X
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct found found;

/* Where each call goes, NULL until the first: [0] MPI_X, [1] PMPI_X. */
static _Atomic(function) targets[2][CALLS];

static word fail(void)
{
    return FAILED;
}

/* The one choice of MPI and back end. 0 once it is made. */
static int choose(void)
{
    int rc = 0;
    pthread_mutex_lock(&lock);
    if (!found.mpi)
        rc = find_mpi(&found, &MPICHX_TOPOLOGY_DEPTHS, &MPICHX_TOPOLOGY_COLORS);
    pthread_mutex_unlock(&lock);
    return rc;
}

/* MPI_X of a tool that is loaded after this library, or NULL. */
static function next_tool(const char *name)
{
    void *next = dlsym(RTLD_NEXT, name);
    return next && next != dlsym(found.mpi, name) ? (function)next : NULL;
}

/* Ordinary calls in place of those with large counts, for an MPI without the latter and
 * without a back end. */
#define X(name, n) \
    static word narrow_##name(PARAMETERS_##n) \
    { \
        word arguments[] = {WORDS_##n}; \
        return narrow_call(found.mpi, CALL_##name, names[CALL_##name], arguments); \
    }
COUNT_CALLS(X)
#undef X

static const function narrowed[CALLS] = {
#define X(name, n) [CALL_##name] = (function)narrow_##name,
    COUNT_CALLS(X)
#undef X
};

/* The MPI's own function. A stub of an MPI may have no profiling interface. */
static function native(enum call call)
{
    function own = (function)dlsym(found.mpi, names[call]);
    if (!own)
        own = (function)dlsym(found.mpi, names[call] + 1);
    if (!own)
        own = narrowed[call];
    if (!own)
        say("%s: this MPI has no such function", names[call]);
    return own ? own : (function)fail;
}

/* The function of an MPI that isthmus doesn't know, or of a stub of one, such as serial programs
 * are linked with; NULL if there is none. */
static function foreign(const char *name)
{
    static atomic_flag said = ATOMIC_FLAG_INIT;
    Dl_info info;
    void *other = dlsym(RTLD_NEXT, name);
    if (other && !atomic_flag_test_and_set(&said))
        say("collectives are the MPI's own: %s isn't an MPI that isthmus knows",
            dladdr(other, &info) && info.dli_fname ? info.dli_fname : name);
    return (function)other;
}

/* Finds out where a call goes, once. */
static function resolve(enum call call, int profiling)
{
    if (choose() != 0) {
        function other = foreign(names[call] + !profiling);
        if (other) {
            atomic_store_explicit(&targets[profiling][call], other, memory_order_release);
            return other;
        }
        say("%s is called in a program that has no MPI that isthmus knows", names[call] + !profiling);
        return (function)fail;
    }
    function target = profiling ? NULL : next_tool(names[call] + 1);
    if (!target && found.back)
        target = found.back->call[call];
    if (!target)
        target = native(call);
    atomic_store_explicit(&targets[profiling][call], target, memory_order_release);
    return target;
}

static inline function target_of(enum call call, int profiling)
{
    function target = atomic_load_explicit(&targets[profiling][call], memory_order_acquire);
    return __builtin_expect(target != NULL, 1) ? target : resolve(call, profiling);
}

#define TRAMPOLINE(symbol, call, profiling, n) \
    PUBLIC word symbol(PARAMETERS_##n); \
    PUBLIC word symbol(PARAMETERS_##n) \
    { \
        return ((word(*)(TYPES_##n))target_of(call, profiling))(WORDS_##n); \
    }
#define X(name, n) \
    TRAMPOLINE(MPI_##name, CALL_##name, 0, n) \
    TRAMPOLINE(PMPI_##name, CALL_##name, 1, n)
MPI_CALLS(X)
#undef X

/* The library's own calls, for isthmus_mpi.h, which looks them up by name. Each fails if
 * there is no back end. */
static function own_target(enum own_call call)
{
    return choose() == 0 && found.back ? found.back->own[call] : (function)fail;
}

#define X(name, n) \
    PUBLIC word isthmus_mpi_##name(PARAMETERS_##n); \
    PUBLIC word isthmus_mpi_##name(PARAMETERS_##n) \
    { \
        return ((word(*)(TYPES_##n))own_target(OWN_##name))(WORDS_##n); \
    }
OWN_CALLS(X)
#undef X

/* Whether a back end works for the MPI of this process. */
PUBLIC int isthmus_mpi_active(void);
PUBLIC int isthmus_mpi_active(void)
{
    return choose() == 0 && found.back != NULL;
}
