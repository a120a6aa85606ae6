#include "idups.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static MPI_Comm *started;
static int count, room;
static _Atomic int pending;

void idups_begin(void)
{
    pending++;
}

int idups_started(int code, const MPI_Comm *made)
{
    if (code != MPI_SUCCESS) {
        pending--;
        return code;
    }
    pthread_mutex_lock(&lock);
    if (count == room) {
        MPI_Comm *more = realloc(started, (size_t)(room * 2 + 16) * sizeof *more);
        room = more ? room * 2 + 16 : room;
        started = more ? more : started;
    }
    /* Without memory it counts as under way for ever. */
    if (count < room)
        started[count++] = *made;
    pthread_mutex_unlock(&lock);
    return code;
}

void idups_used(MPI_Comm comm)
{
    if (pending == 0)
        return;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < count; i++) {
        if (started[i] != comm)
            continue;
        started[i] = started[--count];
        pending--;
        break;
    }
    pthread_mutex_unlock(&lock);
}

int idups_pending(void)
{
    return pending > 0;
}
