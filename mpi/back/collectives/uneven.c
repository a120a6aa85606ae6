#include "uneven.h"

#include "../real.h"

int uneven_wrong(const int *counts, const int *displs, int size)
{
    if (counts == NULL || displs == NULL)
        return 1;
    for (int r = 0; r < size; r++)
        if (counts[r] < 0)
            return 1;
    return 0;
}

void uneven_to_self(struct call *call, const void *from, int count, MPI_Datatype type, void *to, int to_count,
                    MPI_Datatype to_type)
{
    int self = call->layout->rank;
    CALL_DO(call, real.Sendrecv(from, count, type, self, TAG_SELF, to, to_count, to_type, self, TAG_SELF,
                                call->spread->wire, MPI_STATUS_IGNORE));
}
