#include "numbering.h"

#include <stdlib.h>

int numbering_start(struct numbering *numbering, int most)
{
    numbering->count = 0;
    numbering->slots = 4;
    while (numbering->slots / 2 < (unsigned)most)
        numbering->slots *= 2;
    numbering->slot = malloc(numbering->slots * sizeof *numbering->slot);
    if (!numbering->slot)
        return -1;
    for (unsigned i = 0; i < numbering->slots; i++)
        numbering->slot[i].number = -1;
    return 0;
}

int numbering_of(struct numbering *numbering, int first, int second)
{
    unsigned at = ((unsigned)first * 2654435761u ^ (unsigned)second * 2246822519u) >> 3;
    for (at &= numbering->slots - 1;; at = (at + 1) & (numbering->slots - 1)) {
        if (numbering->slot[at].number < 0) {
            numbering->slot[at].first = first;
            numbering->slot[at].second = second;
            return numbering->slot[at].number = numbering->count++;
        }
        if (numbering->slot[at].first == first && numbering->slot[at].second == second)
            return numbering->slot[at].number;
    }
}

void numbering_free(struct numbering *numbering)
{
    free(numbering->slot);
    numbering->slot = NULL;
}
