#include "partition.h"

#include <string.h>

static int before(const struct waiting *a, const struct waiting *b)
{
    return a->weight != b->weight ? a->weight > b->weight : a->order < b->order;
}

static void heap_push(struct waiting *heap, long *count, struct waiting item)
{
    long at = (*count)++;
    for (; at > 0 && before(&item, &heap[(at - 1) / 2]); at = (at - 1) / 2)
        heap[at] = heap[(at - 1) / 2];
    heap[at] = item;
}

static struct waiting heap_pop(struct waiting *heap, long *count)
{
    struct waiting top = heap[0], last = heap[--*count];
    long at = 0, child;
    while ((child = 2 * at + 1) < *count) {
        if (child + 1 < *count && before(&heap[child + 1], &heap[child]))
            child++;
        if (!before(&heap[child], &last))
            break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = last;
    return top;
}

void grow(struct work *work, struct waiting *heap, long long *pulled)
{
    int next = 0;
    for (int v = 0; v < work->size; v++)
        work->at[v] = -1;
    for (int site = 0; site < work->sites; site++) {
        long count = 0;
        int order = 0;
        memset(pulled, 0, (size_t)work->size * sizeof *pulled);
        for (int left = work->room[site]; left > 0;) {
            while (count == 0 && work->at[next] >= 0)
                next++;
            int v = count > 0 ? heap_pop(heap, &count).vertex : next;
            if (work->at[v] >= 0)
                continue;
            work->at[v] = site;
            left--;
            for (long i = work->first[v]; i < work->first[v + 1]; i++) {
                int w = work->neighbour[i];
                if (work->at[w] >= 0)
                    continue;
                pulled[w] += work->weight[i];
                heap_push(heap, &count, (struct waiting){.weight = pulled[w], .order = order++, .vertex = w});
            }
        }
    }
}
