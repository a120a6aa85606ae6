#include "uneven.h"

int uneven_wrong(const int *counts, const int *displs, int size)
{
    if (counts == NULL || displs == NULL)
        return 1;
    for (int r = 0; r < size; r++)
        if (counts[r] < 0)
            return 1;
    return 0;
}
